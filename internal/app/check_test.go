package app

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/pushlease/pushlease/queue"
)

// refused is the error of a dial to an address where nobody listens.
func refused(address string) error {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return fmt.Errorf("list: %w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED})
}

func TestAProbeThatFailedSaysWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		cure, not string
	}{
		"the emulator is not there":       {refused("127.0.0.1:10001"), "Azurite", "firewall"},
		"the emulator's tables":           {refused("[::1]:10002"), "Azurite", "firewall"},
		"another port":                    {refused("127.0.0.1:10003"), "network", "Azurite"},
		"another machine":                 {refused("192.0.2.1:10001"), "network", "Azurite"},
		"no answer":                       {errors.New("no answer after 5s"), "network", "Azurite"},
		"the token service says 403":      {fmt.Errorf("list: %w: the token service answered status 403", queue.ErrDenied), "managed identity is assigned", "check the key"},
		"the token service, for tables":   {errors.New("table storage: query: no answer: no token: the token service answered status 400"), "managed_identity_client_id", "policies"},
		"storage says 403":                {fmt.Errorf("list: %w (status 403 AuthorizationFailure)", queue.ErrDenied), "the role X", "token"},
		"table storage says 403":          {errors.New("table storage: query: status 403 AuthorizationPermissionMismatch"), "the role X", "token"},
		"the token service's 403 is told": {fmt.Errorf("list: %w: the token service answered status 403", queue.ErrDenied), "policies", "role X"},
	} {
		if p := failedProbe("queue service", tt.err, "X"); p.OK || !strings.Contains(p.Cure, tt.cure) || strings.Contains(p.Cure, tt.not) {
			t.Errorf("%s: %+v, want %q in the cure, and not %q", name, p, tt.cure, tt.not)
		}
	}
}
