// Command sim runs the simulation with fresh seeds, or repeats a run.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/sim"
)

type options struct {
	seed     uint64
	seeds    int
	profile  string
	duration time.Duration
	messages int
	only     string
	verbose  bool
	worker   bool
	jobs     int
}

func main() {
	testing.Init()
	var o options
	flag.Uint64Var(&o.seed, "seed", 0, "the first seed; 0 for a fresh one")
	flag.IntVar(&o.seeds, "seeds", 0, "how many seeds; 0 for one with -seed, else as many as -duration allows")
	flag.StringVar(&o.profile, "profile", "", "run this profile alone: "+names())
	flag.DurationVar(&o.duration, "duration", 2*time.Minute, "how long to begin new runs")
	flag.IntVar(&o.messages, "messages", 0, "begin no new runs after so many messages; with it, -duration counts only when it is given")
	flag.StringVar(&o.only, "only", "", "the steps and faults to keep, as a failure prints them")
	flag.BoolVar(&o.verbose, "v", false, "print traces")
	flag.BoolVar(&o.worker, "worker", false, "run seeds and report in JSON, for the process that asks for it")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "processes at a time; each uses one processor")
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if given["messages"] && !given["duration"] {
		o.duration = 24 * 365 * time.Hour
	}
	if o.seeds == 0 && given["seed"] {
		o.seeds = 1
	}
	if o.worker {
		inTest(func(t *testing.T) { work(t, o) })
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) & 0x7fffffff
	}
	if o.only != "" || o.seeds == 1 && o.profile != "" {
		inTest(func(t *testing.T) { repeat(t, o) })
	}
	if !lead(o) {
		os.Exit(1)
	}
}

func names() string {
	var all []string
	for _, p := range sim.Profiles {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}

// inTest runs f as a test, since simulated time is for tests, and ends the process.
func inTest(f func(t *testing.T)) {
	match := func(string, string) (bool, error) { return true, nil }
	testing.Main(match, []testing.InternalTest{{Name: "sim", F: f}}, nil, nil)
}

// repeat is one run with its trace.
func repeat(t *testing.T, o options) {
	t.Helper()
	p, ok := sim.NewPlan(o.profile, o.seed)
	if !ok {
		t.Fatalf("there is no profile %q: use one of %s", o.profile, names())
	}
	if o.only != "" {
		p.Only = map[string]bool{}
		for id := range strings.SplitSeq(o.only, ",") {
			p.Only[id] = true
		}
	}
	r := sim.Run(t, p)
	if o.verbose {
		fmt.Println(strings.Join(r.Trace(), "\n"))
	}
	for _, f := range r.Findings {
		fmt.Println(f)
	}
	fmt.Printf("%s seed %d: %d messages, %d POSTs, %d storage calls, %d faults, %d crashes, %s of simulated time, %d findings\n",
		o.profile, o.seed, r.Messages, r.Posts, r.Calls, r.Faults, r.Crashes, r.Simulated.Round(time.Second), len(r.Findings))
	if len(r.Findings) > 0 {
		t.Fail()
	}
}

// report is what a worker says about one run.
type report struct {
	Profile                                 string
	Seed                                    uint64
	Messages, Posts, Calls, Faults, Crashes int
	Found                                   []string
	Replay                                  string
	Trace                                   []string
}

// work runs seeds one after the other.
func work(t *testing.T, o options) {
	t.Helper()
	out := json.NewEncoder(os.Stdout)
	for i := range o.seeds {
		seed := o.seed + uint64(i)
		p, ok := sim.NewPlan(o.profile, seed)
		if !ok {
			t.Fatalf("no profile %q", o.profile)
		}
		r := sim.Run(t, p)
		if len(r.Findings) > 0 {
			const bound = time.Minute
			r = sim.Shrink(t, r, r.Findings[0].Rule, bound)
		}
		line := report{
			Profile: o.profile, Seed: seed, Messages: r.Messages, Posts: r.Posts, Calls: r.Calls, Faults: r.Faults, Crashes: r.Crashes,
		}
		if len(r.Findings) > 0 {
			line.Replay, line.Trace = r.Replay(), r.Trace()
			for _, f := range r.Findings {
				line.Found = append(line.Found, f.String())
			}
		}
		_ = out.Encode(line) // the pipe's reader tells of its end
	}
}

// leader gives seeds to workers and adds up what they say.
type leader struct {
	o        options
	profiles []string
	until    time.Time

	mu     sync.Mutex
	next   int
	sum    report
	runs   map[string]int // by profile
	failed bool
}

// runBound bounds a run: a loop that spins keeps simulated time from going on.
const runBound = 10 * time.Minute

// lead is false when something new was found.
func lead(o options) bool {
	l := &leader{o: o, profiles: light(), until: time.Now().Add(o.duration), runs: map[string]int{}}
	if o.profile != "" {
		l.profiles = []string{o.profile}
	}
	fmt.Printf("seeds from %d\n", o.seed)
	var workers sync.WaitGroup
	for range max(1, o.jobs) {
		workers.Go(func() {
			for l.one() {
			}
		})
	}
	workers.Wait()
	runs := 0
	for _, n := range l.runs {
		runs += n
	}
	fmt.Printf("%d seeds of %d of %d profiles, %d messages, %d POSTs, %d storage calls, %d faults, %d crashes\n",
		runs, len(l.runs), len(l.profiles), l.sum.Messages, l.sum.Posts, l.sum.Calls, l.sum.Faults, l.sum.Crashes)
	if runs == 0 {
		l.fail("no run came to its end")
	}
	return !l.failed
}

// take gives out the next seed, of each profile in turn. Which comes first depends on the seed: there may be time
// for some of them only.
func (l *leader) take() (profile string, seed uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.next
	l.next++
	round := n / len(l.profiles)
	over := l.o.seeds > 0 && round >= l.o.seeds || !time.Now().Before(l.until) || l.o.messages > 0 && l.sum.Messages >= l.o.messages
	first := int(l.o.seed % uint64(len(l.profiles)))
	return l.profiles[(first+n)%len(l.profiles)], l.o.seed + uint64(round), !over
}

// one runs a seed; it is false when there is nothing more to do.
func (l *leader) one() bool {
	profile, seed, ok := l.take()
	if !ok {
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		l.fail(err.Error())
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), runBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-worker", "-profile", profile, "-seed", strconv.FormatUint(seed, 10), "-seeds", "1") //nolint:gosec // itself
	var broken bytes.Buffer
	cmd.Stderr = &broken
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.fail(err.Error())
		return false
	}
	l.read(out)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it took longer than %s", runBound)
		}
		l.fail(fmt.Sprintf("the process of profile %s, seed %d: %v\n%s", profile, seed, err, broken.String()))
	}
	return true
}

// light are the profiles that are run when none is named.
func light() []string {
	var all []string
	for _, p := range sim.Profiles {
		if !p.Heavy {
			all = append(all, p.Name)
		}
	}
	return all
}

// read takes a worker's reports.
func (l *leader) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // what the testing package says
		}
		l.add(r)
	}
}

func (l *leader) add(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r.Profile]++
	l.sum.Messages += r.Messages
	l.sum.Posts += r.Posts
	l.sum.Calls += r.Calls
	l.sum.Faults += r.Faults
	l.sum.Crashes += r.Crashes
	if l.o.verbose {
		fmt.Printf("%s seed %d: %d messages, %d faults, %d crashes, %d findings\n", r.Profile, r.Seed, r.Messages, r.Faults, r.Crashes, len(r.Found))
	}
	if len(r.Found) == 0 {
		return
	}
	l.failed = true
	fmt.Printf("FAILED: profile %s, seed %d\n", r.Profile, r.Seed)
	for _, line := range r.Trace {
		fmt.Println("  " + line)
	}
	for _, f := range r.Found {
		fmt.Println("  " + f)
	}
	fmt.Println("repeat it with: " + r.Replay)
}

func (l *leader) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = true
	fmt.Println(text)
}
