package azuritetest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
)

// The emulator's account and key are public and the same everywhere. Source:
// Microsoft Learn, "Connect to Azurite".
const (
	account = "devstoreaccount1"
	key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azurite is a running emulator with one empty account.
type Azurite struct {
	// QueueURL and TableURL are the service addresses, account included and
	// without a slash at the end.
	QueueURL, TableURL string
	// Account and Key are the credentials.
	Account, Key string
}

// ConnectionString names both services, for the adapters.
func (a *Azurite) ConnectionString() string {
	return connectionString(a.QueueURL, a.TableURL)
}

func connectionString(queueURL, tableURL string) string {
	return fmt.Sprintf("AccountName=%s;AccountKey=%s;QueueEndpoint=%s;TableEndpoint=%s", account, key, queueURL, tableURL)
}

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// Emulators is how many a test binary can have. Each is one Node process, which keeps one
// processor busy at most.
const Emulators = 2

// shared start the emulators, each on its first call. They end with the test binary,
// because their standard input closes then.
var shared = [Emulators]func() (*Azurite, error){sync.OnceValues(start), sync.OnceValues(start)}

// Start returns the first emulator of this test binary. The first call installs and
// starts it.
func Start(t testing.TB) *Azurite {
	t.Helper()
	return StartOne(t, 0)
}

// StartOne is Start for the emulator of that number.
func StartOne(t testing.TB, number int) *Azurite {
	t.Helper()
	a, err := shared[number]()
	switch {
	case err == nil:
		return a
	case errors.Is(err, npmtest.ErrNoNode) && os.Getenv("CI") != "true":
		fmt.Fprintf(os.Stderr, "\n*** LEFT OUT: %s needs Azurite, and there is %v. Install Node 20 or later to run it. ***\n\n", t.Name(), err)
		t.Skipf("LEFT OUT: needs Azurite, and there is %v", err)
	default:
		t.Fatalf("Azurite: %v", err)
	}
	return nil
}

// AtOnce has so many parallel tests run at once, and not as many as there are processors: it is for the
// TestMain of a package whose tests mostly wait. What -parallel asks for goes before it.
func AtOnce(tests int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set(strconv.Itoa(tests))
	}
}

var names atomic.Int64

// Name returns prefix with a number that no other test of this binary has. It
// is good for a queue and for a table if prefix is.
func Name(prefix string) string {
	return fmt.Sprintf("%s%d", prefix, names.Add(1))
}

//go:embed server.js
var serverScript string

// startTimeout is generous: loading the modules takes 1.5 s on an idle machine.
const startTimeout = 90 * time.Second

func start() (*Azurite, error) {
	installed, err := npmtest.Tools{Name: "azurite", Package: packageJSON, Lock: packageLock}.Install()
	if err != nil {
		return nil, err
	}
	node, err := npmtest.Node()
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "pushlease-azurite-")
	if err != nil {
		return nil, err
	}
	// The script removes the folder when it ends.
	a, err := run(node, installed, data)
	if err != nil {
		os.RemoveAll(data)
		return nil, fmt.Errorf("start: %w", err)
	}
	return a, nil
}

// run leaves the process behind: it ends when the write end of its standard
// input closes, which the system does when this process ends.
func run(node, installed, data string) (*Azurite, error) {
	logName := filepath.Join(data, "stderr.log")
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(node, "-e", serverScript, installed, data)
	cmd.Dir = data
	cmd.Env = environment()
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tooSlow := time.AfterFunc(startTimeout, func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	tooSlow.Stop()
	var addresses struct{ Queue, Table string }
	if err == nil {
		err = json.Unmarshal(line, &addresses)
	}
	if err != nil {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
		said, _ := os.ReadFile(logName)
		return nil, fmt.Errorf("no address after at most %v: %w\n%s", startTimeout, err, said)
	}
	keepOpen.Lock()
	defer keepOpen.Unlock()
	keepOpen.pipes = append(keepOpen.pipes, stdin, stdout)
	return &Azurite{
		QueueURL: addresses.Queue + "/" + account,
		TableURL: addresses.Table + "/" + account,
		Account:  account,
		Key:      key,
	}, nil
}

// keepOpen holds the pipes to the emulators, which a finalizer would close.
var keepOpen struct {
	sync.Mutex
	pipes []io.Closer
}

// environment leaves out what would change the emulator's account or store.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AZURITE_") && !strings.HasPrefix(v, "NODE_OPTIONS=") {
			env = append(env, v)
		}
	}
	return env
}
