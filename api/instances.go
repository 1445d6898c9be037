package api

import (
	"net/http"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// aliveFor is how long after it was last seen an instance counts as alive: three beats.
const aliveFor = 3 * time.Minute

// instanceView is one process on the storage.
type instanceView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Mode    string `json:"mode,omitempty"`
	Alive   bool   `json:"alive"`
	// This says that it is the one that answers.
	This     bool   `json:"this"`
	Ready    bool   `json:"ready"`
	Trouble  string `json:"trouble,omitempty"`
	InFlight int    `json:"in_flight"`
	Leases   int    `json:"leases"`
	Queues   int    `json:"queues"`
	// Polled are the first of these by name.
	Polled      []string        `json:"polled"`
	Lanes       int             `json:"lanes"`
	LaneStalls  int64           `json:"lane_stalls"`
	LastError   string          `json:"last_error,omitempty"`
	LastErrorAt time.Time       `json:"last_error_at,omitzero"`
	StartedAt   time.Time       `json:"started_at"`
	SeenAt      time.Time       `json:"seen_at"`
	ClockAhead  policy.Duration `json:"clock_ahead"`
}

// listInstances tells of all processes on the storage, the same from each of them.
func (a *API) listInstances(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	all, err := a.Instances.ListInstances(r.Context())
	if err != nil {
		return web.StorageFault("list the instances", err)
	}
	views := make([]instanceView, len(all))
	for k, i := range all {
		views[k] = instanceView{
			Name: i.Name, Version: i.Version, Mode: i.Mode, Alive: tables.Heard(i.SeenAt, time.Now(), aliveFor), This: i.Name == a.Instance,
			Ready: i.Ready, Trouble: i.Trouble, InFlight: i.InFlight, Leases: i.Leases, Queues: i.Queues, Polled: append([]string{}, i.Polled...),
			Lanes: i.Lanes, LaneStalls: i.LaneStalls, LastError: i.LastError, LastErrorAt: web.UTC(i.LastErrorAt),
			StartedAt: web.UTC(i.StartedAt), SeenAt: web.UTC(i.SeenAt), ClockAhead: policy.Duration(i.ClockAhead),
		}
	}
	return web.WriteJSON(w, http.StatusOK, struct {
		Data []instanceView `json:"data"`
	}{views})
}
