// Package webhooktest is the receiving side for tests of what sends to
// webhooks.
//
// Receiver is a real net/http server over pipes in memory, so that it works in
// a testing/synctest bubble, where waits take no time. Wire is a receiver
// below HTTP that answers with whatever bytes its Script writes, over pipes or
// over TCP.
//
// Both stand under the address guard: with GuardOptions.AllowPrivate a webhook
// at http://127.0.0.1/path reaches them through Options.DialContext.
package webhooktest
