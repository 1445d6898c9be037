// Package queue says what a leased queue must do, and nothing about how.
//
// A message is received under a lease: for that long nobody else receives it.
// The holder renews the lease while it works and settles the message at the
// end: Complete removes it, Abandon gives it back after a delay. A message that
// is not settled comes back by itself when its lease ends, so a holder that
// dies loses nothing. Moving a message to a dead-letter queue is not part of
// this contract: it touches two queues and the tables, and belongs to the
// dispatcher.
//
// Two adapters implement the contract: queue/azurequeue over Azure Storage
// Queues and internal/sqlite over one database file. Both pass
// queue/queuetest.
package queue
