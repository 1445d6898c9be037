package azuretable

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// fill sets everything in v, so that every column is written.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("x"))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMilli(1)))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	default:
		if v.CanInt() {
			v.SetInt(1)
		}
		if v.CanFloat() {
			v.SetFloat(1)
		}
	}
}

// full is a T without a zero in it.
func full[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// typesOf are the types of a row's columns, by name.
func typesOf(t *testing.T, row []byte) map[string]string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(row, &all); err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for name, value := range all {
		switch name {
		case "PartitionKey", "RowKey", "Timestamp":
			continue
		}
		if strings.Contains(name, "odata.") {
			continue
		}
		switch value.(type) {
		case bool:
			types[name] = "Boolean"
		case float64:
			types[name] = "Int32"
		default:
			types[name] = "String"
		}
		if said, ok := all[name+"@odata.type"].(string); ok {
			types[name] = strings.TrimPrefix(said, "Edm.")
		}
	}
	return types
}

// columnTypes are the types of the columns of a row that is written.
func columnTypes(t *testing.T, c columns) map[string]string {
	t.Helper()
	r, err := c.row("p", "r")
	if err != nil {
		t.Fatal(err)
	}
	return typesOf(t, rowJSON(r))
}

// namesOf names columns as the page does.
func namesOf(types map[string]string) string {
	var names []string
	for name := range types {
		names = append(names, "`"+name+"`")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// pageOfTypes has the columns of a type, as the page says. Of those whose name ends in Ms or Ns it says so once.
func pageOfTypes(text string) map[string][]string {
	types := map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^\| (Int64|Int32|Boolean|Binary) \| (.*) \|$`).FindAllStringSubmatch(text, -1) {
		types[line[1]] = regexp.MustCompile("`([A-Za-z0-9]+)`").FindAllString(line[2], -1)
	}
	return types
}

// wantTypes wants the page to say the types of a row's columns.
func wantTypes(t *testing.T, page map[string][]string, row string, types map[string]string) {
	t.Helper()
	for name, is := range types {
		ending := strings.HasSuffix(name, "Ms") || strings.HasSuffix(name, "Ns")
		among := slices.Contains(page[is], "`"+name+"`") || is == "Int64" && ending
		elsewhere := false
		for other, names := range page {
			elsewhere = elsewhere || other != is && slices.Contains(names, "`"+name+"`")
		}
		if ending && is != "Int64" || is == "String" && elsewhere && name != "Status" || is != "String" && !among {
			t.Errorf("%s: %s is of type %s, which the page does not say", row, name, is)
		}
	}
}

const page = "../../docs/tables.md"

// C98: docs/tables.md names every column, and no other, with its type.
func TestThePageAboutTablesNamesEveryColumn(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	first := full[tables.Attempt]()
	both, _ := completedColumns(first.Completed(&tables.Delivery{UpdatedAt: first.Day, ExpiresAt: first.Day, Encoding: "x", Size: 1, BodyHash: "x"}), first)
	signed := func(c columns) columns { // as insert and replace do
		c.exact(writeColumn, "x")
		return c
	}
	changed := full[tables.Audit]()
	changed.Fields = []string{"x"}
	types, used := pageOfTypes(string(text)), map[string]bool{}
	for row, c := range map[string]columns{
		"| `…Log<yyyymmdd>` | both, as one row |":            both,
		"| `…Log<yyyymmdd>` | a delivery |":                  deliveryColumns(full[tables.Delivery]()),
		"| `…Log<yyyymmdd>` | an attempt |":                  attemptColumns(full[tables.Attempt]()),
		"| `…DeadLetters` | a dead letter |":                 signed(deadLetterColumns(full[tables.DeadLetter]())),
		"| `…Health` | a webhook, as one instance sees it |": healthColumns(full[tables.Health]()),
		"| `…Rollups` | what one process counted in a minute or an hour; `Tallies` is JSON, compressed with gzip |":                                  rollupColumns(full[tables.Rollup](), []byte("x")),
		"| `…Audits` | a change that was made, and who made it |":                                                                                    auditColumns(changed),
		"| `…Webhooks` | a registration, in partition `webhooks` |":                                                                                  signed(registrationColumns(full[tables.Registration](), []byte("{}"))),
		"| `…Claims<week>` | an event or an idempotency key that is in work or was delivered, by when the event came; weeks are counted from 1970 |": signed(claimColumns(full[tables.Claim]())),
	} {
		all := columnTypes(t, c)
		wantTypes(t, types, row, all)
		for name, is := range all {
			used[is+" `"+name+"`"] = true
		}
		want := row + " " + namesOf(all) + " |"
		if !slices.Contains(strings.Split(string(text), "\n"), want) {
			t.Errorf("%s lacks this row, or has another:\n%s", page, want)
		}
	}
	for is, names := range types {
		for _, name := range names {
			small := slices.Contains([]string{"`About`", "`At`", "`Job`"}, name) // see namesWhatIsThere
			if !used[is+" "+name] && !small {
				t.Errorf("%s names %s among those of type %s: no row has it", page, name, is)
			}
		}
	}
}

// namesWhatIsThere wants the page to have a row for each table that there is, and a name for each
// column in it.
func namesWhatIsThere(t *testing.T, s *Store, prefix, text string) {
	t.Helper()
	known := map[string]string{} // by kind of table: its rows of the page
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "| `…"); ok {
			kind := regexp.MustCompile("^[A-Za-z]+").FindString(name)
			known[kind] += line
		}
	}
	if known["Recent"] != "" {
		known["Recent"] += known["Log"] // as an attempt there
	}
	seen := map[string]bool{}
	list := s.client.service.NewListTablesPager(nil)
	for list.More() {
		page, err := list.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range page.Tables {
			name, ours := strings.CutPrefix(*table.Name, prefix)
			if !ours {
				continue
			}
			kind := regexp.MustCompile("^[A-Za-z]+").FindString(name)
			seen[kind] = true
			for partition, types := range rowsOf(t, s.client.service.NewClient(*table.Name)) {
				wantTypes(t, pageOfTypes(text), name, types)
				for column := range types {
					if !strings.Contains(known[kind], "`"+column+"`") {
						t.Errorf("the page does not name column %s of %s", column, name)
					}
				}
				row := ", in partition `" + partition + "`"
				if want := " | " + namesOf(types) + " |"; kind == "Webhooks" && !regexp.MustCompile(regexp.QuoteMeta(row)+"[^|]*"+regexp.QuoteMeta(want)).MatchString(known[kind]) {
					t.Errorf("the page lacks a row of %s%s with%s", name, row, want)
				}
			}
		}
	}
	for kind := range known {
		if !seen[kind] {
			t.Errorf("no table %s was made: nothing compares its columns", kind)
		}
	}
}

// rowsOf are the types of the columns that any row of a table has, by partition.
func rowsOf(t *testing.T, table *aztables.Client) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	pager := table.NewListEntitiesPager(nil)
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, entity := range page.Entities {
			var keys struct{ PartitionKey string }
			if err := json.Unmarshal(entity, &keys); err != nil {
				t.Fatal(err)
			}
			if all[keys.PartitionKey] == nil {
				all[keys.PartitionKey] = map[string]string{}
			}
			maps.Copy(all[keys.PartitionKey], typesOf(t, entity))
		}
	}
	return all
}

// wantOfQueries is how many rows each query of the page finds in the test below.
var wantOfQueries = map[string]int{
	"MessageID eq 'm-1' and Number ge 1":                                                 3,
	"MessageID eq 'm-1' and State gt ''":                                                 2,
	"WebhookID eq 'wh_1' and Number ge 1 and not (Status ge 200 and Status lt 300)":      6,
	"Number ge 1 and not (Status gt 0)":                                                  1,
	"State eq 'delivered'":                                                               3,
	"DurationNs ge 10000000000L":                                                         1,
	"PartitionKey eq 'orders'":                                                           1,
	"PartitionKey eq 'orders' and Status eq 'waiting' and Reason eq 'NonRetryableError'": 1,
	"DeadLetteredAtMs ge 1772366400000L":                                                 1,
	"Breaker eq 'open'":                                                                  1,
}

// recordWaits records messages that waited: m-2 was delivered at its second attempt, m-3 under the note of its
// second one, m-4 is a dead letter by 404. Two wait still: m-5 is held, with a note older than that, and m-6 has the
// note of a second attempt.
func recordWaits(t *testing.T, s *Store, now time.Time) {
	t.Helper()
	delivery := func(message string, state tables.State, attempts int, at time.Duration) tables.Delivery {
		return tables.Delivery{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: message, Day: now}, WebhookID: "wh_1",
			State: state, Attempts: attempts, Charged: attempts, UpdatedAt: now.Add(at), Instance: "a",
		}
	}
	// put writes a delivery after an attempt; none with status 0.
	put := func(d tables.Delivery, status int) {
		r := tables.Record{Deliveries: []tables.Delivery{d}}
		if status > 0 {
			r.Attempts = []tables.Attempt{{MessageKey: d.MessageKey, WebhookID: d.WebhookID, Number: d.Attempts, StartedAt: now, Status: status, Instance: "a"}}
		}
		if err := s.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	note := func(d tables.Delivery) {
		if err := s.Note(t.Context(), []tables.Delivery{d}); err != nil {
			t.Fatal(err)
		}
	}
	put(delivery("m-2", tables.Pending, 1, 0), 429)
	put(delivery("m-2", tables.Delivered, 2, time.Second), 200)
	put(delivery("m-3", tables.Pending, 1, 0), 429)
	note(delivery("m-3", tables.Pending, 1, time.Second))
	put(delivery("m-3", tables.Delivered, 2, 2*time.Second), 200)
	put(delivery("m-4", tables.Held, 0, 0), 0)
	put(delivery("m-4", tables.DeadLettered, 1, time.Second), 404)
	note(delivery("m-5", tables.Pending, 0, 0))
	put(delivery("m-5", tables.Held, 0, time.Second), 0)
	put(delivery("m-6", tables.Pending, 1, 0), 429)
	note(delivery("m-6", tables.Pending, 1, time.Second))
}

// The queries of the page are ones that the service takes, and find what they are for.
func TestTheQueriesOfThePageAboutTablesFindWhatTheyAreFor(t *testing.T) {
	azurite := azuritetest.Start(t)
	prefix := azuritetest.Name("t")
	cfg, err := azureconn.Parse(azurite.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	recordWaits(t, s, now)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-1", Day: now}
	failed := tables.Attempt{MessageKey: key, WebhookID: "wh_1", Number: 1, StartedAt: now, Status: 503, Duration: 11 * time.Second}
	taken := tables.Attempt{MessageKey: key, WebhookID: "wh_2", Number: 1, StartedAt: now, Status: 200, Charged: true}
	silent := tables.Attempt{MessageKey: key, WebhookID: "wh_1", Number: 2, StartedAt: now, ErrorClass: policy.ClassTimeout}
	for _, err := range []error{
		s.Record(t.Context(), tables.Record{
			Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_1", State: tables.Held, Reason: policy.WebhookDisabled}}, Attempts: []tables.Attempt{failed, silent},
		}),
		s.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{taken.Completed(&tables.Delivery{})}, Attempts: []tables.Attempt{taken}}),
		s.PutHealth(t.Context(), tables.Health{WebhookID: "wh_1", Instance: "a", Breaker: policy.BreakerState{Phase: policy.BreakerOpen}}),
		func() error {
			_, err := s.PutDeadLetter(t.Context(), tables.DeadLetter{
				ID: tables.DeadLetterID(key, "wh_1", 0, now), MessageKey: key, WebhookID: "wh_1", Status: tables.Waiting, Reason: policy.NonRetryableError, DeadLetteredAt: now, Text: []byte("x"),
			})
			return err
		}(),
		func() error {
			_, err := s.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: "wh_1", Queue: "orders"}, Enabled: true})
			return err
		}(),
		s.PutLeftQueue(t.Context(), tables.LeftQueue{Queue: "orders", At: now}),
		s.putTrace(t.Context(), "wh_0", now),
		func() error { _, err := s.PutJob(t.Context(), tables.Job{ID: "job_1", HeardAt: now}); return err }(),
		s.PutInstance(t.Context(), tables.Instance{Name: "a", SeenAt: now}),
		s.PutAudit(t.Context(), tables.Audit{ID: tables.AuditID(now, "r"), At: now, Action: tables.WebhookDeleted, Key: "ops", WebhookID: "wh_1"}),
		s.PutRollups(t.Context(), tables.Rollup{Length: tables.MinuteRollup, At: now, Instance: "a", StartedAt: now}),
		func() error {
			_, _, err := s.Claim(t.Context(), tables.Claim{Key: tables.ClaimKey("event"), Owner: "a", MessageID: "m-1", Until: now.Add(time.Minute), At: now}, now)
			return err
		}(),
		s.recent.flush(t.Context()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	namesWhatIsThere(t, s, prefix, string(text))
	blocks := regexp.MustCompile("(?s)```odata (\\w+)\n(.*?)\n```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != len(wantOfQueries) {
		t.Errorf("%d queries, want %d", len(blocks), len(wantOfQueries))
	}
	type query struct {
		Table  string `json:"table"`
		Filter string `json:"filter"`
	}
	var queries []query
	for _, block := range blocks {
		table := prefix + block[1]
		if block[1] == "Log" {
			table += now.Format("20060102")
		}
		pager := s.client.service.NewClient(table).NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &block[2]})
		found := 0
		for pager.More() {
			rows, err := pager.NextPage(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", block[2], err)
			}
			found += len(rows.Entities)
		}
		if want := wantOfQueries[block[2]]; found != want {
			t.Errorf("%s finds %d rows in %s, want %d", block[2], found, table, want)
		}
		queries = append(queries, query{table, block[2]})
	}
	input, err := json.Marshal(map[string]any{"address": azurite.TableURL, "account": azurite.Account, "key": azurite.Key, "queries": queries, "log": prefix + "Log" + now.Format("20060102")})
	if err != nil {
		t.Fatal(err)
	}
	var functions strings.Builder
	for _, block := range regexp.MustCompile("(?s)```js Log\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		functions.WriteString(block[1] + "\n")
	}
	// The library of another language, with its defaults: a value that it reads as another type fails.
	out := npmtest.SDKs.Run(t, functions.String()+`
const { TableClient, AzureNamedKeyCredential } = require("@azure/data-tables");
const { address, account, key, queries, log } = JSON.parse(require("node:fs").readFileSync(0));
(async () => {
  const open = (table) => new TableClient(address, table, new AzureNamedKeyCredential(account, key), { allowInsecureConnection: true });
  for (const { table, filter } of queries) {
    const client = open(table);
    let found = 0;
    for await (const row of client.listEntities({ queryOptions: { filter } })) {
      found++;
      for (const [name, value] of Object.entries(row)) {
        if (/(Ms|Ns)$/.test(name) && typeof value !== "bigint") console.log(table + "." + name + " is a " + typeof value);
        if (name === "Text" && !(value instanceof Uint8Array)) console.log("Text is a " + typeof value);
      }
    }
    if (found === 0) console.log(filter + " finds nothing in " + table);
  }
  console.log(queries.length + " queries");
  for (const query of [waiting, untried]) {
    console.log(query.name, ...(await query(open(log))).map((row) => row.MessageID + " " + row.WebhookID + " " + row.State).sort());
  }
})();`, string(input))
	want := fmt.Sprintln(len(blocks), "queries") +
		"waiting m-1 wh_1 held m-5 wh_1 held m-6 wh_1 pending\n" +
		"untried m-1 wh_1 held m-5 wh_1 held\n"
	if out != want {
		t.Errorf("node:\n%s, want\n%s", out, want)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
