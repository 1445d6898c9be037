// Command sim runs the simulation with fresh seeds, or repeats a run.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	Begins                                  bool
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
		_ = out.Encode(report{Profile: o.profile, Seed: seed, Begins: true}) // the pipe's reader tells of its end
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
		_ = out.Encode(line)
	}
}

// leader gives seeds to workers and adds up what they say.
type leader struct {
	o     options
	until time.Time

	mu     sync.Mutex
	next   int
	sum    report
	runs   int
	failed bool
}

const seedsAtOnce = 3

// lead is false when something new was found.
func lead(o options) bool {
	l := &leader{o: o, until: time.Now().Add(o.duration)}
	fmt.Printf("seeds from %d\n", o.seed)
	var workers sync.WaitGroup
	for range max(1, o.jobs) {
		workers.Go(func() {
			for l.batch() {
			}
		})
	}
	workers.Wait()
	fmt.Printf("%d seeds, %d messages, %d POSTs, %d storage calls, %d faults, %d crashes\n",
		l.runs, l.sum.Messages, l.sum.Posts, l.sum.Calls, l.sum.Faults, l.sum.Crashes)
	if l.runs == 0 {
		l.fail("no run came to its end")
	}
	return !l.failed
}

// batch runs some seeds of one profile; it is false when there is nothing more to do.
func (l *leader) batch() bool {
	l.mu.Lock()
	profiles := light()
	if l.o.profile != "" {
		profiles = []string{l.o.profile}
	}
	n := l.next
	seeds := seedsAtOnce
	if l.o.seeds > 0 {
		seeds = min(seedsAtOnce, l.o.seeds-n/len(profiles)*seedsAtOnce)
	}
	over := seeds <= 0 || !time.Now().Before(l.until) || l.o.messages > 0 && l.sum.Messages >= l.o.messages
	l.next++
	l.mu.Unlock()
	if over {
		return false
	}
	profile, first := profiles[n%len(profiles)], l.o.seed+uint64(n/len(profiles)*seedsAtOnce)
	exe, err := os.Executable()
	if err != nil {
		l.fail(err.Error())
		return false
	}
	cmd := exec.CommandContext(context.Background(), exe, "-worker", "-profile", profile, "-seed", strconv.FormatUint(first, 10), "-seeds", strconv.Itoa(seeds)) //nolint:gosec // itself
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
	last := l.read(out)
	if err := cmd.Wait(); err != nil {
		l.fail(fmt.Sprintf("the process of profile %s from seed %d on ended at seed %d: %v\n%s", profile, first, last.Seed, err, broken.String()))
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

// read takes a worker's reports and returns the last one.
func (l *leader) read(out interface{ Read([]byte) (int, error) }) (last report) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // what the testing package says
		}
		if last = r; !r.Begins {
			l.add(r)
		}
	}
	return last
}

func (l *leader) add(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
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
