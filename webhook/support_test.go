package webhook_test

import (
	"context"
	"net"
)

type netConn = net.Conn

func stalledDial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
