package azuretable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
)

// edited is a store whose rows other programs edit.
type edited struct {
	*azuretable.Store
	t       *testing.T
	service *aztables.ServiceClient
	prefix  string

	mu   sync.Mutex
	lost []string
}

func openEdited(t *testing.T) *edited {
	t.Helper()
	azurite := azuritetest.Start(t)
	cfg, err := azureconn.Parse(azurite.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	e := &edited{t: t, prefix: azuritetest.Name("t")}
	e.Store, err = azuretable.Open(cfg, azuretable.Options{Prefix: e.prefix, Retention: 8 * 24 * time.Hour, OnLost: func(table string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lost = append(e.lost, table)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(t.Context()) })
	key, err := aztables.NewSharedKeyCredential(azurite.Account, azurite.Key)
	if err == nil {
		e.service, err = aztables.NewServiceClientWithSharedKey(azurite.TableURL, key, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// edit sets columns of the rows of a table, or removes those that are nil, as a person with a tool does.
func (e *edited) edit(table, partition string, change map[string]any) {
	e.t.Helper()
	client := e.service.NewClient(table)
	rows := client.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: new("PartitionKey eq '" + partition + "'")})
	n := 0
	for rows.More() {
		page, err := rows.NextPage(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		for _, b := range page.Entities {
			var row aztables.EDMEntity
			if err := json.Unmarshal(b, &row); err != nil {
				e.t.Fatal(err)
			}
			for name, value := range change {
				if row.Properties[name] = value; value == nil {
					delete(row.Properties, name)
				}
			}
			b, err := json.Marshal(row)
			if err == nil {
				_, err = client.UpdateEntity(e.t.Context(), b, &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeReplace})
			}
			if err != nil {
				e.t.Fatal(err)
			}
			n++
		}
	}
	if n == 0 {
		e.t.Fatalf("%s has no row in %s", table, partition)
	}
}

func (e *edited) drop(table string) {
	e.t.Helper()
	if _, err := e.service.DeleteTable(e.t.Context(), table, nil); err != nil {
		e.t.Fatal(err)
	}
}

func (e *edited) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// C86: taken for one that has lapsed, a claim would let an event be delivered twice.
func TestAClaimThatAnotherProgramHasChangedIsNotTakenForOneThatHasLapsed(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for name, change := range map[string]map[string]any{
		"state gone":     {"State": nil},
		"state unknown":  {"State": "DONE"},
		"state a number": {"State": int32(1)},
		"at gone":        {"AtMs": nil},
		"at a text":      {"AtMs": "yesterday"},
		"nothing":        {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openEdited(t)
			first, second := claimBy("a", now), claimBy("b", now.Add(time.Hour))
			_, _, err := e.Claim(t.Context(), first, now)
			e.must(err)
			e.must(e.FinishClaim(t.Context(), first))
			tablesOf, err := e.service.NewListTablesPager(&aztables.ListTablesOptions{Filter: new("TableName ge '" + e.prefix + "Claims' and TableName lt '" + e.prefix + "D'")}).NextPage(t.Context())
			e.must(err)
			for partition := range []int{0, 1, 2, 3} {
				pk := "s" + string(rune('0'+partition))
				page, err := e.service.NewClient(*tablesOf.Tables[0].Name).NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: new("PartitionKey eq '" + pk + "'")}).NextPage(t.Context())
				e.must(err)
				if len(page.Entities) > 0 {
					e.edit(*tablesOf.Tables[0].Name, pk, change)
				}
			}
			current, won, err := e.Claim(t.Context(), second, second.At)
			switch {
			case len(change) == 0 && (err != nil || won || current.Owner != "a"):
				t.Errorf("as it was written: %s, won %t, %v", current.Owner, won, err)
			case len(change) > 0 && (!errors.Is(err, tables.ErrDamaged) || won):
				t.Errorf("won %t, %v; want ErrDamaged", won, err)
			case len(change) > 0 && !strings.Contains(err.Error(), *tablesOf.Tables[0].Name):
				t.Errorf("%v does not name the table", err)
			}
			if _, won, err := e.Claim(t.Context(), first, now); err != nil || !won {
				t.Errorf("its owner won %t, %v", won, err)
			}
			e.must(e.FinishClaim(t.Context(), first))
			if current, won, err := e.Claim(t.Context(), second, second.At); err != nil || won || current.State != tables.Done {
				t.Errorf("mended by its owner it is %s, won %t, %v", current.State, won, err)
			}
		})
	}
}

// C86: a note whose time can't be read would end the guard, and what waits would expire unseen.
func TestANoteOfALeftQueueThatAnotherProgramHasChangedIsAsNewAsItsChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"time gone":       {"At": nil},
		"time a date":     {"At": aztables.EDMDateTime(time.Now())},
		"time far ahead":  {"At": aztables.EDMInt64(253402300799000)},
		"queue gone":      {"Queue": nil},
		"queue of others": {"Queue": "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openEdited(t)
			at := time.Now().UTC().Truncate(time.Millisecond)
			e.must(e.PutLeftQueue(t.Context(), tables.LeftQueue{Queue: "orders", At: at}))
			e.edit(e.prefix+"Webhooks", "left", change)
			list, err := e.ListLeftQueues(t.Context())
			if err != nil || len(list) != 1 || list[0].Queue != "orders" || list[0].At.Sub(at).Abs() > time.Minute {
				t.Fatalf("%+v, %v; want the note of orders, of about %s", list, err, at)
			}
			e.must(e.DropLeftQueue(t.Context(), list[0]))
			if list, err := e.ListLeftQueues(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("%+v, %v after it was dropped", list, err)
			}
		})
	}
}

// C86: a row that is always new would stand for an instance that is always there.
func TestHealthOfTheFutureIsAsNewAsItsChange(t *testing.T) {
	t.Parallel()
	e := openEdited(t)
	now := time.Now()
	e.must(e.PutHealth(t.Context(), tables.Health{WebhookID: "w", Instance: "i", UpdatedAt: now, Delivered: 3}))
	e.edit(e.prefix+"Health", "health", map[string]any{"UpdatedAt": aztables.EDMInt64(253402300799000), "Delivered": "many"})
	list, err := e.ListHealth(t.Context())
	if err != nil || len(list) != 1 || list[0].UpdatedAt.Sub(now).Abs() > time.Minute || list[0].Delivered != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	if n, err := e.ExpireHealth(t.Context(), now.Add(time.Hour)); err != nil || n != 1 {
		t.Errorf("%d rows have expired, %v; want 1", n, err)
	}
}

// C86: what decides is refused where it can't be read; what is for people stops nobody. Whose delivery a row is,
// is what its key says.
func TestADeliveryThatAnotherProgramHasChangedIsDecidedByOnlyWhereItSaysEnough(t *testing.T) {
	t.Parallel()
	type change struct {
		name  string
		value any
	}
	pending := tables.Delivery{WebhookID: "w", Generation: 1, State: tables.Pending, Attempts: 2, Charged: 2}
	delivered := tables.Delivery{WebhookID: "w", Generation: 1, State: tables.Delivered, Attempts: 2, Charged: 2}
	for refused, changes := range map[bool][]change{
		true: {
			{"State", true}, {"State", nil}, {"State", ""}, {"State", "Delivered"}, {"State", "done"}, {"Attempts", true}, {"NextAtMs", true}, {"UpdatedAtMs", true}, {"Reason", true},
			{"Generation", true}, {"Generation", nil}, {"Generation", int32(0)}, {"WebhookID", true}, {"WebhookID", nil}, {"WebhookID", ""}, {"WebhookID", "v"},
			{"DayMs", true}, {"DayMs", nil}, {"DayMs", aztables.EDMInt64(1)}, {"DayMs", aztables.EDMInt64(1 << 60)},
		},
		false: {
			{"Instance", true}, {"Size", true}, {"FirstAtMs", true}, {"Encoding", true},
			{"Queue", nil}, {"Queue", "others"}, {"MessageID", nil}, {"MessageID", true},
		},
	} {
		for _, c := range changes {
			for _, was := range []tables.Delivery{pending, delivered} {
				t.Run(fmt.Sprintf("%s of %s is %v", c.name, was.State, c.value), func(t *testing.T) {
					t.Parallel()
					e := openEdited(t)
					d := was
					d.MessageKey = tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
					e.must(e.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}))
					e.edit(e.prefix+"Log"+d.Day.UTC().Format("20060102"), "s0", map[string]any{c.name: c.value})
					ds, err := e.Load(t.Context(), d.MessageKey)
					if refused != errors.Is(err, tables.ErrDamaged) || !refused && (err != nil || len(ds) != 1) {
						t.Errorf("%+v, %v; want it refused: %t", ds, err, refused)
					}
					for _, got := range ds {
						if got.Queue != d.Queue || got.MessageID != d.MessageID || got.WebhookID != d.WebhookID || got.State != d.State || got.Attempts != 2 {
							t.Errorf("%+v, want what was written", got)
						}
					}
				})
			}
		}
	}
}

// C94: what can't be read of a row is said where people read it, and the row is there.
func TestARowThatAnotherProgramHasChangedIsListedAndSaysSo(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}
	first := tables.Attempt{MessageKey: key, WebhookID: "w", Number: 1, StartedAt: now, Status: 200, Action: policy.Complete, Reason: policy.Delivered, Charged: true}
	failed := tables.Attempt{MessageKey: key, WebhookID: "w", Number: 1, StartedAt: now, Status: 503, Action: policy.Abandon, Reason: policy.RetryableError, Charged: true}
	records := map[string]tables.Record{
		"first success": {Deliveries: []tables.Delivery{first.Completed(&tables.Delivery{UpdatedAt: now})}, Attempts: []tables.Attempt{first}},
		"two rows":      {Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Pending, Attempts: 1, Charged: 1, UpdatedAt: now}}, Attempts: []tables.Attempt{failed}},
	}
	for name, record := range records {
		for _, column := range []string{"Number", "StartedAtMs", "Status", "WebhookID", "MessageID", "Queue", "DayMs", "Generation", "Action"} {
			for _, value := range []any{true, nil} {
				if value == nil && slices.Contains([]string{"Status", "Generation", "Action"}, column) {
					continue // that is how nothing is written
				}
				t.Run(fmt.Sprintf("%s, %s is %v", name, column, value), func(t *testing.T) {
					t.Parallel()
					e := openEdited(t)
					e.must(e.Record(t.Context(), record))
					_, _, err := e.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1}) // which has the index written
					e.must(err)
					day, hour := now.Format("20060102"), fmt.Sprintf("%02d", 23-now.Hour())
					e.edit(e.prefix+"Log"+day, "s0", map[string]any{column: value})
					for _, partition := range []string{"all~", "w~w~"} {
						e.edit(e.prefix+"Recent"+day, partition+hour, map[string]any{column: value})
					}
					ds, as, err := e.Message(t.Context(), "orders", "m")
					if err != nil || len(ds) != 1 || len(as) != 1 || ds[0].WebhookID != "w" || as[0].WebhookID != "w" || as[0].Number != 1 || ds[0].State != record.Deliveries[0].State {
						t.Fatalf("the timeline is %+v, %+v, %v", ds, as, err)
					}
					if as[0].Damage.Columns != column {
						t.Errorf("what can't be read of the attempt is %q, want %s", as[0].Damage.Columns, column)
					}
					for _, f := range []tables.AttemptFilter{{}, {WebhookID: "w"}, {MessageID: "m"}} {
						list, _, err := e.Attempts(t.Context(), f, tables.Page{Limit: 10})
						if err != nil || len(list) != 1 || list[0].Damage.Columns != column {
							t.Errorf("with %+v: %+v, %v", f, list, err)
						}
					}
				})
			}
		}
	}
}

// C86: a dead letter is in the lists of its queue and of its time whatever its columns say of them.
func TestADeadLetterThatAnotherProgramHasChangedIsInTheListsOfItsQueueAndTime(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for column, values := range map[string][]any{"Queue": {nil, true, "others"}, "DeadLetteredAtMs": {nil, true, aztables.EDMInt64(1 << 60)}} {
		for _, value := range values {
			t.Run(fmt.Sprintf("%s is %v", column, value), func(t *testing.T) {
				t.Parallel()
				e := openEdited(t)
				d := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}, Status: tables.Waiting, DeadLetteredAt: now, Text: []byte("x")}
				d.ID = tables.DeadLetterID(d.MessageKey, "", 0, now)
				_, err := e.PutDeadLetter(t.Context(), d)
				e.must(err)
				e.edit(e.prefix+"DeadLetters", "orders", map[string]any{column: value})
				for _, f := range []tables.DeadLetterFilter{{}, {Queue: "orders"}, {Queue: "orders", From: now.Add(-time.Minute), Until: now.Add(time.Minute)}} {
					list, _, err := e.ListDeadLetters(t.Context(), f, tables.Page{Limit: 10})
					if err != nil || len(list) != 1 || list[0].Queue != "orders" || !list[0].DeadLetteredAt.Equal(now) || !errors.Is(list[0].Damaged, tables.ErrDamaged) {
						t.Errorf("with %+v: %+v, %v", f, list, err)
					}
				}
			})
		}
	}
}

// C86: a dead letter whose status another program has changed counts as one that waits, or whose replay is under way where it has the token of one.
func TestADeadLetterWhoseStatusAnotherProgramHasChangedIsCounted(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for name, change := range map[string]map[string]any{
		"status gone": {"Status": nil}, "status unknown": {"Status": "Waiting"}, "status a number": {"Status": int32(1)}, "time of the replay gone": {"ReplayedAtMs": nil},
	} {
		for _, token := range []string{"", "token"} {
			t.Run(name+" "+token, func(t *testing.T) {
				t.Parallel()
				e := openEdited(t)
				d := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}, Status: tables.Waiting, DeadLetteredAt: now, Text: []byte("x"), ReplayToken: token}
				if token != "" {
					d.Status, d.ReplayedAt = tables.Replaying, now
				}
				d.ID = tables.DeadLetterID(d.MessageKey, "", 0, now)
				_, err := e.PutDeadLetter(t.Context(), d)
				e.must(err)
				e.edit(e.prefix+"DeadLetters", "orders", change)
				list, _, err := e.ListDeadLetters(t.Context(), tables.DeadLetterFilter{Status: d.Status}, tables.Page{Limit: 10})
				sound := token == "" && strings.Contains(name, "time") // one that waits has none
				if err != nil || len(list) != 1 || errors.Is(list[0].Damaged, tables.ErrDamaged) == sound {
					t.Errorf("%s are %+v, %v", d.Status, list, err)
				}
			})
		}
	}
}

// C85: a queue that another program takes off the list of those with dead letters would be in no list, count or expiry.
func TestAQueueThatIsTakenOffTheListOfThoseWithDeadLettersIsPutBack(t *testing.T) {
	t.Parallel()
	e, now := openEdited(t), time.Now().UTC().Truncate(time.Millisecond)
	put := func(queue, message string) {
		d := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: queue, MessageID: message, Day: now}, Status: tables.Waiting, DeadLetteredAt: now, Text: []byte("x")}
		d.ID = tables.DeadLetterID(d.MessageKey, "", 0, now)
		_, err := e.PutDeadLetter(t.Context(), d)
		e.must(err)
	}
	for _, queue := range []string{"orders", "0-first", "z-last", "orders-poison", "stays"} {
		put(queue, "m")
	}
	table := e.service.NewClient(e.prefix + "DeadLetters")
	e.must(insert(e, e.prefix+"DeadLetters", `{"PartitionKey":"My notes","RowKey":"1"}`))
	inList := func() (names string) {
		t.Helper()
		list, _, err := e.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 20})
		e.must(err)
		for _, d := range list {
			names += d.Queue + " "
		}
		return names
	}
	whole := inList()
	for _, queue := range []string{"z-last", "0-first", "orders"} {
		_, err := table.DeleteEntity(t.Context(), "~queues", queue, nil)
		e.must(err)
	}
	put("orders", "another") // of a queue that is taken to be on the list
	if got := strings.Fields(inList()); len(got) != 2 {
		t.Fatalf("in the list of all: %s; nothing is tested", got)
	}
	for _, want := range []string{"0-first orders z-last", ""} {
		queues, err := e.Relist(t.Context())
		if got := strings.Join(queues, " "); err != nil || got != want {
			t.Errorf("Relist = %q, %v; want %q", got, err, want)
		}
	}
	listed := e.listed(e.prefix+"DeadLetters", "orders")
	if ms, ok := listed.Properties["SinceMs"].(aztables.EDMInt64); !ok || int64(ms) < now.UnixMilli() || time.UnixMilli(int64(ms)).After(time.Time(listed.Timestamp)) {
		t.Errorf("put back it says %v, want the time of a row of before", listed.Properties)
	}
	if got := inList(); len(strings.Fields(got)) != 6 {
		t.Errorf("in the list of all afterwards: %s; before: %s", got, whole)
	}
}

// C85: a lost table is lost state, which is told once, and not when pushlease drops it itself.
func TestATableThatAnotherProgramDropsIsTold(t *testing.T) {
	t.Parallel()
	e := openEdited(t)
	now := time.Now()
	key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: now}
	letter := func(message string) tables.DeadLetter {
		d := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: "orders", MessageID: message, Day: now}, Status: tables.Waiting, DeadLetteredAt: now, Text: []byte("x")}
		d.ID = tables.DeadLetterID(d.MessageKey, "", 0, now)
		return d
	}
	record := tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: tables.Pending}}}
	e.must(e.Record(t.Context(), record))
	oldest := tables.MessageKey{Queue: "orders", MessageID: "oldest", Day: now.AddDate(0, 0, -7)} // as old as a message may be
	past := tables.MessageKey{Queue: "orders", MessageID: "past", Day: now.AddDate(0, 0, -8)}     // others may drop it by right
	for _, k := range []tables.MessageKey{oldest, past} {
		e.must(e.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: k, WebhookID: "w", State: tables.Pending}}}))
	}
	minute := tables.Rollup{At: now.Truncate(time.Minute), Length: tables.MinuteRollup, Instance: "i"}
	e.must(e.PutRollups(t.Context(), minute))
	change := tables.Audit{ID: tables.AuditID(now, "r"), At: now, Action: tables.WebhookDeleted}
	e.must(e.PutAudit(t.Context(), change))
	e.must(e.PutLeftQueue(t.Context(), tables.LeftQueue{Queue: "orders", At: now})) // while no webhook is registered
	e.must(e.PutHealth(t.Context(), tables.Health{WebhookID: "w", Instance: "i", UpdatedAt: now}))
	_, err := e.PutDeadLetter(t.Context(), letter("m"))
	e.must(err)
	e.Settle()
	day := func(at time.Time) string { return e.prefix + "Log" + at.UTC().Format("20060102") }
	for _, table := range []string{day(now), day(oldest.Day), day(past.Day), e.prefix + "Health", e.prefix + "DeadLetters", e.prefix + "Rollups", e.prefix + "Audits", e.prefix + "Webhooks"} {
		e.drop(table)
	}
	for range 2 {
		for _, k := range []tables.MessageKey{key, oldest, past} {
			if ds, err := e.Load(t.Context(), k); err != nil || len(ds) != 0 {
				t.Errorf("%+v, %v from a table that is gone", ds, err)
			}
		}
		_, err := e.ListHealth(t.Context())
		e.must(err)
		_, err = e.ListLeftQueues(t.Context())
		e.must(err)
		e.must(e.PutRollups(t.Context(), minute))
		e.must(e.PutAudit(t.Context(), change))
	}
	_, err = e.PutDeadLetter(t.Context(), letter("n")) // which makes the table anew
	e.must(err)
	if list, _, err := e.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 10}); err != nil || len(list) != 1 {
		t.Errorf("%d dead letters of all queues, %v; want the one that came after", len(list), err)
	}
	e.must(e.Record(t.Context(), record))
	slices.Sort(e.lost)
	want := []string{e.prefix + "Audits", e.prefix + "DeadLetters", e.prefix + "Health", e.prefix + "Rollups", e.prefix + "Webhooks", day(now), day(oldest.Day)}
	if slices.Sort(want); !slices.Equal(e.lost, want) {
		t.Errorf("told of %v, want %v", e.lost, want)
	}
}

// C86: a job and an instance whose rows another program has changed are there all the same.
func TestJobsAndInstancesThatAnotherProgramHasChangedAreListed(t *testing.T) {
	t.Parallel()
	e := openEdited(t)
	if _, err := e.PutJob(t.Context(), tables.Job{ID: "a", State: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := e.PutInstance(t.Context(), tables.Instance{Name: "one", Ready: true, SeenAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{"{", 7, nil} {
		e.edit(e.prefix+"Webhooks", "jobs", map[string]any{"Job": value})
		e.edit(e.prefix+"Webhooks", "instances", map[string]any{"About": value})
		jobs, err := e.ListJobs(t.Context())
		if err != nil || len(jobs) != 1 || jobs[0].ID != "a" || jobs[0].ETag == "" || !errors.Is(jobs[0].Damaged, tables.ErrDamaged) {
			t.Errorf("ListJobs with %v = %+v, %v", value, jobs, err)
		}
		instances, err := e.ListInstances(t.Context())
		if err != nil || len(instances) != 1 || !reflect.DeepEqual(instances[0], tables.DamagedInstance("one")) {
			t.Errorf("ListInstances with %v = %+v, %v", value, instances, err)
		}
	}
}

// C85: what is gone with a table that another program drops was deleted by nobody, also when the table is there again. A dead
// letter that was decided long before it was written, and one whose queue another program has taken off the list, is as any other.
func TestADeadLetterThatWentWithItsTableIsNoDeletedOne(t *testing.T) {
	t.Parallel()
	e, now := openEdited(t), time.Now()
	put := func(queue string, decided time.Time) {
		d := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: queue, MessageID: "m", Day: now}, Status: tables.Waiting, DeadLetteredAt: decided, Text: []byte("x")}
		d.ID = tables.DeadLetterID(d.MessageKey, "", 0, decided)
		d, err := e.PutDeadLetter(t.Context(), d)
		e.must(err)
		e.must(e.DeleteDeadLetter(t.Context(), d.ID, ""))
	}
	wantLost := func(what string, of time.Time, want bool) {
		t.Helper()
		if lost, err := e.HasLostDeadLetters(t.Context(), of); err != nil || lost != want {
			t.Errorf("%s: lost is %t, %v; want %t", what, lost, err, want)
		}
	}
	wantLost("no table was there ever", now, true)
	put("orders", now.Add(-3*time.Hour))
	table := e.prefix + "DeadLetters"
	listed := e.listed(table, "orders")
	wantLost("a copy of the second before", time.Time(listed.Timestamp).Add(-time.Second), false)
	wantLost("a copy of before", time.Time(listed.Timestamp).Add(-time.Minute), true)
	e.drop(table)
	wantLost("the table is gone", now, true)
	put("refunds", now.Add(-3*time.Hour))
	wantLost("the table is there again, and the copy is older", now.Add(-time.Minute), true)
	wantLost("the table is there again, and the copy is of another queue", time.Now(), false)
	_, err := e.service.NewClient(table).DeleteEntity(t.Context(), "~queues", "refunds", nil)
	e.must(err)
	wantLost("no queue is on the list any more", now, true)
	e.must(insert(e, table, `{"PartitionKey":"~queues","RowKey":"stock","SinceMs":"`+strconv.FormatInt(now.Add(-time.Hour).UnixMilli(), 10)+`","SinceMs@odata.type":"Edm.Int64"}`))
	wantLost("a queue was put back on the list of a table that is older", now.Add(-time.Minute), false)
	wantLost("and the copy is older than that", now.Add(-2*time.Hour), true)
}

// listed is the row of a queue that has had dead letters.
func (e *edited) listed(table, queue string) (row aztables.EDMEntity) {
	e.t.Helper()
	found, err := e.service.NewClient(table).GetEntity(e.t.Context(), "~queues", queue, nil)
	if err == nil {
		err = json.Unmarshal(found.Value, &row)
	}
	e.must(err)
	return row
}

func insert(e *edited, table, row string) error {
	_, err := e.service.NewClient(table).AddEntity(e.t.Context(), []byte(row), nil)
	return err
}
