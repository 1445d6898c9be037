package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// nginx is the web server, which lets 20 POSTs a second through and answers 503 to the rest
// within a millisecond, without a word about when to come back.
type nginx struct {
	t       *testing.T
	dir     string
	address string
	cmd     *exec.Cmd
}

// newNginx starts one; burst is what its directive limit_req has beside the zone.
func newNginx(t *testing.T, burst string) *nginx {
	t.Helper()
	if _, err := exec.LookPath("nginx"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("nginx is missing, and CI has to check that a receiver with a limit gets its rate: apt-get install nginx")
		}
		t.Skip("A RECEIVER WITH A LIMIT IS NOT CHECKED: nginx is missing (apt-get install nginx)")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // its port is free when it closes
	if err != nil {
		t.Fatal(err)
	}
	n := &nginx{t: t, dir: t.TempDir(), address: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors.log crit;
events {}
http {
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	log_format posts '$msec $status';
	limit_req_zone $server_name zone=hooks:1m rate=20r/s;
	server {
		listen %[2]s; server_name limited; root %[1]s; access_log %[1]s/posts.log posts;
		location / { limit_req zone=hooks %[3]s; try_files /none @taken; }
		location @taken { return 200; }
	}
}
`, n.dir, n.address, burst)
	if err := os.WriteFile(filepath.Join(n.dir, "nginx.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.run()
	t.Cleanup(func() {
		n.stop()
		if text, err := os.ReadFile(filepath.Join(n.dir, "errors.log")); t.Failed() && err == nil {
			t.Logf("nginx: %s", text)
		}
	})
	return n
}

// run starts the program and waits for it to listen.
func (n *nginx) run() {
	n.t.Helper()
	n.cmd = exec.Command("nginx", "-e", "stderr", "-p", n.dir, "-c", filepath.Join(n.dir, "nginx.conf"))
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	waitUntil(n.t, 10*time.Second, func() string {
		conn, err := net.Dial("tcp", n.address)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close() // nothing was sent
		return ""
	})
}

func (n *nginx) stop() {
	_ = n.cmd.Process.Kill() // it may have ended
	_ = n.cmd.Wait()         // it was killed
}

// nginxPost is a line of its log.
type nginxPost struct {
	at     time.Time
	status int
}

func (n *nginx) posts() []nginxPost {
	n.t.Helper()
	file, err := os.Open(filepath.Join(n.dir, "posts.log"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	var posts []nginxPost
	for lines := bufio.NewScanner(file); lines.Scan(); {
		at, status, ok := strings.Cut(lines.Text(), " ")
		seconds, err := strconv.ParseFloat(at, 64)
		code, err2 := strconv.Atoi(status)
		if ok && err == nil && err2 == nil { // the last line may be half written
			posts = append(posts, nginxPost{time.UnixMilli(int64(seconds * 1000)), code})
		}
	}
	return posts
}

// between counts the POSTs of the time that begins after the first refusal; over tells
// whether that time has passed.
func (n *nginx) between(after, length time.Duration) (taken, refused int, over bool) {
	var from time.Time
	for _, p := range n.posts() {
		switch {
		case from.IsZero() && p.status == http.StatusServiceUnavailable:
			from = p.at.Add(after)
		case from.IsZero() || p.at.Before(from):
		case p.at.After(from.Add(length)):
			return taken, refused, true
		case p.status == http.StatusOK:
			taken++
		default:
			refused++
		}
	}
	return taken, refused, !from.IsZero() && time.Since(from) > length
}

// nginx refuses with 503 and names no wait. A backlog gets the rate of its limit all the
// same, few POSTs are refused, and no message is lost to the limit.
//
// No other test of this package runs beside it: how much is refused depends on POSTs that are sent in time.
func TestReceiverBehindNginxWithALimitGetsItsRate(t *testing.T) {
	const rate, learning, length = 20, 10 * time.Second, 25 * time.Second
	for name, tt := range map[string]struct {
		burst            string
		instances        int
		share, refusedAt float64
	}{
		// Without a burst it refuses whatever comes some ms too early, and a machine that runs other
		// tests beside is never punctual: docs/adr/0054-learned-rate.md has figures of a minute alone.
		"strictly":                      {"", 1, 0.8, 0.1},
		"with a burst":                  {"burst=20 nodelay", 1, 0.9, 0.1},
		"of two instances with a burst": {"burst=20 nodelay", 2, 0.75, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sqliteStore(t)
			in := newNginx(t, tt.burst)
			p := s.start(t)
			queue := queueName("nginx")
			h := p.register(queue, "http://"+in.address+"/hook", map[string]any{"flow": map[string]any{}})
			for range tt.instances - 1 {
				s.start(t)
			}
			p.publishMany(queue, 1500)
			waitUntil(t, learning+length+30*time.Second, func() string {
				if _, _, over := in.between(learning, length); !over {
					return "the time to judge by is not over"
				}
				return ""
			})
			taken, refused, _ := in.between(learning, length)
			_, st := p.status(h.ID)
			share, vain := float64(taken)/(rate*length.Seconds()), float64(refused)/float64(taken+refused)
			t.Logf("taken %.0f %% of the limit, %.1f %% refused; %s", 100*share, 100*vain, st.Text)
			if share < tt.share || vain > tt.refusedAt {
				t.Errorf("taken %d, refused %d: want %.0f %% of the limit, and at most %.0f %% refused", taken, refused, 100*tt.share, 100*tt.refusedAt)
			}
			if st.State != "limited" {
				t.Errorf("the state is %s: %s", st.State, st.Text)
			}
			p.expectNoDeadLetters(queue)
		})
	}
}

// Who looks after a limited webhook sees its learned rate in the status, in the list of all webhooks, and in the metrics.
func TestTheLearnedRateIsShownInStatusTopAndMetrics(t *testing.T) {
	t.Parallel()
	p := sqliteStore(t).start(t)
	var mu sync.Mutex
	var free time.Time
	in := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Before(free) {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			free = now.Add(50 * time.Millisecond)
		}
	}))
	t.Cleanup(in.Close)
	queue := queueName("limited")
	h := p.register(queue, in.URL, map[string]any{"flow": map[string]any{}})
	p.publishMany(queue, 300)
	st := p.waitStatus(20*time.Second, h.ID, "limited")
	if !strings.Contains(st.Text, "a second") || !strings.Contains(st.Text, "rate") {
		t.Errorf("the text names neither the rate nor what to set: %s", st.Text)
	}
	r, _ := runBinary(t, []string{"PUSHLEASE_SERVER=" + p.url}, "webhooks", "top", "--once")
	if seen := regexp.MustCompile(h.ID + ` .*limited \(([0-9.]+)/s\)`).FindStringSubmatch(r.out); r.code != exitOK || seen == nil {
		t.Errorf("top: %+v", r)
	} else if rate, err := strconv.ParseFloat(seen[1], 64); err != nil || rate <= 0 {
		t.Errorf("top shows a rate of %s", seen[1])
	}
	if rate := p.metric("pushlease_webhook_learned_rate", `queue="`+queue+`"`); rate <= 0 || rate > 1000 {
		t.Errorf("the metric is %v", rate)
	}
}
