// Package azuritetest gives tests a storage account to talk to: Azurite, the
// storage emulator, and a proxy in front of it that injects the faults which
// Azurite never has.
//
// # Azurite
//
// Start runs the queue and table services of one pinned Azurite in one Node
// process for all tests of a test binary. It is installed on first use into
// the user's cache folder from the package-lock.json in this folder, keeps its
// data in a temporary folder, listens on free loopback ports, and ends with
// the test binary. Tests share the account, so they use Name for everything
// that they create.
//
// Without Node the tests that need Azurite are skipped; with CI=true in the
// environment they fail instead.
//
// # Proxy
//
// What the real service does and Azurite does not, and how sure we are:
//
//   - 404 MessageNotFound for a stale receipt, where Azurite has 400
//     PopReceiptMismatch. Seen in traces of the real service
//     (azure-storage-net#285, azure-sdk-for-net#44848). On by default.
//   - 503 ServerBusy (Throttle) and any other refusal (FailBefore). The codes
//     are documented; that nothing took effect is inferred from their meaning.
//   - A lost answer (FailAfter), a lost request (CutBefore), slow answers
//     (Delay, Late, LateBody), no connection at all (Down). Networks do this.
//   - Messages out of order (Reorder): documented as "not guaranteed".
//   - Empty table pages with a continuation, some with a partition key only
//     (EmptyPages). Documented; reported in azure-sdk-for-go#5425.
//   - A byte order mark before XML (BOM). Reported in azure-sdk-for-go#22139.
//   - A clock that differs from ours (Skew), by the Date header.
//
// Not emulated: the limits of partitions and accounts, expiry while a lease
// is held, and the half minute that a deleted queue or table takes (inject 409
// QueueBeingDeleted or TableBeingDeleted for that).
package azuritetest
