package mutant

func inAzureTable(name, old, with, brings string) Patch {
	return Patch{Name: "azuretable-" + name, In: "tables/azuretable", Old: old, New: with, Brings: brings, Tests: []string{"./tables/azuretable"}}
}

func inTables(name, old, with, brings string) Patch {
	return Patch{Name: "tables-" + name, In: "tables", Old: old, New: with, Brings: brings, Tests: []string{"./tables/...", "./internal/sqlite"}}
}

var azurePatches = []Patch{
	inTables("newest-by-arrival", "case !kept[last].Newer(&d):", "case true:",
		"A write that is late makes a delivered message pending again."),
	inTables("first-success-of-a-retry", "d.State == Delivered && d.Attempts == 1 && a.Number == 1 && a.Charged && *d == a.Completed(d)", "d.State == Delivered && d.Attempts == 1 && a.Number == 1 && a.Charged",
		"What a delivery says beyond its attempt is lost."),
	inTables("first-success-written-twice", "if !r.isCompleted(d) && !yield(d, nil) {", "if !yield(d, nil) {",
		"A message that is delivered at once costs two rows again."),
	inAzureTable("first-successes-share-a-row", "return deliveryKey(d) + separator + encodeID(d.Instance)", "return deliveryKey(d)",
		"Of two instances that POSTed a message the timeline tells of one."),
	inAzureTable("first-success-uncharged", "a.Charged = true // or it were none", "",
		"The timeline says that an attempt was not charged."),
	inTables("delivered-below-dead", "case Delivered:\n\t\treturn 5", "case Delivered:\n\t\treturn 3",
		"Of two processes the one that gave the message up is believed, not the one that delivered it."),
	inTables("claim-keys-collide", "h.Write(fmt.Appendf(nil, \"%d:%s\", len(p), p))", "h.Write(fmt.Append(nil, p))",
		"Two events whose parts join to the same text are taken for one: the second is deleted unsent."),
	inTables("until-inclusive", "!a.StartedAt.Before(f.Until):", "a.StartedAt.After(f.Until):",
		"Two adjoining searches show an attempt twice."),

	inAzureTable("claim-of-the-living-taken", "c.State != tables.Done && c.Until.UnixMilli() < now.UnixMilli()", "c.State != tables.Done",
		"A copy is POSTed while the event's holder is at work."),
	inAzureTable("claim-never-lapses", "c.State != tables.Done && c.Until.UnixMilli() < now.UnixMilli()", "c.State != tables.Done && c.Until.Add(240*time.Hour).UnixMilli() < now.UnixMilli()",
		"When a holder dies its event is blocked for days."),
	inAzureTable("done-claim-lapses", "return c.State != tables.Done && c.Until", "return c.Until",
		"A copy of a delivered event is delivered again."),
	inAzureTable("done-claim-reopened", "case there.Owner == c.Owner && there.State == tables.Done:\n\t\t\treturn there, true, nil\n", "",
		"A message that was delivered, and whose record was lost, is POSTed again."),
	inAzureTable("other-bucket-not-asked", "if b == mine.bucket {\n\t\t\tcontinue\n\t\t}", "if b >= 0 {\n\t\t\tcontinue\n\t\t}",
		"At the change of a week two copies of an event are both delivered."),
	inAzureTable("both-give-no-way", "if pauses--; pauses < 0 {\n\t\t\treturn other, true, nil", "if pauses--; pauses < 0 {\n\t\t\treturn other, false, nil",
		"Of two claimants in two tables both win."),
	inAzureTable("finish-anybodys-claim", "case r.Owner != c.Owner:\n\t\t\treturn tables.ErrConflict\n", "",
		"Who has lost the claim ends the one of the next holder."),
	inAzureTable("release-anybodys-claim", "if !found || r.Owner != c.Owner {", "if !found {",
		"Who has lost the claim frees the event of the next holder."),
	inAzureTable("claims-dropped-early", "oldest := bucketOf(now.Add(-tables.ClaimWindow - claimSkew))", "oldest := bucketOf(now)",
		"A copy that comes within the window is delivered again."),
	inAzureTable("refused-row-fails-its-neighbours", "switch bad := culprit(err, owners); {\n\t\tcase bad != nil:", "switch bad := culprit(err, owners); {\n\t\tcase bad != nil && len(batch) < 0:",
		"One row that the service refuses costs a hundred others another request each."),
	inAzureTable("refused-alone-again", "case isRefused(err) && len(batch) > 1:", "case isRefused(err) && len(batch) < 0:",
		"One row that can't be written keeps those of a hundred other messages from being written."),
	inAzureTable("one-hangs-up-for-all", "if left.Add(-1) == 0 {", "if left.Add(-1) >= 0 {",
		"A caller that gives up fails the records of others."),
	inAzureTable("first-row-wins", "rows[i], owners[i] = r, m", "if !taken {\n\t\t\t\trows[i], owners[i] = r, m\n\t\t\t}",
		"Of two records of a delivery written together the older one stays."),
	inAzureTable("batch-of-101", "count > maxBatchRows || size", "count > maxBatchRows+1 || size",
		"Under load the service refuses transactions."),
	inAzureTable("answer-before-durable", "c.committed(m.index)\n\t\t\t\tm.result <- nil", "m.result <- nil\n\t\t\t\tc.committed(nil)",
		"Attempts are missing in the list."),
	inAzureTable("rank-not-in-key", "separator + strconv.Itoa(d.State.Rank())", "separator + strconv.Itoa(0)",
		"A write that is late replaces what a delivery came to."),
	inAzureTable("ids-collide", "b.Write([]byte{'.', hexDigits[c>>4], hexDigits[c&15]})", "b.Write([]byte{'.', hexDigits[c>>4]})",
		"Records of two messages are mixed."),
	inAzureTable("dead-letter-without-queue", "if err := s.rememberQueue(ctx, queue); err != nil {\n\t\treturn tables.DeadLetter{}, err\n\t}", "",
		"Dead letters of a queue are missing in the list over all queues."),
	inAzureTable("list-loses-the-text", "c.binary(\"Text\", there.binary(\"Text\"))", "_ = there",
		"Marking a dead letter as replayed erases its body."),
	inAzureTable("dead-letter-overwritten", "if errors.Is(err, tables.ErrExists) {\n\t\te, err := s.get", "if errors.Is(err, tables.ErrConflict) {\n\t\te, err := s.get",
		"A dead letter whose first answer was lost is never seen as written."),
}
