package mutant

func inWebhook(name, old, with, brings string) Patch {
	return Patch{Name: "webhook-" + name, In: "webhook", Old: old, New: with, Brings: brings, Tests: []string{"./webhook"}}
}

var webhookPatches = []Patch{
	inWebhook("expired-secret-signs", "!secret.ExpiresAt.IsZero() && !now.Before(secret.ExpiresAt)", "!secret.ExpiresAt.IsZero() && now.IsZero()",
		"A secret that was rotated away still signs."),
	inWebhook("one-signature-only", "if signatures != \"\" {\n\t\t\tsignatures += \" \"\n\t\t}", "if signatures != \"\" {\n\t\t\tbreak\n\t\t}",
		"During a rotation receivers with the old secret refuse everything."),
	inWebhook("hmac-not-reset", "\th.hash.Reset()\n", "",
		"Every second signature is wrong."),
	inWebhook("timestamp-not-checked", "if seconds < now.Unix()-span || seconds > now.Unix()+span {", "if seconds > now.Unix()+span {",
		"A recorded request can be sent again years later."),
	inWebhook("socket-unchecked", "err != nil || !g.options.allowsFor(target.Addr(), to)", "err != nil || to.host == \"never\"",
		"Nothing checks the address that a socket is connected to."),
	inWebhook("mapped-address-passes", "if addr = addr.Unmap(); g.options.allowsFor(addr, to) {", "if g.options.allowsFor(addr, to) {",
		"An IPv4 address in its IPv6 form gets past the guard, or is refused wrongly."),
	inWebhook("nat64-passes", "return o.allows(netip.AddrFrom4([4]byte(b[12:])))", "return len(b) > 0",
		"A private address behind NAT64 gets past the guard."),
	inWebhook("nat64-refused", "return o.allows(netip.AddrFrom4([4]byte(b[12:])))", "return len(b) == 0",
		"In a network with DNS64 no receiver can be reached that has IPv4 only."),
	inWebhook("one-retry-after", "retryAfter(resp.Header[\"Retry-After\"])", "retryAfter(resp.Header[\"Retry-After\"][:min(1, len(resp.Header[\"Retry-After\"]))])",
		"Of several lines Retry-After only the first one is read."),
	inWebhook("location-reaches-the-span", "response.Header.Del(\"Location\")", "_ = keyLocation",
		"Where a redirect points is in spans, with the secrets in its query."),
	inWebhook("retry-after-echoes", "if _, err := http.ParseTime(value); err != nil {", "if _, err := http.ParseTime(value); err == nil {",
		"Whatever a receiver writes into Retry-After is recorded."),
	inWebhook("user-header-replaces-signature", "\"webhook-\", \"pushlease-\", \"proxy-\"", "\"pushlease-\", \"proxy-\"",
		"A webhook's own header takes the place of webhook-id."),
	inWebhook("idempotency-header-allowed", "\"idempotency-key\": true,", "\"idempotency-key\": false,",
		"net/http repeats a POST by itself, unseen."),
	inWebhook("repeats-after-write", "f.sent, f.stale, f.again = e.Sent, e.Stale(), e.NoChance()", "f.sent, f.stale, f.again = e.Sent, e.Stale(), true",
		"A POST that the receiver may have processed is sent twice."),
	inWebhook("informational-is-an-answer", "case response.StatusCode == http.StatusSwitchingProtocols, response.StatusCode < 100:", "case response.StatusCode < 100:",
		"A 101 counts as an interim answer."),
	inWebhook("shortage-is-the-receivers", "case short(err):\n\t\treturn shortFailure(err)\n\tcase errors.Is(err, syscall.ECONNREFUSED):", "case errors.Is(err, syscall.ECONNREFUSED):",
		"Messages are dead-lettered because this machine has no socket left."),
	inWebhook("answer-without-bound", "io.ReadAll(io.LimitReader(body, MaxBodyRead))", "io.ReadAll(body)",
		"A receiver whose body never ends takes all memory."),
	inWebhook("short-secret", "minSecretBytes = 24", "minSecretBytes = 1",
		"A secret of one byte is taken."),
}
