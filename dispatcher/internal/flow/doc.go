// Package flow knows what each webhook may be sent now: its window of POSTs in flight, its
// rate, its breaker, the pause that it asked for, and the messages that are held until it can
// be sent to again. It keeps what is known of a webhook's health over a restart, and disables
// one that has failed for too long.
//
// Flow (flow.go) is one webhook; ticket.go is the way in and out of a POST, room.go says how
// many more are worth receiving, status.go what the API shows. Flows (flows.go) are all of
// them, with their health (health.go) and their held messages (held.go).
package flow
