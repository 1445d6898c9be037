package mutant

import "strconv"

// The simulation has to find each of these within so many seeds of a profile, beginning with
// the first. They bring back what field failures were about (docs/field-failures.md).
func inSim(name, in, old, with, brings, profile string, seeds int) Patch {
	return Patch{
		Name: "teeth-" + name, In: in, Old: old, New: with, Brings: brings,
		Tests: []string{"./internal/sim", "-run", "^TestHunt$", "-args", "-profile=" + profile, "-seeds=" + strconv.Itoa(seeds)},
	}
}

var teeth = []Patch{
	inSim("c41-behind-dns64", "webhook", "return o.allowsHTTP(netip.AddrFrom4([4]byte(b[12:])), host)", "return len(b) == 0",
		"Where a resolver makes IPv6 addresses of IPv4 ones, every receiver is refused.", "kept", 12),
	inSim("c45-wrapped-base64", "queue", "if bytes.ContainsAny(text, base64Blanks) {", "if len(text) < 0 {",
		"Base64 with line ends is sent undecoded.", "kept", 6),
	inSim("c51-unasked-bytes", "webhook/internal/transport", "if c.in.Buffered() > 0 {\n\t\treturn talking\n\t}\n", "if c != nil {\n\t\treturn quiet\n\t}\n",
		"Bytes that nobody asked for are taken for the next message's answer.", "unasked", 3),
	inSim("c53-newer-envelope", "queue", "return ok && len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'", "return ok && len(rest) > 0 && rest[0] == '1'",
		"A text of a newer version is POSTed as a body.", "kept", 6),
	inSim("c54-rare-looks", "dispatcher/internal/receive", "guardInterval = 20 * time.Second", "guardInterval = 10 * time.Minute",
		"Messages of a short life expire without a dead letter.", "expiry", 30),
	inSim("c55-doubt-is-posted", "dispatcher/internal/delivery", "if !h.doubt || !m.ExpiresAt.IsZero() && time.Until(m.ExpiresAt) <= doubtMargin {", "if !h.doubt || m.ExpiresAt.IsZero() || time.Until(m.ExpiresAt) > 0 {",
		"A delivered message is POSTed again because tables can't be read for a moment.", "redelivery", 6),
	inSim("c56-nothing-handed-on", "dispatcher/internal/delivery", "if found = f.handedOn(p, h); len(found) == 0 {", "if len(found) == 0 {",
		"What a deleted webhook was tried with never reaches the one that was registered anew.", "anew", 6),
	inSim("c57-marked-before-sent", "api", "next.Status, next.ReplayToken = tables.Waiting, token", "next.Status, next.ReplayToken = tables.Replaying, token",
		"A replay that is cut by a crash stays replaying.", "replays", 6),
	inSim("c58-no-place-for-newcomers", "dispatcher/internal/admission", "return max(n, 0)\n\t}\n\treturn 1", "return max(n, 0)\n\t}\n\treturn sh.used",
		"A queue that joins gets nothing while others hang.", "hanging-neighbours", 3),
	inSim("c63-late-renewal", "dispatcher/internal/lease", "wait = min(wait, max(left/2, renewLeast))", "wait = max(wait, renewLeast)",
		"The next try of a renewal is later than the lease's end.", "renewals", 12),
	inSim("c64-attempt-of-nobody", "tables/azuretable", "padded(a.Number, 6) + separator + encodeID(a.Instance)", "padded(a.Number, 6) + separator + encodeID(\"\")",
		"Two instances POST one message, and one attempt is on record.", "renewals", 12),
	inSim("c68-one-lane", "tables/azuretable", "maxLanes = 8", "maxLanes = 1",
		"One late transaction holds up all records.", "latency-tail", 3),
	inSim("c69-drained", "dispatcher/internal/flow", "if everything && closed && f.breaker.Open(", "if everything && closed && now.IsZero() && f.breaker.Open(",
		"A webhook that refuses everything empties its queue into dead letters.", "one-refuses-all", 12),
	inSim("c70-unmatched-deleted", "dispatcher/internal/delivery", "if w.KeepUnmatched(p.key.Queue) {", "if w.KeepUnmatched(p.key.Queue) && p.m == nil {",
		"What every filter refuses is deleted.", "kept", 3),
	inSim("c61-first-wait", "policy", "wait, ok := parseWait(part, now)", "wait, ok := parseWait(part, now)\n\t\tok = ok && !found",
		"Of several waits that a receiver names the first one counts.", "limited", 6),
	inSim("c84-limit-is-failure", "dispatcher/internal/flow", "if a.Sign.Limited && f.settings.Adaptive {", "if a.Sign.Limited && now.IsZero() {",
		"A receiver with a limit makes dead letters.", "limited", 6),
	inSim("hosted-not-taken-over", "dispatcher", "return \"\", fmt.Errorf(\"take the message over: %w\", err)", "return \"deleted\", nil",
		"The host deletes a message that could not be taken over from it.", "hosted", 8),
	inSim("copies-not-claimed", "dispatcher/internal/delivery", "if won && current.State != tables.Done {\n\t\treturn nil\n\t}", "if current.State != tables.Done {\n\t\treturn nil\n\t}",
		"A copy of an event is POSTed while its holder is at work.", "copies", 6),
	inSim("record-after-delete", "dispatcher/internal/delivery", "h.explained += del.Attempts + del.Excused\n", "if del.State == tables.Delivered {\n\t\t\tcontinue\n\t\t}\n\t\th.explained += del.Attempts + del.Excused\n",
		"A delivered message that comes back is POSTed again.", "redelivery", 3),
	inSim("bytes-changed", "queue", "return base64.StdEncoding.Strict().AppendDecode(nil, text)", "return base64.StdEncoding.Strict().AppendDecode([]byte(\" \"), text)",
		"The receiver gets other bytes than were sent.", "kept", 3),
}
