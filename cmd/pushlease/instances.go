package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// instanceRow is what is shown of a process.
type instanceRow struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Mode      string    `json:"mode"`
	Alive     bool      `json:"alive"`
	Ready     bool      `json:"ready"`
	Trouble   string    `json:"trouble"`
	InFlight  int       `json:"in_flight"`
	Queues    int       `json:"queues"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`

	Leases      int       `json:"leases"`
	Polled      []string  `json:"polled"`
	Lanes       int       `json:"lanes"`
	LaneStalls  int64     `json:"lane_stalls"`
	LastError   string    `json:"last_error"`
	LastErrorAt time.Time `json:"last_error_at"`
}

// wide are the cells of the further columns.
func (i instanceRow) wide() []string {
	polled := strings.Join(i.Polled, " ")
	if more := i.Queues - len(i.Polled); more > 0 && len(i.Polled) > 0 {
		polled += fmt.Sprintf(" and %d more", more)
	}
	last := ""
	if !i.LastErrorAt.IsZero() {
		last = clock(i.LastErrorAt) + " " + i.LastError
	}
	return []string{strconv.Itoa(i.Leases), fmt.Sprintf("%d (%d)", i.Lanes, i.LaneStalls), polled, last}
}

// state says how it fares in a word or two.
func (i instanceRow) state() string {
	switch {
	case i.SeenAt.IsZero(): // its row can't be read
		return i.Trouble
	case !i.Alive:
		return "not seen since " + clock(i.SeenAt)
	case !i.Ready:
		return "not ready: " + i.Trouble
	case i.Trouble != "":
		return "degraded: " + i.Trouble
	}
	return "ready"
}

func newInstancesCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "instances",
		Short: "List the processes that work on the same storage",
		Long: `Each process says once a minute that it is there, and how it fares: AS OF is when it last did.
One that was killed is told of for a day.

-o wide also says how many leases it keeps, how many transactions of records are under way and
how many had to begin beside late ones (LANES; on Azure only), which queues it receives from, and
what it logged last as an error.`,
		Example: "  pushlease instances\n  pushlease instances -o wide",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: "/api/v1/instances"})
			if err != nil {
				return err
			}
			if c.json() {
				return c.raw(cmd, a)
			}
			var list struct {
				Data []instanceRow `json:"data"`
			}
			if err := json.Unmarshal(a.body, &list); err != nil {
				return fmt.Errorf("the server's answer can't be read: %w", err)
			}
			heading := []string{"INSTANCE", "MODE", "VERSION", "STARTED", "QUEUES", "IN FLIGHT", "AS OF", "STATE"}
			if c.wide() {
				heading = append(heading, "LEASES", "LANES", "RECEIVES FROM", "LAST ERROR")
			}
			var cells [][]string
			for _, i := range list.Data {
				row := []string{i.Name, i.Mode, i.Version, clock(i.StartedAt), strconv.Itoa(i.Queues), strconv.Itoa(i.InFlight), clock(i.SeenAt), i.state()}
				if c.wide() {
					row = append(row, i.wide()...)
				}
				cells = append(cells, row)
			}
			return table(cmd.OutOrStdout(), heading, cells)
		},
	}
	c.addFlags(cmd)
	return cmd
}
