package azuretable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables"
)

// fake answers as the real service does where Azurite does not: refusals of a row
// of a transaction, tables that are being deleted, answers that are cut short.
type fake struct {
	t *testing.T
	// being is how many more times a table can't be created because it is being
	// deleted.
	being int
	// refuse refuses a row whose body has this text.
	refuse string
	// empty answers transactions with no body at all.
	empty bool

	mu           sync.Mutex
	tables       map[string]bool
	rows         map[string]bool // by table, partition and row key
	transactions int
}

const fakeSAS = "sv=2024-08-04&ss=t&sig=s3cretSignature"

// newFake starts a fake and opens a store over it.
func newFake(t *testing.T) (*fake, *Store) {
	t.Helper()
	f := &fake{t: t, tables: make(map[string]bool), rows: make(map[string]bool)}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, openSAS(t, server.URL)
}

func openSAS(t testing.TB, url string) *Store {
	t.Helper()
	cfg, err := azureconn.Parse("TableEndpoint=" + url + "/account;SharedAccessSignature=" + fakeSAS)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Close(ctx) // the index is not what these tests are about
	})
	return s
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller hung up
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Query().Get("sig") != "s3cretSignature" {
		f.t.Errorf("%s %s has no signature", r.Method, r.URL.Path)
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/Tables") && r.Method == http.MethodPost:
		f.createTable(w, body)
	case strings.HasSuffix(r.URL.Path, "/$batch"):
		f.transaction(w, string(body))
	default:
		fail(w, http.StatusNotFound, "TableNotFound")
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("x-ms-error-code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"odata.error":{"code":%q,"message":{"lang":"en-US","value":"content s3cretSignature"}}}`, code)
}

func (f *fake) createTable(w http.ResponseWriter, body []byte) {
	var table struct{ TableName string }
	if err := json.Unmarshal(body, &table); err != nil {
		f.t.Errorf("create table: %v", err)
	}
	switch {
	case f.being > 0:
		f.being--
		fail(w, http.StatusConflict, "TableBeingDeleted")
	case f.tables[table.TableName]:
		fail(w, http.StatusConflict, "TableAlreadyExists")
	default:
		f.tables[table.TableName] = true
		w.WriteHeader(http.StatusNoContent)
	}
}

var rowLine = regexp.MustCompile(`(?m)^PUT \S+/account/(\w+)\(PartitionKey='([^']*)',RowKey='([^']*)'\)\S* HTTP/1\.1`)

func (f *fake) transaction(w http.ResponseWriter, body string) {
	f.transactions++
	lines := rowLine.FindAllStringSubmatch(body, -1)
	answer := func(parts ...string) {
		w.Header().Set("Content-Type", "multipart/mixed; boundary=batchresponse_1")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, batchAnswer(parts...))
	}
	if len(lines) == 0 || len(lines) > 100 {
		f.t.Errorf("a transaction has %d rows", len(lines))
	}
	keys := make(map[string]bool)
	for _, l := range lines {
		if l[1] != lines[0][1] || l[2] != lines[0][2] {
			f.t.Errorf("a transaction is about %s/%s and %s/%s", lines[0][1], lines[0][2], l[1], l[2])
		}
		if keys[l[3]] {
			f.t.Errorf("a transaction has row %s twice", l[3])
		}
		keys[l[3]] = true
	}
	switch {
	case f.empty:
		w.WriteHeader(http.StatusAccepted)
	case !f.tables[lines[0][1]]:
		answer(innerFailure(http.StatusNotFound, "TableNotFound", "0:The table specified does not exist."))
	case f.refuse != "" && strings.Contains(body, f.refuse):
		index := strings.Count(body[:strings.Index(body, f.refuse)], "\r\nPUT ") - 1
		answer(innerFailure(http.StatusBadRequest, "PropertyValueTooLarge", fmt.Sprintf("%d:The property value is too large.", index)))
	default:
		for k := range keys {
			f.rows[lines[0][1]+"/"+lines[0][2]+"/"+k] = true
		}
		answer(slices.Repeat([]string{written}, len(lines))...)
	}
}

func fakeDelivery(id string) tables.Record {
	key := tables.MessageKey{Queue: "orders", MessageID: id, Day: time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)}
	return tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh", State: tables.Pending}}}
}

func TestRecordWaitsForATableThatIsBeingDeleted(t *testing.T) {
	f, s := newFake(t)
	f.being = 2
	if err := s.Record(t.Context(), fakeDelivery("m")); err != nil {
		t.Fatal(err)
	}
	if len(f.rows) != 1 || f.being != 0 {
		t.Errorf("%d rows after %d refusals left", len(f.rows), f.being)
	}
}

func TestRecordSaysThatATableIsBeingDeletedWhenTheCallerGivesUp(t *testing.T) {
	f, s := newFake(t)
	f.being = 1 << 30
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.client.createTable(ctx, "pushleaseLog20261126"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still deleting") {
		t.Errorf("createTable = %v, want the deadline and its reason", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Record(ctx, fakeDelivery("m")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Record = %v, want the deadline", err)
	}
}

func TestARowThatTheServiceRefusesFailsAlone(t *testing.T) {
	f, s := newFake(t)
	f.refuse = "poisonous"
	var wg sync.WaitGroup
	for i := range 40 {
		id := fmt.Sprint("m", i)
		if i%20 == 7 {
			id = fmt.Sprint("poisonous", i)
		}
		wg.Go(func() {
			err := s.Record(t.Context(), fakeDelivery(id))
			var refused *storageError
			if wantErr := i%20 == 7; wantErr != (errors.As(err, &refused) && refused.code == "PropertyValueTooLarge") {
				t.Errorf("Record of %s = %v", id, err)
			}
		})
	}
	wg.Wait()
	if len(f.rows) != 38 {
		t.Errorf("%d rows are stored, want 38", len(f.rows))
	}
}

func TestEveryTransactionIsOneThatTheServiceTakes(t *testing.T) {
	f, s := newFake(t) // which checks each
	var wg sync.WaitGroup
	for i := range 120 {
		r := fakeDelivery(fmt.Sprint("m", i))
		for n := range 3 {
			r.Attempts = append(r.Attempts, tables.Attempt{
				MessageKey: r.Deliveries[0].MessageKey, WebhookID: fmt.Sprint("wh", n), Number: 1,
				StartedAt: r.Deliveries[0].Day.Add(time.Duration(i) * 15 * time.Minute),
			})
		}
		wg.Go(func() {
			if err := s.Record(t.Context(), r); err != nil {
				t.Errorf("Record: %v", err)
			}
		})
	}
	wg.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := 120 + 3*120 + 2*3*120; len(f.rows) != want {
		t.Errorf("%d rows are stored, want %d: deliveries, attempts, and the index of attempts twice", len(f.rows), want)
	}
	if f.transactions > 480 {
		t.Errorf("%d transactions: rows that wait do not travel together", f.transactions)
	}
}

func TestATransactionWithoutAnAnswerInsideIsAnError(t *testing.T) {
	f, s := newFake(t)
	f.empty = true
	if err := s.Record(t.Context(), fakeDelivery("m")); !errors.Is(err, errBadAnswer) {
		t.Errorf("Record = %v, want %v", err, errBadAnswer)
	}
	if f.transactions != 2 {
		t.Errorf("%d transactions, want 2: one repetition", f.transactions)
	}
}

func TestErrorsHoldNeitherURLNorSignatureNorContent(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "Webhooks"):
			w.Header().Set("x-ms-error-code", "s3cretSignature <b>")
			fail(w, http.StatusForbidden, "s3cretSignature <b>")
		case strings.Contains(r.URL.Path, "Tables"):
			fail(w, http.StatusForbidden, "AuthorizationFailure")
		case strings.Contains(r.URL.Path, "DeadLetters"):
			_, _ = io.WriteString(w, `{"value":"s3cretSignature`)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(broken.Close)
	refused := httptest.NewServer(nil)
	refused.Close()
	for name, url := range map[string]string{"answers": broken.URL, "no connection": refused.URL} {
		s := openSAS(t, url)
		key := tables.MessageKey{Queue: "orders", MessageID: "m"}
		_, load := s.Load(t.Context(), key)
		_, get := s.GetWebhook(t.Context(), "wh")
		_, _, list := s.ListWebhooks(t.Context())
		_, dead := s.GetDeadLetter(t.Context(), tables.DeadLetterID(key, "wh", 0, time.Now()))
		_, expire := s.Expire(t.Context(), time.Now())
		record := s.Record(t.Context(), fakeDelivery("m"))
		for i, err := range []error{load, get, list, dead, expire, record} {
			if err == nil {
				t.Errorf("%s: call %d succeeded", name, i)
				continue
			}
			for _, secret := range []string{"s3cret", "sig=", "http://", "account/"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: error %q holds %q", name, err, secret)
				}
			}
			for _, sentinel := range []error{tables.ErrNotFound, tables.ErrExists, tables.ErrConflict} {
				if errors.Is(err, sentinel) {
					t.Errorf("%s: error %q is %v although nothing is known", name, err, sentinel)
				}
			}
		}
	}
}
