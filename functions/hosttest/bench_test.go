package hosttest

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/internal/azuritetest"
)

var otherProgram = flag.String("program", "", "BenchmarkMessagesThroughTheHost: a program to measure too, such as one of another commit")

// byHand is a custom handler as one writes it without pushlease: it POSTs the message and tells the host how that ended. It keeps no
// records.
type byHand struct {
	target string
	client *http.Client
}

func (b byHand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var invocation struct{ Data struct{ Message []byte } }
	err := json.NewDecoder(r.Body).Decode(&invocation)
	var answer *http.Response
	if err == nil {
		answer, err = b.client.Post(b.target, "application/json", bytes.NewReader(invocation.Data.Message))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	if err != nil || answer.StatusCode/100 != 2 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"Outputs":{},"Logs":[],"ReturnValue":null}`)
}

// counting is a receiver that answers after a while.
type counting struct {
	delay time.Duration
	mu    sync.Mutex
	times []time.Time
}

func (c *counting) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c.mu.Lock()
	c.times = append(c.times, time.Now())
	c.mu.Unlock()
	time.Sleep(c.delay)
}

func (c *counting) came() (n int, first, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.times); n > 0 {
		first, last = c.times[0], c.times[n-1]
	}
	return n, first, last
}

// BenchmarkMessagesThroughTheHost drains a queue of b.N messages through the packaged limits of the host, 24 at a time: by this commit's program, by another
// one, and by a handler written by hand. What it says is about the fake, on one machine; the host itself takes more of a processor.
//
//	go test ./functions/hosttest -run '^$' -bench Through -benchtime 2000x -count 5 [-program FILE]
func BenchmarkMessagesThroughTheHost(b *testing.B) {
	program := filepath.Join(b.TempDir(), "pushlease")
	build := exec.Command("go", "build", "-o", program, "../../cmd/pushlease")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	standin, err := azurestandin.Start(b.Context(), 5*time.Millisecond)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = standin.Close() })
	for storage, connection := range map[string]string{"azurite": azuritetest.Start(b).ConnectionString(), "standin 5ms": standin.ConnectionString()} {
		for _, delay := range []time.Duration{0, 50 * time.Millisecond} {
			name := fmt.Sprintf("%s/receiver %s/", storage, delay)
			b.Run(name+"by hand", func(b *testing.B) { drain(b, connection, "", delay) })
			b.Run(name+"pushlease", func(b *testing.B) { drain(b, connection, program, delay) })
			if *otherProgram != "" {
				b.Run(name+"other program", func(b *testing.B) { drain(b, connection, *otherProgram, delay) })
			}
		}
	}
}

// drain measures from the first POST to the last, and the processor time until the queue is empty.
func drain(b *testing.B, connection, program string, delay time.Duration) {
	receiver := &counting{delay: delay}
	server := httptest.NewServer(receiver)
	b.Cleanup(server.Close)
	name := azuritetest.Name("bench")
	o := Options{Storage: connection, Env: []string{"TEST_POSTS_TO=" + server.URL}}
	if program == "" {
		o.Root = handled(b, "00:05:00", name)
	} else {
		token := "token-of-the-benchmark"
		sum := sha256.Sum256([]byte(token))
		o.Root = unpacked(b, program, name)
		o.Env = []string{"PUSHLEASE_DEV=true", "PUSHLEASE_TABLE_PREFIX=" + azuritetest.Name("bench"), "PUSHLEASE_API_KEYS=b:admin:" + hex.EncodeToString(sum[:])}
		h := Start(b, o)
		register(b, h, token, name, server.URL)
		h.Stop()
	}
	client := fill(b, connection, name, b.N)
	h := Start(b, o)
	waitUntil(b, time.Minute, "the first POST", func() bool { n, _, _ := receiver.came(); return n > 0 })
	before := processor(b, h.Pid())
	waitUntil(b, 10*time.Minute, "all POSTs", func() bool { n, _, _ := receiver.came(); return n >= b.N })
	waitUntil(b, time.Minute, "an empty queue", func() bool {
		p, err := client.GetProperties(b.Context(), nil)
		return err == nil && *p.ApproximateMessagesCount == 0
	})
	n, first, last := receiver.came()
	if h.Stopped() != nil || n != b.N {
		b.Errorf("%d POSTs of %d messages; %v", n, b.N, h.Stopped())
	}
	b.ReportMetric(float64(n-1)/max(last.Sub(first).Seconds(), 1e-9), "messages/s")
	b.ReportMetric((processor(b, h.Pid())-before)/float64(n)*1000, "cpu-s/1000")
	b.ReportMetric(0, "ns/op")
	h.Stop()
}

// register registers a webhook through the host as soon as the program serves.
func register(b *testing.B, h *Host, token, queue, target string) {
	waitUntil(b, time.Minute, "a registered webhook", func() bool {
		body := strings.NewReader(fmt.Sprintf(`{"queue":%q,"url":%q}`, queue, target))
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, h.URL()+"/api/v1/webhooks", body)
		if err != nil {
			b.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}, "X-Functions-Key": {FunctionKey}}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusCreated
	})
}

// fill makes the queue with n messages of 1 KiB.
func fill(b *testing.B, connection, name string, n int) *azqueue.QueueClient {
	service, err := queueService(connection)
	if err != nil {
		b.Fatal(err)
	}
	client, text := service.NewQueueClient(name), strings.Repeat("0123456789abcdef", 64)
	_, err = client.Create(b.Context(), nil)
	var senders sync.WaitGroup
	var mu sync.Mutex
	for s := range 16 {
		senders.Go(func() {
			for i := s; i < n; i += 16 {
				_, failed := client.EnqueueMessage(b.Context(), text, nil)
				mu.Lock()
				err = cmp.Or(err, failed)
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	if err != nil {
		b.Fatal(err)
	}
	return client
}

// unpacked is the folder of a program's package.
func unpacked(b *testing.B, program, queue string) (root string) {
	root = b.TempDir()
	file := filepath.Join(root, "app.zip")
	if text, err := exec.Command(program, "functions", "package", "--binary", program, "--queue", queue, "--out", file).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	z, err := zip.OpenReader(file)
	if err == nil {
		root = filepath.Join(root, "app")
		err = os.CopyFS(root, z)
		_ = z.Close()
	}
	if err == nil {
		err = os.Chmod(filepath.Join(root, "pushlease"), 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	return root
}

// processor is how many seconds of a processor a process has taken, by Linux's count.
func processor(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // in user mode, and in the kernel
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100
}
