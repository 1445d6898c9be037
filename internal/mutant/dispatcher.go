package mutant

// The dispatcher's tests take minutes together, so a fault names those of its subject. Most run
// in simulated time: a subject takes seconds.
const (
	aboutEvents   = "Event|Copy|Copies|Claim|Duplicate|Window"
	aboutLetters  = "DeadLetter|Poison|Replay|GivenUp|GivesUp|Expire|Held"
	aboutWebhooks = "Back|Webhook|Registered|Redeliver|Replay|Retry|Retries|Posted|Got"
	aboutFaults   = "Back|Fault|Store|Lost|Shutdown|Died|Written|Kill|Poison|Stop"
)

func inDispatcher(about, name, old, with, brings string) Patch {
	return Patch{
		Name: "dispatcher-" + name, In: "dispatcher", Old: old, New: with, Brings: brings,
		Tests: []string{"./dispatcher/...", "-run", about},
	}
}

var dispatcherPatches = []Patch{
	inDispatcher("LostRecords", "losses-uncounted", "j.lose(j.memory.remember(rec, false))", "j.memory.remember(rec, false)",
		"Records that had to make room while storage was away are missing, and nothing says so."),
	inDispatcher("PointsInwards", "refused-address-uncounted", "if a.ErrorClass == policy.ClassBlocked {", "if a.ErrorClass == policy.ClassBlocked && a.Action != policy.Abandon {",
		"No metric tells that a webhook's name leads inwards while its messages are tried again."),
	inDispatcher(aboutEvents, "claim-outlasts-holder-by-days", "const Margin = tables.ClocksApart + 30*time.Second", "const Margin = 240 * time.Hour",
		"When the holder of an event dies, its copies wait for days."),
	inDispatcher(aboutEvents, "claim-shorter-than-post", " + p.m.Lease.Granted() + claims.Margin", "*0 + claims.Margin",
		"A copy is POSTed while the event's holder waits for a slow webhook."),
	inDispatcher(aboutEvents, "delivered-claim-lapses", "if c.Delivered && until.After(c.Until) {", "if c.Delivered && until.Before(c.Until) {",
		"A copy is POSTed to a webhook that has the event, while the message waits for its others."),
	inDispatcher(aboutEvents, "own-done-claim-ignored", "if won && current.State != tables.Done ||", "if won ||",
		"A message that was delivered, and whose record was lost, is POSTed again."),
	inDispatcher(aboutEvents, "other-body-is-duplicate", "case current.BodyHash != p.hash:", "case current.BodyHash == \"none\":",
		"A message with other content is deleted unsent because its event id was used before."),
	inDispatcher(aboutEvents, "claim-not-kept-while-waiting", "kept.Until = time.Now().Add(delay + lease + Margin)", "kept.Until = time.Now().Add(Margin - time.Minute)",
		"A copy is POSTed while the event's holder waits for its next attempt."),
	inDispatcher(aboutEvents, "failed-event-stays-claimed", "if ends.over = true; ends.Delivered {", "ends.Delivered = true\n\tif ends.over = true; ends.Delivered {",
		"An event whose delivery failed can never be published again."),
	inDispatcher(aboutEvents, "unfinished-claim-forgotten", "later := c.Delivered && len(cs.late) < memorySize", "later := false",
		"A copy of an event that was delivered while the store was away is POSTed again after it."),
	inDispatcher(aboutEvents, "replay-takes-original-claim", "c.Replay, c.Owner, c.At = true, p.key.MessageID+\" replayed\", p.m.InsertedAt", "c.Replay, c.At = true, p.m.InsertedAt",
		"The end of a replay ends the claim of the original, which is still under way."),
	inDispatcher(aboutEvents, "deleted-copy-is-posted", "case row.Status == tables.Replayed:", "case row.Status == \"\":",
		"A dead letter that was deleted or replayed is delivered from its copy on the poison queue."),
	inDispatcher(aboutEvents, "copy-is-a-stranger", "id = p.copyOf.MessageID", "id = p.key.MessageID",
		"A webhook on a poison queue gets the copy of a dead letter under another id."),
	inDispatcher(aboutFaults, "first-receive-by-memory", "return p.m.DequeueCount <= 1 && p.replay == nil && !strings", "return p.m.DequeueCount <= 2 && p.replay == nil && !strings",
		"A redelivered message is POSTed again to the webhooks that have it."),
	inDispatcher(aboutFaults, "poison-by-count-alone", "t.due(now) && t.delivery.MissingRecords >= poisonProofs", "t.due(now)",
		"A message is dead-lettered because storage or the process failed often."),
	inDispatcher(aboutFaults, "excuse-uncounted", "\t\t\theld[i].Excused++\n", "\t\t\t_ = i\n",
		"Receives that ended through our own fault count towards the poison guard."),
	inDispatcher(aboutFaults, "excused-beside-a-post", "\tif p.posted == 0 {\n\t\tfor i := range held {", "\tif true {\n\t\tfor i := range held {",
		"A message that kills its process is never suspected while another webhook is held."),
	inDispatcher(aboutLetters, "stale-registry-completes", "if del := &rest[i].delivery; !del.State.Terminal() {", "if del := &rest[i].delivery; del.State != \"\" {",
		"A webhook that has the message gets a dead letter of it too."),
	inDispatcher(aboutFaults, "lease-lost-is-a-fault", "case errors.Is(cause, queue.ErrLeaseLost):\n\t\treturn policy.LeaseLost", "case errors.Is(cause, queue.ErrLeaseLost):\n\t\treturn policy.RetryableError",
		"An attempt that was cut short because the lease was lost is charged."),
	inDispatcher(aboutLetters, "dead-letter-after-delete", "o.Action, o.Reason, o.Delay, o.ReplayEnds = policy.NoVerdict, policy.StorageFault, OwnFaultDelay(m), nil", "o.Reason, o.Delay, o.ReplayEnds = policy.StorageFault, OwnFaultDelay(m), nil",
		"A message whose dead letter could not be written is deleted."),
	inDispatcher(aboutLetters, "lost-lease-dead-letters", "case ends && (l.IsLost() || !expires && !l.Sure()):", "case ends && l == nil:",
		"Who has lost the lease writes a dead letter of a message that the next holder delivers."),
	inDispatcher("NoPost|Another", "verdict-on-anothers-message", "case ends || o.Action == policy.Complete: // it", "case l == nil: // it",
		"A message that another instance delivers is given up by what was known before."),
	inDispatcher("NoPost|Another", "answers-wait-for-the-lease", "if len(rec.Attempts) > 0 {", "if rec.Attempts == nil {",
		"An attempt is on no record where the lease was lost meanwhile."),
	inDispatcher("NearItsEnd|Another", "letters-of-what-others-ended", "del.State.Terminal() && del.State != tables.DeadLettering {\n\t\t\tt.delivery = del", "del.State == \"\" {\n\t\t\tt.delivery = del",
		"At the end of its life a message gets a dead letter for who has it."),
	inDispatcher("Replay", "replay-ends-its-original", " || !won && current.MessageID == p.key.MessageID {", " {",
		"The replay to one webhook ends its message for the others."),
	inDispatcher("Copy", "copy-with-any-letter", "cmp.Or(dl.Delivery.UpdatedAt.Compare(first.Delivery.UpdatedAt), ", "cmp.Or(0, ",
		"A second copy is made where a process died between the copy and its record."),
	inDispatcher("Begin|Begun", "begins-after-its-lease", "return p.leased() && !a.Leases.TooLate(p.key.Queue, p.m)", "return p.leased() || !a.Leases.TooLate(p.key.Queue, p.m)",
		"A process that stood still past its lease POSTs what another one has by then."),
	inDispatcher("Begin|Begun", "begins-after-others-were-told", "return p.leased() && !a.Leases.TooLate(p.key.Queue, p.m)", "return p.leased()",
		"A POST begins that others were not told of, while its lease can't be renewed."),
	inDispatcher(aboutWebhooks, "latest-next-time", "if next.IsZero() || at.Before(next) {", "if next.IsZero() || at.After(next) {",
		"A webhook waits for the slowest of its neighbours."),
	inDispatcher(aboutWebhooks, "terminal-is-sent-again", "return t.registration.Enabled && !del.State.Terminal() &&", "return t.registration.Enabled &&",
		"A webhook that has the message gets it again when another one is tried."),
	inDispatcher(aboutWebhooks, "retry-before-its-time", "!flow.CannotBeSentTo(del) || !del.NextAt.After(now))", "!flow.CannotBeSentTo(del) || !del.NextAt.IsZero())",
		"A webhook is tried again before its delay is over when the message comes back for another."),
	inDispatcher(aboutWebhooks, "late-webhook-gets-old", "late := !known && r.CreatedAt.After(until)", "late := !known && r.CreatedAt.After(until.AddDate(1, 0, 0))",
		"A webhook that was registered later gets messages of before."),
	inDispatcher(aboutLetters, "held-never-given-up", "if left < margin {\n\t\t\tp.giveUp(del, reason, now)", "if left < 0 {\n\t\t\tp.giveUp(del, reason, now)",
		"A held message vanishes at its expiry without a dead letter."),
	inDispatcher(aboutLetters, "poison-copy-for-each", "dl.Copy = false", "dl.Copy = wanted",
		"A message that three webhooks gave up is three times in the poison queue."),
	inDispatcher(aboutLetters, "copy-again-after-crash", "if dl.Copy && c.o.PoisonCopy && stored.CopiedToQueue == \"\" {", "if dl.Copy && c.o.PoisonCopy {",
		"After a crash a message is copied to the poison queue again."),
	inDispatcher(aboutLetters, "newer-replay-ended", "now.ReplayToken != row.ReplayToken || now.Status", "now.Status",
		"The end of an old replay ends a newer one that is under way."),
	inDispatcher(aboutLetters, "definitive-tried-again", "case err == nil, p.Final != nil && p.Final(err):", "case err == nil:",
		"A refusal for good is asked three times."),
	inDispatcher(aboutLetters, "replay-to-all", "p.replay.WebhookID != \"\" && p.replay.WebhookID != r.ID {", "p.replay.WebhookID == \"none\" {",
		"A replay for one webhook is sent to all of the queue."),
	inDispatcher(aboutWebhooks, "withdrawn-without-proof", "\tif !deleted {\n\t\tdel.Reason, del.UpdatedAt = policy.StorageFault", "\tif deleted && !deleted {\n\t\tdel.Reason, del.UpdatedAt = policy.StorageFault",
		"A message is completed without a webhook whose registration could not be read."),
	inDispatcher(aboutFaults, "own-fault-spins", "ownFaultMin = 2 * time.Second", "ownFaultMin = 0",
		"While storage fails, a message is received again and again without a pause."),
}

func inAPI(name, old, with, brings string) Patch {
	return Patch{
		Name: "api-" + name, In: "api", Old: old, New: with, Brings: brings,
		Tests: []string{"./api", "-run", "Key|Request|Publish|ReplayByFilter"},
	}
}

var apiPatches = []Patch{
	inAPI("replay-by-when-given-up", "cmp.Compare(a.inserted, b.inserted), cmp.Compare(a.dead, b.dead)", "cmp.Compare(a.dead, b.dead), cmp.Compare(a.inserted, b.inserted)",
		"A receiver that keeps the last state that it was told ends a mass replay with an old one."),
	inAPI("key-blocked-for-days", "keyClaimLife   = 30 * time.Second", "keyClaimLife   = 240 * time.Hour",
		"When the process dies within a publish, its key can't be used for days."),
	inAPI("key-freed-in-doubt", "case err != nil && queue.Ambiguous(err):", "case err != nil && queue.Ambiguous(err) && p.key == \"\":",
		"A publish whose answer was lost frees its key: the repeated request sends a second message at once."),
	inAPI("key-of-another-request", "case current.BodyHash != mine.BodyHash:", "case current.BodyHash == \"none\":",
		"A request with a key of another message is answered as if it had been sent."),
	inAPI("key-answer-before-it-is-kept", "c.MessageID, c.Until = sent.ID, sent.InsertedAt", "c.Until = sent.InsertedAt",
		"A repeated request is told no message id."),
}
