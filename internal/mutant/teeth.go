package mutant

import "strconv"

// The simulation has to find each of these by this rule, or by any without one, within so many seeds of a profile, beginning with
// the first. They bring back what field failures were about (docs/field-failures.md).
func inSim(name, in, old, with, brings, profile string, seeds int, rule string) Patch {
	return Patch{
		Name: "teeth-" + name, In: in, Old: old, New: with, Brings: brings, Rule: rule,
		Tests: []string{"./internal/sim", "-run", "^TestHunt$", "-args", "-profile=" + profile, "-seeds=" + strconv.Itoa(seeds), "-rule=" + rule},
	}
}

// The points of failure of a path have to find these by this rule, the first of each two.
func atPoints(name, in, old, with, brings, path, rule string) Patch {
	return Patch{
		Name: "teeth-" + name, In: in, Old: old, New: with, Brings: brings, Rule: rule,
		Tests: []string{"./internal/sim", "-run", "^TestPointsOfFailure$/" + path, "-args", "-points-for=0/2"},
	}
}

// The simulation can't find these; the named test has to.
func inCase(name, in, old, with, brings, dir, test string) Patch {
	return Patch{Name: "teeth-" + name, In: in, Old: old, New: with, Brings: brings, Tests: []string{dir, "-run", "^" + test + "$"}}
}

var teeth = []Patch{
	inSim("c41-behind-dns64", "webhook", "return o.allowsHTTP(netip.AddrFrom4([4]byte(b[12:])), host)", "return len(b) == 0",
		"Where a resolver makes IPv6 addresses of IPv4 ones, every receiver is refused.", "kept", 12, "dead letters"),
	inSim("c45-wrapped-base64", "queue", "if bytes.ContainsAny(text, base64Blanks) {", "if len(text) < 0 {",
		"Base64 with line ends is sent undecoded.", "kept", 6, "bytes"),
	inSim("c51-unasked-bytes", "webhook/internal/transport", "if c.in.Buffered() > 0 {\n\t\treturn talking, nil\n\t}\n", "if c != nil {\n\t\treturn quiet, nil\n\t}\n",
		"Bytes that nobody asked for are taken for the next message's answer.", "unasked", 3, "lost"),
	inSim("c53-newer-envelope", "queue", "return ok && len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'", "return ok && len(rest) > 0 && rest[0] == '1'",
		"A text of a newer version is POSTed as a body.", "kept", 6, "bytes"),
	inSim("c54-rare-looks", "dispatcher/internal/receive", "guardInterval = 20 * time.Second", "guardInterval = 10 * time.Minute",
		"Messages of a short life expire without a dead letter.", "expiry", 30, "lost"),
	inSim("c55-doubt-is-posted", "dispatcher/internal/delivery", "doubtMargin) - slack\n\tif left <= 0 {", "doubtMargin) - slack\n\tif left > 0 {",
		"A delivered message is POSTed again because tables can't be read for a moment.", "redelivery", 6, "double"),
	inSim("c56-nothing-handed-on", "dispatcher/internal/delivery", "if list := f.handedOn(p, h); len(list) > 0 {", "if list := f.handedOn(p, h); len(list) > 999 {",
		"What a deleted webhook was tried with never reaches the one that was registered anew.", "anew", 6, ""),
	inSim("c57-marked-before-sent", "api", "next.Status, next.ReplayToken = tables.Waiting, token", "next.Status, next.ReplayToken = tables.Replaying, token",
		"A replay that is cut by a crash stays replaying.", "replays", 6, ""),
	inSim("replays-purged", "api", "if d.ReplayToCome(queue.ReplayLife) {\n\t\treturn true\n\t}\n\tmaking", "if d.ReplayToCome(queue.ReplayLife) {\n\t\treturn false\n\t}\n\tmaking",
		"A purge deletes what is being replayed, and the message is gone.", "purges", 6, "lost"),
	inSim("c58-no-place-for-newcomers", "dispatcher/internal/admission", "return max(n, 0)\n\t}\n\treturn 1", "return max(n, 0)\n\t}\n\treturn sh.used",
		"A queue that joins gets nothing while others hang.", "hanging-neighbours", 3, "neighbours"),
	inSim("c63-late-renewal", "dispatcher/internal/lease", "wait = min(wait, max(left/2, renewLeast))", "wait = max(wait, renewLeast)",
		"The next try of a renewal is later than the lease's end.", "renewals", 12, "lease"),
	inSim("nobody-told", "dispatcher/internal/lease", "until := f(ctx)\n", "_, until := f(ctx), time.Time{}\n",
		"A message is POSTed by two at once because the answer of a renewal was lost.", "lost-answers", 3, "cut"),
	inSim("told-and-not-waited-for", "dispatcher/internal/delivery", "policy.LeaseLost, ends.UTC().Truncate(time.Millisecond), p.instance", "policy.LeaseLost, now.UTC().Truncate(time.Millisecond), p.instance",
		"Who finds that a POST is under way does not wait for its outcome.", "lost-answers", 3, "double"),
	inSim("c64-attempt-of-nobody", "tables/azuretable", "return string(append(b, encodeID(a.Instance)...))\n}", "return string(append(b, encodeID(\"\")...))\n}",
		"Two instances POST one message, and one attempt is on record.", "renewals", 12, "attempts"),
	inSim("c68-one-lane", "tables/azuretable", "maxLanes = 8", "maxLanes = 1",
		"One late transaction holds up all records.", "latency-tail", 3, "held up"),
	inSim("c69-drained", "dispatcher/internal/flow", "if everything && closed && f.breaker.Open(", "if everything && closed && now.IsZero() && f.breaker.Open(",
		"A webhook that refuses everything empties its queue into dead letters.", "one-refuses-all", 12, "drained"),
	inSim("c70-unmatched-deleted", "dispatcher/internal/delivery", "if w.KeepUnmatched(p.key.Queue) || p.replay != nil {", "if p.replay != nil {",
		"What every filter refuses is deleted.", "kept", 3, "lost"),
	inSim("c61-first-wait", "policy", "wait, ok := parseWait(part, now)", "wait, ok := parseWait(part, now)\n\t\tok = ok && !found",
		"Of several waits that a receiver names the first one counts.", "limited", 6, ""),
	inSim("c84-limit-is-failure", "dispatcher/internal/flow", "if a.Sign.Limited && f.settings.Adaptive {", "if a.Sign.Limited && now.IsZero() {",
		"A receiver with a limit makes dead letters.", "limited", 6, ""),
	inSim("hosted-not-taken-over", "dispatcher", "return \"\", fmt.Errorf(\"take the message over: %w\", err)", "return \"deleted\", nil",
		"The host deletes a message that could not be taken over from it.", "hosted", 8, ""),
	inSim("throttled-queue-takes-places", "dispatcher/internal/receive", "answered()\n\tp.seats.Return(n - len(messages))", "answered()\n\tif err == nil {\n\t\tp.seats.Return(n - len(messages))\n\t}",
		"A queue that storage throttles takes the places of all others.", "hot-partition", 6, ""),
	inSim("replay-to-all", "dispatcher/internal/delivery", "if p.replay != nil && p.replay.WebhookID != \"\" && p.replay.WebhookID != r.ID {", "if p.replay != nil && r.ID == \"\" {",
		"A replay for one webhook goes to the others of the queue too, which have the message.", "replaced", 6, ""),
	inSim("swept-replay-lost", "internal/app", "none = errors.Is(err, queue.ErrQueueNotFound) || err == nil && depth.Total == 0", "none = err == nil && depth.Total < 0",
		"A replay whose message went with its queue stays replaying.", "swept", 6, ""),
	inSim("standstill-gives-up", "dispatcher", "|| len(o.DeadLetters) > 0 && !l.Sure()", "",
		"Who stood still for longer than its lease writes a dead letter of a message that the next holder delivers.", "standstill", 12, ""),
	inSim("copies-not-claimed", "dispatcher/internal/delivery", "if won && current.State != tables.Done {\n\t\treturn nil\n\t}", "if current.State != tables.Done {\n\t\treturn nil\n\t}",
		"A copy of an event is POSTed while its holder is at work.", "copies", 6, ""),
	inSim("record-after-delete", "dispatcher/internal/delivery", "h.explained += del.Attempts + del.Excused\n", "if del.State == tables.Delivered {\n\t\t\tcontinue\n\t\t}\n\t\th.explained += del.Attempts + del.Excused\n",
		"A delivered message that comes back is POSTed again.", "redelivery", 3, ""),
	inSim("bytes-changed", "queue", "return base64.StdEncoding.Strict().AppendDecode(nil, text)", "return base64.StdEncoding.Strict().AppendDecode([]byte(\" \"), text)",
		"The receiver gets other bytes than were sent.", "kept", 3, ""),

	atPoints("redelivered-replay", "dispatcher/internal/delivery", "if p.ofAnotherReplay(del) {", "if p.ofAnotherReplay(del) || p.replay != nil && del.State == tables.Delivered {",
		"A replay that was delivered and comes back is POSTed again.", "^replay$/^azure$", "double"),
	inSim("first-success-not-read", "internal/sqlite", "attempts\" + where + \" AND completed\"", "attempts\" + where + \" AND completed = 2\"",
		"On a file a delivered message that comes back is POSTed again.", "redelivery", 12, "double"),
	inSim("no-patience", "dispatcher/internal/receive", "wait = retry.Backoff(faults, errorBackoffMin, p.PollMax)", "wait = errorBackoffMin",
		"Storage that does not answer is asked again and again.", "storage-dead", 3, "outage"),

	inCase("replays-of-one-second", "dispatcher/internal/delivery", "return p.replay != nil && p.replay.WebhookID != \"\" && del.WebhookID != p.replay.WebhookID", "return p == nil",
		"A replay is ended, and its message is gone, by another one of the same second whose webhook is there.", "./dispatcher", "TestReplaysOfOneSecondForTwoWebhooksAreApart"),
	inCase("c43-write-hides-answer", "webhook/internal/transport", "response, err := x.read()\n\tif err == nil {\n\t\treturn response, nil\n\t}\n\t_ = x.wire.Close()", "failed := x.written()\n\tif failed != nil {\n\t\t_ = x.wire.Close()\n\t\treturn nil, failed\n\t}\n\tresponse, err := x.read()\n\tif err == nil {\n\t\treturn response, nil\n\t}\n\t_ = x.wire.Close()",
		"The answer of a receiver that does not read the whole request is lost.", "./webhook", "TestAnAnswerThatArrivedWinsOverAFailedWrite"),
	inCase("c47-newest-first", "api", "cmp.Compare(a.inserted, b.inserted), cmp.Compare(a.dead, b.dead)", "cmp.Compare(b.inserted, a.inserted), cmp.Compare(a.dead, b.dead)",
		"A mass replay sends the newest first.", "./api", "TestReplayByFilterBeginsWithTheOldestMessages"),
	inCase("c49-names-not-looked-at", "internal/sqlite", "if now.Sub(c.lookedAt) < lookEvery {", "if now.Sub(c.lookedAt) < lookEvery || !c.lookedAt.IsZero() {",
		"The file is taken away under the running process, and messages are accepted and gone.", "./internal/sqlite", "TestFilesThatAreTakenAwayStopTheStoreAndLoseNothing"),
	inCase("c59-locked-without-words", "internal/sqlite", "w.others.idle(w.conn) > lockPatience || ", "",
		"A publish hangs while another process has the file locked.", "./internal/sqlite", "TestLockThatStaysIsBusy"),
	inCase("c59-full-heals-too-soon", "internal/sqlite", "changed && (!errors.Is(before, queue.ErrFull) || time.Since(c.failedAt) >= fullFor)", "changed",
		"A disk that is full counts as well because a small write fits.", "./internal/sqlite", "TestFullDiskIsAnErrorAndHeals"),
	inCase("c67-unwritten-make-room", "dispatcher/internal/journal", "if len(m.byKey) <= memorySize && now-e.Value.(*remembered).at < memoryAge {\n\t\t\tbreak\n\t\t}\n\t\tdelete(m.byKey, m.written.Remove(e).(*remembered).key)\n\t}\n\tfor ; m.unwritten.Len() > memorySize; lost++ {", "if now-e.Value.(*remembered).at < memoryAge {\n\t\t\tbreak\n\t\t}\n\t\tdelete(m.byKey, m.written.Remove(e).(*remembered).key)\n\t}\n\tfor m.unwritten.Len() > 0 && len(m.byKey) > memorySize {",
		"Records that wait for the store are lost and not counted.", "./dispatcher/internal/journal", "TestWhatWaitsForTheStoreIsNeverLostForWhatIsWritten"),
	inCase("c72-old-count", "api", "if fresh && (s.DeadLettered == w.dead || time.Since(w.at) < recountEvery) {", "if fresh {",
		"No dead letter is shown while many wait.", "./api", "TestDeadLettersAreCountedAnewWhenThisProcessMadeOrEndedSome"),
	inCase("c73-telemetry-decides", "internal/app", "a.log.Warn(\"the last telemetry could not be sent\", \"error\", err)\n\t\t}\n\t\treturn nil", "return err\n\t\t}\n\t\treturn nil",
		"A collector that is away decides the exit code.", "./cmd/pushlease", "TestACollectorThatIsAwayDoesNotDecideTheExitCode"),
	inCase("c75-broken-is-well", "api", "case status.Failing, status.Probing:\n\t\treturn t.broken()", "case status.Probing:\n\t\treturn t.broken()",
		"A webhook whose breaker is open is said to be sent to as messages come.", "./api", "TestStatusSaysWhyAndWhatNext"),
	inCase("c77-quiet-ones-stay", "internal/app", "among(c) && c.quiet && (found", "among(c) && c.quiet && c.since.IsZero() && (found",
		"Idle connections shut everybody out.", "./internal/app", "TestQuietConnectionsKeepNobodyOut"),
	inCase("c113-late-unsaid", "dispatcher/internal/journal", "if leased && late < lateAfter || a.StartedAt.IsZero() {", "if leased && late < lateAfter || !a.StartedAt.IsZero() {",
		"Nothing on record says why a message was delivered twice.", "./dispatcher", "TestAnAttemptThatIsWrittenAfterItsLeaseSaysSo"),
	inCase("c85-alone-unsaid", "tables", "for id, queue := range removed {", "for id, queue := range removed {\n\t\t\t\tif len(removed) > 0 {\n\t\t\t\t\tbreak\n\t\t\t\t}",
		"A registration that another program deletes beside others goes unseen.", "./internal/app", "TestARegistrationThatAnotherProgramDeletesIsTold"),
	inCase("c85-only-today", "tables/azuretable", "min(0, dropsEarly-retention)", "min(0, retention-dropsEarly)",
		"A dropped table that knows what earlier messages have been delivered goes unseen.", "./tables/azuretable", "TestATableThatAnotherProgramDropsIsTold"),
}
