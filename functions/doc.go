// Package functions is pushlease as an Azure Functions custom handler. The Functions
// host receives messages, keeps them leased and deletes them; it calls this package
// over loopback HTTP, once for each message, timer run or API request. What is done
// about a message is the dispatcher's; here is the host's protocol, and how a decision
// becomes an answer to it (see settle.go). docs/azure-functions.md is for the
// operator; hosttest is a fake of the host.
package functions
