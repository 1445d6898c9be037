package azuretable

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
)

// wire keeps the last request.
type wire struct{ last *http.Request }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.last = r
	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// sent sends a request through a pipeline and returns it as it left.
func sent(t *testing.T, method, url, date string, auth policy.Policy) (*http.Request, error) {
	t.Helper()
	req, err := runtime.NewRequest(t.Context(), method, url)
	if err != nil {
		t.Fatal(err)
	}
	if date != "" {
		req.Raw().Header.Set(dateHeader, date)
	}
	w := &wire{}
	resp, err := newPipeline(newTransport(w, nil), auth).Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return w.last, err
}

// The signature is the SDK's own for the same request: should the two ever differ, an
// update of the SDK has changed what it signs.
func TestTheSignatureIsTheSDKs(t *testing.T) {
	const key = "a2V5IG9mIHRoZSBhY2NvdW50"
	for _, address := range []string{"https://myaccount.table.core.windows.net", "http://127.0.0.1:10002/devstoreaccount1"} {
		connection := "AccountName=myaccount;AccountKey=" + key + ";TableEndpoint=" + address
		cfg, err := azureconn.Parse(connection)
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{}
		c, err := newClient(cfg, "", newTransport(w, nil))
		if err != nil {
			t.Fatal(err)
		}
		signing, err := newSharedKeyPolicy(cfg.Account, cfg.Key())
		if err != nil {
			t.Fatal(err)
		}
		table := c.service.NewClient("table")
		for name, call := range map[string]func(context.Context) error{
			"transaction": func(ctx context.Context) error {
				_, err := table.SubmitTransaction(ctx, []aztables.TransactionAction{
					{ActionType: aztables.TransactionTypeDelete, Entity: []byte(`{"PartitionKey":"p","RowKey":"r"}`)},
				}, nil)
				return err
			},
			"strange key": func(ctx context.Context) error {
				_, err := table.DeleteEntity(ctx, "a b/é'", "100%~", nil)
				return err
			},
		} {
			// The answer is none that the SDK can read; the request is what counts.
			func() {
				defer func() { _ = recover() }()
				_ = call(t.Context())
			}()
			theirs := w.last
			if theirs == nil {
				t.Fatalf("%s: no request", name)
			}
			ours, err := sent(t, theirs.Method, theirs.URL.String(), theirs.Header.Get(dateHeader), signing)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := ours.Header.Get("Authorization"), theirs.Header.Get("Authorization"); got != want || !strings.HasPrefix(got, "SharedKeyLite myaccount:") {
				t.Errorf("%s at %s: Authorization %q, the SDK's is %q", name, address, got, want)
			}
		}
	}
}

func TestASignedRequestHasADateOfNow(t *testing.T) {
	signing, err := newSharedKeyPolicy("a", "a2V5")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sent(t, http.MethodPost, "https://a.table.core.windows.net/$batch", "", signing)
	if err != nil {
		t.Fatal(err)
	}
	if date, err := http.ParseTime(r.Header.Get(dateHeader)); err != nil || time.Since(date).Abs() > time.Minute {
		t.Errorf("date %q, %v", r.Header.Get(dateHeader), err)
	}
}

type identity struct{ asked []string }

func (i *identity) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.asked = append(i.asked, o.Scopes...)
	return azcore.AccessToken{Token: "s3cretToken", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestATokenIsForStorageAndNeverSentInClear(t *testing.T) {
	i := &identity{}
	auth := newTokenPolicy(i)
	r, err := sent(t, http.MethodPost, "https://a.table.core.windows.net/$batch", "", auth)
	if err != nil || r.Header.Get("Authorization") != "Bearer s3cretToken" {
		t.Fatalf("Authorization %q, %v", r.Header.Get("Authorization"), err)
	}
	if len(i.asked) != 1 || i.asked[0] != "https://storage.azure.com/.default" {
		t.Errorf("asked for %v", i.asked)
	}
	if r, err := sent(t, http.MethodPost, "http://a.table.core.windows.net/$batch", "", auth); err == nil || r != nil {
		t.Errorf("a token was sent without TLS")
	}
}
