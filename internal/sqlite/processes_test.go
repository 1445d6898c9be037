package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// delayEnv, with senderEnv, makes the test binary send one message that is hidden for
// that long.
const delayEnv = "PUSHLEASE_TEST_DELAY"

// senderEnv makes the test binary a process that sends to the file it names until it
// is killed, and prints the id of each message that was accepted.
const senderEnv = "PUSHLEASE_TEST_SENDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(senderEnv); path != "" {
		if delay, err := time.ParseDuration(os.Getenv(delayEnv)); err == nil {
			fmt.Println(sendDelayed(path, delay))
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, sendForever(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func sendForever(path string) error {
	ctx := context.Background()
	db, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	q, err := db.Queues().Queue("orders")
	if err != nil {
		return err
	}
	failed := make(chan error)
	var mu sync.Mutex
	for range 8 {
		go func() {
			for {
				sent, err := q.Send(ctx, []byte("accepted"), queue.SendOptions{})
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				fmt.Println(sent.ID)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

// sendDelayed returns the process's idea of the local time, or what went wrong.
func sendDelayed(path string, delay time.Duration) string {
	ctx := context.Background()
	db, err := Open(ctx, path, Options{})
	if err != nil {
		return err.Error()
	}
	q, err := db.Queues().Queue("orders")
	if err == nil {
		_, err = q.Send(ctx, []byte("later"), queue.SendOptions{Delay: delay})
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err.Error()
	}
	return time.Now().Format("-07:00")
}

// C36: what another zone's process has written is read as it was meant.
func TestDelayMeansTheSameInEveryZone(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.db")
	for zone, offset := range map[string]string{"Asia/Kolkata": "+05:30", "Etc/GMT+7": "-07:00", "UTC": "+00:00"} {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), senderEnv+"="+path, delayEnv+"=10m", "TZ="+zone)
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != offset {
			t.Fatalf("%s: %q, %v, want %s", zone, out, err, offset)
		}
	}
	db := openFile(t, path, Options{})
	rows := 0
	err = db.readRows(t.Context(), query{text: "SELECT visible_at FROM messages"}, func(scan func(...any) error) (bool, error) {
		var visible int64
		err := scan(&visible)
		if left := time.Until(time.UnixMilli(visible)); left > 10*time.Minute || left < 9*time.Minute {
			t.Errorf("a message is visible in %s, want 10 min less than what has passed", left)
		}
		rows++
		return true, err
	})
	if err != nil || rows != 3 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// killSender runs a sender on path, kills it after some messages, and adds the ids of
// those that it accepted.
func killSender(t *testing.T, path, zone string, accepted map[string]bool) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), senderEnv+"="+path, "TZ="+zone)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killAfter := 1 + rand.IntN(150)
	lines := bufio.NewScanner(out)
	got := 0
	for ; lines.Scan(); got++ {
		accepted[lines.Text()] = true
		if got+1 == killAfter {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _ = cmd.Wait(); got < killAfter {
		t.Fatalf("the sender stopped by itself after %d messages", got)
	}
}

// C35: killed 50 times.
func TestKilledSenderLosesNoAcceptedMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	accepted := make(map[string]bool)
	for i := range 50 {
		killSender(t, path, []string{"America/New_York", "Asia/Kolkata", "UTC"}[i%3], accepted)
		checkIntegrity(t, path)
	}
	q := mustQueue(t, openFile(t, path, Options{}))
	received := make(map[string]bool)
	for {
		ms := receiveAll(t, q)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			if received[m.ID] {
				t.Errorf("message %s was received twice", m.ID)
			}
			received[m.ID] = true
		}
	}
	for id := range accepted {
		if !received[id] {
			t.Errorf("accepted message %s is lost", id)
		}
	}
	t.Logf("%d messages accepted, %d received", len(accepted), len(received))
}

func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var verdict string
	err = db.readRows(t.Context(), query{text: "PRAGMA integrity_check"}, func(scan func(...any) error) (bool, error) {
		return false, scan(&verdict)
	})
	if err != nil || verdict != "ok" {
		t.Errorf("integrity check: %q, %v", verdict, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// C35. TestTwoHandlesShareAFile is two processes with 16 workers each, as far as SQLite can
// tell: they share nothing but the file.
func TestTwoHandlesShareAFile(t *testing.T) {
	const handles, workers, senders, each = 2, 16, 8, 625 // 10,000 messages
	path := filepath.Join(t.TempDir(), "test.db")
	var (
		mu   sync.Mutex
		seen = make(map[string]int)
		sent atomic.Int64
		wg   sync.WaitGroup
	)
	for range handles {
		q := mustQueue(t, openFile(t, path, Options{}))
		mustSend(t, q, "first", queue.SendOptions{})
		sent.Add(1)
		for range senders {
			wg.Go(func() {
				for i := range each {
					if _, err := q.Send(t.Context(), fmt.Append(nil, i), queue.SendOptions{}); err != nil {
						t.Errorf("Send: %v", err)
						return
					}
					sent.Add(1)
				}
			})
		}
		for range workers {
			wg.Go(func() {
				for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
					ms, err := q.Receive(t.Context(), 4, 10*time.Minute)
					if err != nil {
						t.Errorf("Receive: %v", err)
						return
					}
					for _, m := range ms {
						if err := q.Complete(t.Context(), m); err != nil {
							t.Errorf("Complete: %v", err)
						}
					}
					mu.Lock()
					for _, m := range ms {
						seen[m.ID]++
					}
					done := len(seen) == handles*(senders*each+1)
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if int64(len(seen)) != sent.Load() {
		t.Errorf("%d messages were received, %d were sent", len(seen), sent.Load())
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("message %s was received %d times", id, n)
		}
	}
}
