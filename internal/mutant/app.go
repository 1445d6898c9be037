package mutant

func inApp(name, old, with, brings string) Patch {
	return Patch{Name: "app-" + name, In: "internal/app", Old: old, New: with, Brings: brings, Tests: []string{"./internal/app", "-run", "Ready|Unready|Quiet|Probes|Peer"}}
}

var appPatches = []Patch{
	inApp("ready-while-it-stops", "{Name: \"draining\", OK: !r.draining.Load()}", "{Name: \"draining\", OK: true}",
		"Load balancers send requests to an instance that is about to end."),
	inApp("storage-is-no-matter", "checks = append(checks, storageCheck(ctx, r.stores.fault))", "",
		"An instance that can store nothing says that it is ready."),
	inApp("latest-makes-room", "c.since.Before(found[0].since)", "c.since.After(found[0].since)",
		"Who has just called loses the connection, and an idle one keeps its."),
	inApp("no-pressure", "other.quiet && time.Since(other.since) >= quietWhenPressed", "other.quiet && time.Since(other.since) < 0",
		"Idle connections are kept until all places are taken."),
	inApp("silent-callers-work", "state == http.StateNew || state == http.StateIdle", "state == http.StateIdle",
		"Connections on which nothing is ever said keep all callers out."),
}
