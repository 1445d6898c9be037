package mutant

func inQueue(name, old, with, brings string) Patch {
	return Patch{Name: "queue-" + name, In: "queue", Old: old, New: with, Brings: brings, Tests: []string{"./queue"}}
}

func inAzureQueue(name, old, with, brings string) Patch {
	return Patch{Name: "azurequeue-" + name, In: "queue/azurequeue", Old: old, New: with, Brings: brings, Tests: []string{"./queue/azurequeue"}}
}

var queuePatches = []Patch{
	inQueue("auto-decodes-words", "case err != nil, setting != EncodingBase64 && (setting != EncodingAuto || !isJSONObjectOrArray(raw)):", "case err != nil, setting == EncodingNone:",
		"A plain word such as SEND, which is valid base64, is corrupted."),
	inQueue("base64-not-strict", "base64.StdEncoding.Strict().AppendDecode(nil, text)", "base64.StdEncoding.AppendDecode(nil, text)",
		"Text that is nearly base64 changes when it is sent."),
	inQueue("unknown-envelope-fields", "if unknown(fields, envelopeFields) || unknown(replay, replayFields) {", "if unknown(replay, replayFields) {",
		"What a newer version wrote is POSTed without what it said beside the body."),
	inQueue("newer-version-read", "string(fields[\"pushlease\"]) != \"1\"", "string(fields[\"pushlease\"]) == \"\"",
		"An envelope of a newer version is read as one of this one."),
	inQueue("base64-wants-no-line-ends", "bytes.ContainsAny(text, base64Blanks)", "bytes.ContainsAny(text, \"\\t\")",
		"What base64 and openssl write is undecodable."),
	inQueue("plain-envelope-on-base64-queue", "if setting == EncodingBase64 {\n\t\ttext = encodeBase64(text)", "if setting == \"never\" {\n\t\ttext = encodeBase64(text)",
		"An envelope on a base64 queue fails the whole batch of other readers."),
	inQueue("charset-needs-envelope", "charset == \"\" || charset == \"utf-8\"", "charset == \"\" || charset == \"utf8\"",
		"What .NET's PostAsJsonAsync sends is stored as an envelope."),
	inQueue("header-injection", "printable(e.ContentType, 256) && ", "",
		"A content type with a line break becomes a header of its own."),
	inQueue("body-not-read-back", "got.ContentType == \"\" && bytes.Equal(got.Bytes, body)", "got.ContentType == \"\"",
		"A body is stored in a form that is read as another body."),
	inQueue("xml-escapes-uncounted", "size += 4", "size += 0",
		"A body that does not fit once XML has escaped it is refused by the service."),
	inQueue("control-characters-pass", "ok := r == '\\t'", "ok := r == 0 || r == '\\t'",
		"A zero byte makes the service refuse the message, or drop the byte."),
	inQueue("receipt-not-replaced", "l.receipt, l.granted, l.until = receipt, granted, start.Add(granted)", "l.granted, l.until = granted, start.Add(granted)",
		"After the first renewal a message can be neither renewed nor deleted."),

	inAzureQueue("lease-from-the-answer-on", "m.Lease.Renewed(g.receipt, g.start, g.visibility)", "m.Lease.Renewed(g.receipt, time.Now(), g.visibility)",
		"A slow answer makes a lease look longer than storage keeps it."),
	inAzureQueue("received-lease-from-the-answer-on", "Lease: queue.NewLease(m.receipt, start, granted),", "Lease: queue.NewLease(m.receipt, start.Add(time.Since(start)), granted),",
		"A slow answer makes a lease look longer than storage keeps it."),
	inAzureQueue("renewal-erases-content", "operation != opRenew && operation != opAbandon {\n\t\treturn req.Next()", "operation != opAbandon {\n\t\treturn req.Next()",
		"A renewal erases the message."),
	inAzureQueue("empty-id-clears-queue", "if id == \"\" || len(id) > maxID {", "if len(id) > maxID {",
		"A delete without an id clears the whole queue."),
	inAzureQueue("dots-in-id", "c == '-':\n\t\tdefault:", "c == '-', c == '.':\n\t\tdefault:",
		"A message whose id is .. deletes its queue."),
	inAzureQueue("stale-receipt-is-a-fault", "case queueerror.MessageNotFound, queueerror.PopReceiptMismatch:\n\t\treturn true", "case queueerror.PopReceiptMismatch:\n\t\treturn true",
		"A message that is gone is asked about again and again."),
	inAzureQueue("text-made-safe-silently", "case !queue.XMLSafe(text):", "case false && !queue.XMLSafe(text):",
		"The SDK replaces bytes of a message that XML can't carry."),
	inAzureQueue("never-expires-in-9999", "t == nil || t.Year() >= 9999", "t == nil",
		"A message without an expiry has one, in the year 9999."),
	inAzureQueue("received-without-receipt", "if m.id == \"\" || m.receipt == \"\" {", "if m.id == \"\" {",
		"A message that can't be settled is POSTed."),
	inAzureQueue("delay-cut-off", "if whole := d.Truncate(time.Second); whole < d {", "if whole := d.Truncate(time.Second); whole < 0 {",
		"A message comes back before its delay is over."),
	inAzureQueue("busy-is-unknown", "code == queueerror.ServerBusy, r.StatusCode == http.StatusTooManyRequests:", "r.StatusCode == http.StatusTooManyRequests:",
		"Throttling by the service counts as a fault of unknown kind."),
	inAzureQueue("denied-takes-words-of-answer", "if codeLike.MatchString(code) {", "if code != \"\" {",
		"Text that anything on the way wrote reaches the log."),
}
