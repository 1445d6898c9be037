package app

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// refused is the error of a dial to an address where nobody listens.
func refused(address string) error {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return fmt.Errorf("list: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED})
}

func token(status int) error {
	return fmt.Errorf("no token: %w", &azureconn.TokenRefusedError{Status: status})
}

func TestAProbeThatFailedSaysWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		cure, not string
	}{
		"the emulator is not there":     {refused("127.0.0.1:10001"), "Azurite", "firewall"},
		"the emulator's tables":         {refused("[::1]:10002"), "Azurite", "firewall"},
		"another port":                  {refused("127.0.0.1:10003"), "network", "Azurite"},
		"another machine":               {refused("192.0.2.1:10001"), "network", "Azurite"},
		"no answer":                     {errors.New("no answer after 5s"), "network", "Azurite"},
		"the token service says 403":    {fmt.Errorf("list: %w", token(403)), "managed identity is assigned", "check the key"},
		"the token service says 400":    {fmt.Errorf("list: %w", token(400)), "managed_identity_client_id", "policies"},
		"its 403 is told":               {fmt.Errorf("list: %w", token(403)), "policies", "role X"},
		"storage says 403":              {fmt.Errorf("list: %w (status 403 AuthorizationFailure)", queue.ErrDenied), "the role X", "token"},
		"table storage says 403":        {fmt.Errorf("query: %w", tables.ErrDenied), "the role X", "token"},
		"what only reads like a denial": {errors.New("a queue named status 403: the token service answered"), "network", "role X"},
	} {
		if p := failedProbe("queue service", tt.err, "X"); p.OK || !strings.Contains(p.Cure, tt.cure) || strings.Contains(p.Cure, tt.not) {
			t.Errorf("%s: %+v, want %q in the cure, and not %q", name, p, tt.cure, tt.not)
		}
	}
}
