package azuretable

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

func someFirstSuccess(id string) (tables.Delivery, tables.Attempt) {
	at := time.Now().UTC().Truncate(time.Millisecond)
	a := tables.Attempt{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: id, Day: at}, WebhookID: "wh_1", Number: 1, StartedAt: at,
		Duration: time.Millisecond, Status: 200, Action: policy.Complete, Reason: policy.Delivered, Charged: true, Instance: "a",
	}
	return a.Completed(&tables.Delivery{UpdatedAt: at.Add(time.Millisecond), Encoding: "none", Size: 2, BodyHash: "0123456789abcdef"}), a
}

// A transaction has 100 rows, and one for each message that was taken at once.
func TestAFirstSuccessIsOneRow(t *testing.T) {
	s := &Store{names: names{prefix: "t", partitions: 1}}
	d, a := someFirstSuccess("m")
	_, rows, index, err := s.encodeRecord(tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v, want one", len(rows), err)
	}
	alone := attemptColumns(a)
	for _, r := range index { // what lists show of it is what they showed
		if string(r.row.Columns) != string(alone.json) {
			t.Errorf("the index has\n%s, want\n%s", r.row.Columns, alone.json)
		}
	}
	failed := d
	failed.State = tables.Pending
	if _, rows, _, err := s.encodeRecord(tables.Record{Deliveries: []tables.Delivery{failed}, Attempts: []tables.Attempt{a}}); err != nil || len(rows) != 2 {
		t.Errorf("%d rows of another state, %v, want two: the delivery goes on", len(rows), err)
	}
}

// An older version wrote a row each, and may write on beside this one.
func TestAFirstSuccessOfAnOlderVersionIsRead(t *testing.T) {
	cfg, err := azureconn.Parse(azuritetest.Start(t).ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{Prefix: azuritetest.Name("t")})
	if err != nil {
		t.Fatal(err)
	}
	d, a := someFirstSuccess("m")
	dc, ac := deliveryColumns(d), attemptColumns(a)
	p := commit.Partition{Table: s.logTable(day(d.Day)), Key: s.logPartition("m")}
	apart := []commit.Row{{PK: p.Key, RK: deliveryKey(d), Columns: dc.json}, {PK: p.Key, RK: attemptKey(a), Columns: ac.json}}
	if err := s.commits.Commit(t.Context(), p, apart, nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"as it was written", "and written again by this version"} {
		ds, as, err := s.Message(t.Context(), "orders", "m")
		if diff := cmp.Diff([]tables.Delivery{d}, ds) + cmp.Diff([]tables.Attempt{a}, as); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", step, err, diff)
		}
		loaded, err := s.Load(t.Context(), d.MessageKey)
		if diff := cmp.Diff([]tables.Delivery{d}, loaded); err != nil || diff != "" {
			t.Errorf("%s, loaded: %v (-want +got)\n%s", step, err, diff)
		}
		if err := s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}, Attempts: []tables.Attempt{a}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An older version asks a delivery for these columns, and takes one of another type for damage.
func TestAnOlderVersionReadsAFirstSuccessAsDelivered(t *testing.T) {
	d, a := someFirstSuccess("m")
	c, _ := completedColumns(d, a)
	r, err := c.row("s0", completedKey(d))
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEntity(rowJSON(r))
	if err != nil {
		t.Fatal(err)
	}
	e.columns["Number"] = nil // which it does not ask for
	e.rk = deliveryKey(d)     // of which it reads the beginning
	got := e.delivery()
	if err := e.damage(); err != nil || got.State != tables.Delivered || got.WebhookID != d.WebhookID || got.Attempts != 1 || got.UpdatedAt != d.UpdatedAt || !strings.HasPrefix(r.RK, e.rk) {
		t.Errorf("it is read as %+v, %v", got, err)
	}
}
