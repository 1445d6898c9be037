// Package tables says what is remembered: deliveries and their attempts,
// registered webhooks and their health, dead letters, and claims. Each is a small interface; two stores
// implement all of them: tables/azuretable over Azure Table Storage and
// internal/sqlite over one database file. Both pass tables/tablestest.
//
// Order of writes: a delivery is recorded as delivered
// before its message is completed; an attempt is recorded before its message is
// abandoned; a dead letter's row is durable before its message is completed.
// Each step may be repeated, so a crash between any two heals on redelivery.
package tables
