package mutant

// What a webhook with a limit is sent. The tests are those of the learner and of the flow.
func inLimits(name, in, old, with, brings, tests string) Patch {
	return Patch{Name: "limits-" + name, In: in, Old: old, New: with, Brings: brings, Tests: []string{"./policy", "./dispatcher/internal/flow", "-run", tests}}
}

var limitPatches = []Patch{
	inLimits("outage-is-limit", "policy", "if p.broken {", "if p.broken && p.noise.share > 1 {",
		"After an outage that is answered 503 the webhook stands still for an hour.", "AnOutage"),
	inLimits("short-outage-is-limit", "policy", "!again && share > paceUnsure && p.outage(closed)", "!again && share > 1 && p.outage(closed)",
		"After a minute of 503 a webhook with a limit is sent a twentieth of that.", "AnOutage"),
	inLimits("long-window-unknown", "policy", "case mostly && ", "case !mostly && ",
		"A limit of so many in a quarter of an hour opens the breaker each time.", "TestThePacerReachesALimit|AnOutage"),
	inLimits("few-are-window", "policy", "mostly := taken >= paceSure && ", "mostly := ",
		"A receiver that crashed after each POST is sent one in two minutes for hours after it is mended.", "ACrashLoop"),
	inLimits("restart-hides-window", "policy", "case p.noise.share > 0:\n\t\tp.halve(now)", "case p.noise.share > 0, p.kept && p.window == 0:\n\t\tp.halve(now)",
		"After a restart a limit of so many in a quarter of an hour opens the breaker each time.", "TestALongWindow"),
	inLimits("outage-ends-window", "policy", "(p.window == 0 || p.found)", "p.window == 0",
		"After an outage a limit of so many in a quarter of an hour opens the breaker three times more.", "TestALongWindow"),
	inLimits("dead-is-asked-each-second", "policy", "if (p.kept || p.noise.shared()) && p.noise.young() {", "if p.noise.young() {",
		"A webhook that has just broken down gets a POST each second for a minute.", "AnOutage"),
	inLimits("named-wait-is-breakdown", "dispatcher/internal/flow", "case a.Sign.Waits && f.pacer.TookLately(now)", "case a.Sign.Waits && now.IsZero() && f.pacer.TookLately(now)",
		"A limit that names its wait ends at one message in a quarter of an hour.", "NamesItsWait"),
	inLimits("named-wait-teaches-nothing", "dispatcher/internal/flow", "few := !f.waited.IsZero() && f.delivered-f.waitedAt <= fewTaken", "few := false",
		"A receiver that takes one POST in 50 ms and names a wait of a second is sent one a second.", "NamesItsWait"),
	inLimits("idle-leader-had-nothing", "policy", "if left.Instances < before.Instances && left.Learned", "if left.Instances < 0 && left.Learned",
		"Who takes over from an instance that had nothing to send begins at next to nothing.", "TakesOver"),
	inLimits("quiet-time-is-breakdown", "policy", "now.Sub(p.firstNo) > max(", "away > max(",
		"One refusal after a quiet time opens the breaker.", "QuietTime"),
	inLimits("places-beside-cut", "policy", "p.used = min(used, place.used)", "p.used = min(used, max(place.used, used))",
		"A refusal lowers the rate that the places ahead have reached, and not the refused one.", "ARefusalLowersTheRate"),
	inLimits("follower-does-not-yield", "policy", "left = 1 - paceYield", "left = 1 - paceCut",
		"No one of several instances comes to lead.", "TestSeveralInstancesShareALimit|AnInstanceGivesWay"),
}
