package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Probe is what one look at storage found.
type Probe struct {
	Name string
	OK   bool
	// Unknown says that it is OK only because it could not be looked at.
	Unknown bool
	// Warning says that it is not OK, but works as yet.
	Warning bool
	Detail  string
	// Cure says what to do; empty when OK.
	Cure string
}

// CheckStorage looks whether the storage of cfg can be used, by calls that only
// read: nothing is created, sent or deleted, and no message is received.
func CheckStorage(ctx context.Context, cfg config.Config) []Probe {
	if cfg.Storage.Kind() == config.StorageSQLite {
		return []Probe{checkFile(ctx, cfg.Storage.Path())}
	}
	s, err := openStores(ctx, cfg, Outside{}, slog.New(slog.DiscardHandler), noop.Meter{}, nil, nil)
	if err != nil {
		return []Probe{{Name: "storage", Detail: err.Error(), Cure: "correct the setting storage"}}
	}
	defer func() { _ = s.close(ctx) }() // nothing was written
	queues := Probe{Name: "queue service", OK: true}
	if names, err := s.queues.List(ctx); err != nil {
		queues = failedProbe(queues.Name, err, "Storage Queue Data Contributor")
	} else {
		queues.Detail = fmt.Sprintf("can be reached; %d queues", len(names))
	}
	rows := Probe{Name: "table service", OK: true}
	if all, bad, err := s.tables.ListWebhooks(ctx); err != nil {
		rows = failedProbe(rows.Name, err, "Storage Table Data Contributor")
	} else {
		rows.Detail = fmt.Sprintf("can be reached; %d webhooks registered", len(all))
		if len(bad) > 0 {
			rows.OK, rows.Detail = false, fmt.Sprintf("%d registered webhooks can't be read", len(bad))
			rows.Cure = "delete them and register them again"
		}
	}
	return append(sasProbes(s.sasFaults(time.Now())), queues, rows, clockProbe(s.clockAhead()))
}

// sasProbes are sasCheck for doctor.
func sasProbes(faults []azureconn.Right) []Probe {
	var probes []Probe
	for _, f := range faults {
		probes = append(probes, Probe{Name: "storage's signature", Warning: f.Warning, Detail: f.Text, Cure: f.Cure})
	}
	return probes
}

// clockNotice is how far the clock may be off storage's before doctor says so: two that are off as far, one ahead and one
// behind, are still good.
const clockNotice = tables.ClocksApart / 2

// clockProbe is clockCheck for doctor, which says so earlier.
func clockProbe(ahead time.Duration, known bool) Probe {
	switch {
	case !known:
		return Probe{Name: "storage's clock", OK: true, Unknown: true, Detail: "storage has not said what time it is"}
	case ahead.Abs() > clockNotice:
		return Probe{Name: "storage's clock", Detail: clocksDiffer(ahead), Cure: "synchronise this machine's clock (NTP): receivers refuse signatures whose time is minutes off"}
	}
	return Probe{Name: "storage's clock", OK: true, Detail: "this machine's clock agrees with storage's"}
}

// failedProbe says what to do about err, as far as it tells.
func failedProbe(name string, err error, role string) Probe {
	p := Probe{Name: name, Detail: err.Error(), Cure: "check the account's name, its firewall and the network"}
	var token *azureconn.TokenRefusedError
	switch {
	case refusedByEmulator(err):
		p.Cure = "Azurite, the emulator of Azure Storage, seems not to run here: start it (npx azurite, or docker run -p 10000-10002:10000-10002 mcr.microsoft.com/azure-storage/azurite), or set storage to an account or a file"
	case errors.As(err, &token):
		p.Cure = "the identity was refused before storage was asked: check that a managed identity is assigned to this app or machine, that managed_identity_client_id (or AZURE_CLIENT_ID) names one that is, and that what AZURE_TENANT_ID and AZURE_CLIENT_SECRET say is in force"
		if token.Status == http.StatusForbidden || token.Status == http.StatusUnauthorized {
			p.Cure += "; 403 also means that the tenant's policies, or a proxy in front of the token service, forbid the sign-in from here"
		}
	case errors.Is(err, tables.ErrVanished):
		p.Cure = "register them again; those that are to be gone, delete: pushlease webhooks delete ID"
	case errors.Is(err, queue.ErrDenied), errors.Is(err, tables.ErrDenied):
		p.Cure = "check the key, or give the identity the role " + role + " on the account, which takes a few minutes to be in force; the account's firewall and a clock that is wrong answer so too"
	}
	return p
}

// refusedByEmulator reports whether nobody listens at an address that Azurite has by
// default: a loopback one with the port 10000, 10001 or 10002.
func refusedByEmulator(err error) bool {
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Addr == nil {
		return false
	}
	at, err := netip.ParseAddrPort(op.Addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback() && at.Port() >= 10000 && at.Port() <= 10002
}

// sqliteMagic begins every SQLite database.
const sqliteMagic = "SQLite format 3\x00"

func checkFile(ctx context.Context, path string) Probe {
	p := Probe{Name: "storage file"}
	f, err := os.Open(path) //nolint:gosec // the operator's own setting
	saved := sqlite.Rescued(path)
	if errors.Is(err, fs.ErrNotExist) && len(saved) > 0 {
		p.Detail = path + " is not there, but " + saved[len(saved)-1] + " is, which was saved when the file was taken away"
		p.Cure = "rename it to " + path + " to go on with it, or move it elsewhere to begin with an empty file"
		return p
	}
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			p.Detail, p.Cure = "the folder of "+path+" does not exist", "create the folder, or set storage to a file elsewhere"
			return p
		}
		p.OK, p.Detail = true, path+" does not exist yet; serve creates it"
		return writable(ctx, path, p)
	}
	if err != nil {
		p.Detail, p.Cure = err.Error(), "give this user the right to read and write the file"
		return p
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, len(sqliteMagic))
	if n, _ := f.Read(head); n > 0 && string(head[:n]) != sqliteMagic { // an empty file is a new database
		p.Detail, p.Cure = path+" is not a SQLite database", "set storage to another file"
		return p
	}
	p.OK, p.Detail = true, path+" is a SQLite database"
	if len(saved) > 0 {
		p.OK, p.Detail = false, "beside "+path+" lies "+saved[len(saved)-1]+", which was saved when the file was taken away: it may hold messages that the file lacks"
		p.Cure = "put it in the place of " + path + " while nothing is running, or move it elsewhere when it is not needed"
		return p
	}
	return writable(ctx, path, p)
}

// writable is p, or what keeps a server from the file, whose text has the cure.
func writable(ctx context.Context, path string, p Probe) Probe {
	if err := sqlite.Obstacle(ctx, path); err != nil {
		p.OK, p.Detail, p.Cure = false, err.Error(), "see to that before the start: as long as it is so nothing can be published, received or settled"
	}
	return p
}
