package app

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/config"
)

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestTheEndOfTheSignatureIsToldUnderTheHost: no loop runs there that would say so by the
// hour, so the start says it, and each housekeeping.
func TestTheEndOfTheSignatureIsToldUnderTheHost(t *testing.T) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	end := time.Now().Add(3 * 24 * time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	var log safeBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- RunFunctions(ctx, FunctionsOptions{
			Options: Options{Version: "test", LogOutput: &log}, Port: port,
			Root: fstest.MapFS{"host.json": {Data: []byte(`{"version":"2.0"}`)}}, Getenv: func(string) (string, bool) { return "", false },
			Config: func() (config.Config, error) {
				return config.Load(nil, []string{"PUSHLEASE_STORAGE=QueueEndpoint=http://127.0.0.1:9/a;TableEndpoint=http://127.0.0.1:9/a;SharedAccessSignature=sv=1&se=" + end + "&sig=x"})
			},
		})
	}()
	// What is answered by the API comes after the start.
	for {
		resp, err := http.Get("http://127.0.0.1:" + port + "/api/v1/healthz")
		if err == nil {
			_ = resp.Body.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v\n%s", err, log.String())
		default:
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, ErrStopped) {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(log.String(), "signature ends soon") {
		t.Errorf("nothing about the signature in\n%s", log.String())
	}
}

// A host that ended before its id was read here has never called: nothing else tells it from one
// that is there, whoever is the parent since.
func TestAnOrphanFromTheBeginningEnds(t *testing.T) {
	for name, calls := range map[string]bool{"called": true, "never called": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, unwatch := context.WithCancel(t.Context())
				defer unwatch()
				called := make(chan struct{})
				orphaned := FunctionsOptions{Parent: func() int { return 1 }}.orphaned(ctx, called)
				time.Sleep(30 * time.Second)
				if calls {
					close(called)
				}
				select {
				case <-orphaned:
					if calls {
						t.Error("a process that the host called is taken for an orphan")
					}
				case <-time.After(time.Hour):
					if !calls {
						t.Error("the orphan goes on")
					}
				}
			})
		})
	}
}

// A port that host.json gives is kept for a moment by the process of a host that was killed.
func TestAPortThatIsTakenForAMomentIsWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for taken, waits := range map[time.Duration]bool{0: true, 2 * time.Second: true, time.Minute: false} {
			start := time.Now()
			_, err := listenWhenFree(t.Context(), func(context.Context, string, string) (net.Listener, error) {
				if time.Since(start) < taken {
					return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
				}
				return nil, nil
			}, "127.0.0.1:1")
			if waited := time.Since(start); (err == nil) != waits || waited > portPatience+portEvery {
				t.Errorf("taken for %s: %v after %s", taken, err, waited)
			}
		}
		refused, start := errors.New("refused"), time.Now()
		_, err := listenWhenFree(t.Context(), func(context.Context, string, string) (net.Listener, error) { return nil, refused }, "127.0.0.1:1")
		if !errors.Is(err, refused) || time.Since(start) != 0 {
			t.Errorf("what does not pass: %v after %s", err, time.Since(start))
		}
	})
}
