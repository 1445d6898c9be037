// Package transport is the exchange of one POST from the socket up, as an http.RoundTripper.
//
// HTTP/1.1 is written and read here, on the caller's goroutine and with net/http's own wire
// code (http.Request.Write, http.ReadResponse), so that what is parsed is parsed as Go does.
// What is different is what becomes of a connection: one on which anything came unasked is
// never used again, an answer that has arrived counts although the request could not be
// written to its end, and nothing is ever repeated here. An idle connection has no goroutine.
// HTTP/2, where TLS negotiates it, is net/http's, one http.ClientConn for each connection.
package transport
