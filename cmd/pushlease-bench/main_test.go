package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// roleEnv makes the test binary the program itself: it starts itself in its roles.
const roleEnv = "BENCH_TEST_ROLES"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil && os.Getenv(roleEnv) == "yes" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	_ = os.Setenv(roleEnv, "yes") // for the children
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// program runs one command line.
func program(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// serverBinary is the server, built once for all tests but one, which has it built for itself; TestMain removes it.
var serverBinary = sync.OnceValues(func() (path string, err error) {
	if builtIn, err = os.MkdirTemp("", "pushlease-bench-test-"); err != nil {
		return "", err
	}
	return build(context.Background(), builtIn)
})

// builtIn is the folder of serverBinary; empty when that was not built.
var builtIn string

// quick runs a quick measurement, with what it reports in a file.
func quick(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	server, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	return program(t, append([]string{"--quick", "--server-binary", server, "--json", path}, args...)...)
}

func TestNeighboursAreMeasuredInPairs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	code, out, errs := quick(t, path, "--count", "450", "--scenarios", "neighbours")
	if code != exitOK {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	r, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"neighbours.hanging": "alone", "neighbours.busy.cpu": "alone", "neighbours.hanging_apart.p99": "alone", "neighbours.50_of_500": "450",
	} {
		if f := r.find(name); f == nil || len(f.Ratios) != 1 || f.Ratios[0].To != to || f.Ratios[0].Median <= 0 {
			t.Errorf("figure %s = %+v, want a ratio to %s", name, f, to)
		}
	}
}

func TestALimitedReceiverIsMeasuredBesideANaiveConsumer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	code, out, errs := quick(t, path, "--scenarios", "limited")
	if code != exitOK {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	r, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"limited.20.server", "limited.20.naive", "limited.500.server", "limited.500.naive"} {
		if f := r.find(name); f == nil || len(f.Ratios) != 1 || f.Ratios[0].To != "the limit" || f.Median <= 0 || f.Ratios[0].Median > 1.5 {
			t.Errorf("figure %s = %+v, want a ratio to the limit", name, f)
		}
	}
	if f := r.find("limited.20.naive.refused"); f == nil || f.Median < 10 {
		t.Errorf("a naive consumer of 64 workers is refused %+v %% of its POSTs by a limit of 20/s", f)
	}
}

func TestAMeasurementGivesRatiosAndAReportThatCanBeCompared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	code, out, errs := program(t, "--quick", "--count", "100", "--scenarios", "drain,latency,start,recovery,idle", "--json", path)
	if code != exitOK {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"drain.raw", "drain.ideal", "drain.server", "drain.fan3", "latency.idle.p50", "latency.load50.p999",
		"start.answer", "recovery.drained", "drain.transactions.queue complete", "drain.goroutines",
	} {
		if f := r.find(name); f == nil || f.Median <= 0 {
			t.Errorf("figure %s = %+v, want more than nothing", name, f)
		}
	}
	if f := r.find("drain.server"); f == nil || len(f.Ratios) != 2 || f.Ratios[0].Median <= 0 {
		t.Errorf("the server's rate has no ratios to raw and ideal: %+v", f)
	}
	if f := r.find("drain.transactions.queue complete"); f != nil && f.Median != 1000 {
		t.Errorf("%v deletes for 1,000 messages", f.Median)
	}
	for _, want := range []string{"of raw", "of ideal", "least … most", "too few messages to judge the targets"} {
		if !strings.Contains(out, want) {
			t.Errorf("the text has no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\ntargets\n") {
		t.Errorf("a quick run judges targets:\n%s", out)
	}
	code, out, errs = program(t, "--compare", path, path)
	if code != exitOK || !strings.Contains(out, "drain.server") || !strings.Contains(out, "ratio to ideal") || !strings.Contains(out, "+0 %") {
		t.Errorf("compare: exit %d, %s\n%s", code, errs, out)
	}
}

func TestTheStandInCountsWhatTheServerCounts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	code, out, errs := quick(t, path, "--count", "100", "--storage", "standin", "--latency", "1ms", "--limits", "none", "--scenarios", "drain,latency",
		"--peer", `naive=env `+storageEnv+`="$PEER_STORAGE" `+roleEnv+`=yes `+os.Args[0]+` consume -url "$PEER_URL" -queue "$PEER_QUEUE" -count 100 -workers 8 -size 1024`)
	if code != exitOK {
		t.Fatalf("exit %d: %s\n%s", code, errs, out)
	}
	r, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	deletes, ideal := r.find("drain.wire.queue delete"), r.find("drain.wire.ideal.queue delete")
	if deletes == nil || deletes.Median != 1000 || ideal == nil || ideal.Median != 1000 {
		t.Errorf("deletes for 1,000 messages on the wire: %+v; of the ideal consumer: %+v", deletes, ideal)
	}
	if naive, server := r.find("drain.peer.naive"), r.find("drain.server"); naive == nil || naive.Median <= 0 || server == nil ||
		!slices.ContainsFunc(server.Ratios, func(to ratio) bool { return to.To == "naive" && to.Median > 0 }) {
		t.Errorf("a peer has %+v, and the server %+v", naive, server)
	}
	published, stored := r.find("trickle.published"), r.find("trickle.stored")
	if published == nil || stored == nil || stored.Median < 2 || published.Median < stored.Median+0.5 {
		t.Errorf("a message that comes alone costs %+v, and %+v when it is published through the API", stored, published)
	}
}

func TestAPeerThatEndsIsSaid(t *testing.T) {
	t.Parallel()
	run := drainInProcess(t, options{Storage: standinStorage})
	run.Count = 10
	if _, err := run.drainByPeer(t.Context(), peer{"p", "echo no such setting"}); err == nil || !strings.Contains(err.Error(), "it ended, and said\nno such setting") {
		t.Errorf("a peer that ended at once: %v", err)
	}
}

// Each target is judged only by a run that can meet it.
func TestTargetsAreOfWhatIsMeasured(t *testing.T) {
	limit := func(o options, figure, to string) (limit float64) {
		for _, b := range bounds(o) {
			if b.figure == figure && b.to == to {
				limit = b.limit
			}
		}
		return limit
	}
	file := options{Storage: sqliteStorage, Size: 1024, Concurrency: 64}
	standin := file
	standin.Storage, standin.Limits, standin.Latency = standinStorage, noLimits, 5*time.Millisecond
	throttled := standin
	throttled.Limits = publishedLimits
	slow := file
	slow.Delay, slow.Concurrency = 50*time.Millisecond, 256
	for _, tt := range []struct {
		o          options
		figure, to string
		want       float64
	}{
		{file, "drain.server", "ideal", 0.75}, {file, "drain.server", "raw", 0.4}, {file, "drain.cpu.server", "ideal", 1.4},
		{standin, "drain.server", "ideal", 0.85}, {standin, "drain.server", "raw", 0}, {standin, "drain.wire", "", 1100},
		{throttled, "drain.server", "ideal", 0}, {throttled, "drain.wire", "", 1100}, {throttled, "idle.queue receive", "", 13},
		{slow, "drain.server", "ideal", 0}, {slow, "drain.server", "its slots", 0.9},
	} {
		if got := limit(tt.o, tt.figure, tt.to); got != tt.want {
			t.Errorf("%+v: %s to %q is judged by %v, want %v", tt.o, tt.figure, tt.to, got, tt.want)
		}
	}
}

func TestWrongUseIsSaid(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--scenarios", "speed"}, "speed"},
		{[]string{"--latency", "5ms"}, "--storage standin"},
		{[]string{"--peer", "naive=true"}, "--storage standin"},
		{[]string{"--peer", "naive"}, "name=command"},
		{[]string{"--limits", "none"}, "--storage standin"},
		{[]string{"--storage", "standin", "--limits", "some"}, "published or none"},
		{[]string{"--size", "10"}, "--size"},
		{[]string{"--rounds", "0"}, "--rounds"},
		{[]string{"--compare", "one.json"}, "two files"},
		{[]string{"--set", "concurrency"}, "name=value"},
		{[]string{"--receiver-answers", "200,42"}, "42"},
		{[]string{"more"}, "more"},
	} {
		code, _, errs := program(t, tt.args...)
		if code != exitUsage || !strings.Contains(errs, tt.want) {
			t.Errorf("%v: exit %d, %q; want %d and %q", tt.args, code, errs, exitUsage, tt.want)
		}
	}
	if code, _, errs := program(t, "--compare", "missing.json", "missing.json"); code != exitFailed || errs == "" {
		t.Errorf("a missing report: exit %d, %q", code, errs)
	}
}

func TestHelpTeaches(t *testing.T) {
	code, out, _ := program(t, "--help")
	if code != exitOK {
		t.Fatalf("exit %d", code)
	}
	for _, name := range append(append([]string{"raw", "ideal", "--compare", "-max-depth"}, usualScenarios...), growthScenarios...) {
		if !strings.Contains(out, name) {
			t.Errorf("the help does not tell about %s", name)
		}
	}
}

func TestABodySaysWhenItWasMade(t *testing.T) {
	made := time.Now()
	body := newBody(1024, made)
	if len(body) != 1024 || !json.Valid(body) {
		t.Errorf("body of %d bytes, JSON: %t", len(body), json.Valid(body))
	}
	if got, ok := stamp(body); !ok || got != made.UnixNano() {
		t.Errorf("stamp = %d, %t; want %d", got, ok, made.UnixNano())
	}
	if _, ok := stamp([]byte(`{"a":1}`)); ok {
		t.Error("a foreign body has a stamp")
	}
}

func TestSpreadsAndQuantiles(t *testing.T) {
	var s spread
	for _, v := range []float64{3, 1, 2, 10} {
		s.add(v)
	}
	if s.Min != 1 || s.Median != 2.5 || s.Max != 10 {
		t.Errorf("spread = %+v", s)
	}
	var nanos []int64
	for i := range 1000 {
		nanos = append(nanos, int64(1000-i)*int64(time.Millisecond))
	}
	if q := quantilesOf(nanos); q.P50 != 501 || q.P99 != 991 || q.P999 != 1000 || q.Max != 1000 {
		t.Errorf("quantiles = %+v", q)
	}
}

func TestMetricsAreReadByLabel(t *testing.T) {
	m, err := parseMetrics(strings.NewReader(`# HELP x y
go_goroutines 42
pushlease_storage_transactions_total{operation="complete",service="queue"} 7
pushlease_storage_transactions_total{operation="record",service="table"} 3
pushlease_storage_transactions_total{operation="complete",service="queue",more="x"} 1
other_total{operation="complete",service="queue"} 99
`))
	if err != nil || m.goroutines != 42 || m.transactions["queue complete"] != 8 || m.transactions["table record"] != 3 || len(m.transactions) != 2 {
		t.Errorf("metrics = %+v, %v", m, err)
	}
}

func TestTargetsAreJudgedInTheirDirection(t *testing.T) {
	r := newReport(options{})
	r.add("a", "", 5)
	r.relate("a", "b", 5, 10)
	r.judge([]bound{
		{"a", "", true, 5, "at least 5"}, {"a", "", false, 4, "at most 4"}, {"a", "b", false, 0.6, "ratio at most 0.6"},
		{"a", "b", true, 0.6, "ratio at least 0.6"}, {"none", "", true, 1, "not measured"},
	})
	want := []bool{true, false, true, false}
	if len(r.Targets) != len(want) {
		t.Fatalf("%d targets, want %d", len(r.Targets), len(want))
	}
	for i, w := range want {
		if r.Targets[i].Met != w {
			t.Errorf("%s: met %t", r.Targets[i].Text, r.Targets[i].Met)
		}
	}
}
