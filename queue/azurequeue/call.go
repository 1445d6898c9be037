package azurequeue

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// The operations, as Options.OnTransaction names them.
const (
	opReceive  = "receive"
	opRenew    = "renew"
	opAbandon  = "abandon"
	opComplete = "complete"
	opSend     = "send"
	opCreate   = "create"
	opDepth    = "depth"
	opPeek     = "peek"
	opList     = "list"
	opDelete   = "delete"
)

// call is what is known about one request. It travels in the context, because
// the SDK's pipeline lies between the caller and the transport.
type call struct {
	operation string
	queue     string      // its name, empty where the request is about the account
	connected atomic.Bool // a connection was there to write to
	answered  bool        // an answer's head was read
	err       error       // why there was none
	// messages are those of the answer to a receive; read is false when the SDK is to
	// read it.
	messages []received
	read     bool
}

type callKey struct{}

// callFrom returns the call that do put there: every request goes through it.
func callFrom(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// received is one message of the answer to a receive. What the answer does not name is
// zero.
type received struct {
	id, receipt       string
	text              []byte
	dequeueCount      int64
	inserted, expires time.Time
}

// traced is a context in which net/http tells c of the connection for the request. It must
// not be used for anything else.
func (c *call) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})
}

// unsent is true when storage can't have acted on the request, because there
// was no connection. What happened on a connection that broke is not known.
func (c *call) unsent() bool { return !c.connected.Load() }
