// Package sim runs whole pushlease processes in simulated time, on a model of the storage
// account or a real SQLite file, against models of receivers, while calls fail, processes
// die and operators do what they do at the worst time. Everything that happens is chosen
// by one seed. A checker that knows only what the account and the receivers saw then says
// what broke. docs/simulation.md explains how to read what it prints.
//
// A Plan is what happens, made by a profile from a seed (profiles.go). Run carries it out
// in a world (world.go) of instances (instance.go), storage (account.go, file.go) and
// receivers (receiver.go), which the faults (faults.go) and gates (gate.go) stand between.
// check.go judges what was seen; shrink.go finds the shortest plan that still fails.
package sim
