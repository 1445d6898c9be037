// Package functions is pushlease as an Azure Functions custom handler. The Functions
// host receives messages and calls this package over loopback HTTP, once for each message,
// timer run or API request. A message is taken over at once: from then on its lease, its
// delivery and its end are the dispatcher's, as of any other. Here is the host's protocol.
// docs/azure-functions.md is for the operator; hosttest is a fake of the host.
package functions
