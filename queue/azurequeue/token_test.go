package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/queue"
)

// issuer is a credential that answers in turn.
type issuer struct {
	answers []func() (azcore.AccessToken, error)
	asked   int
}

func (i *issuer) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if err := ctx.Err(); err != nil {
		return azcore.AccessToken{}, err
	}
	answer := i.answers[min(i.asked, len(i.answers)-1)]
	i.asked++
	return answer()
}

func status(code int) func() (azcore.AccessToken, error) {
	return func() (azcore.AccessToken, error) {
		return azcore.AccessToken{}, fmt.Errorf("wrapped: %w", &azidentity.AuthenticationFailedError{
			RawResponse: &http.Response{StatusCode: code, Body: http.NoBody, Request: httptest.NewRequest("POST", "https://login.example/?SECRET", nil)},
		})
	}
}

func good(name string) func() (azcore.AccessToken, error) {
	return func() (azcore.AccessToken, error) {
		return azcore.AccessToken{Token: name, ExpiresOn: time.Now().Add(time.Hour)}, nil
	}
}

// identityQueue is a queue of a TLS server that wants tokens of the issuer.
func identityQueue(t *testing.T, i *issuer, answer http.HandlerFunc) queue.Queue {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	opts, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTransport(opts)
	base := tr.base.(azureconn.Transport)
	base.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	t.Cleanup(base.CloseIdleConnections)
	client, err := azqueue.NewServiceClient(server.URL, tokens{i}, &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry: policy.RetryOptions{MaxRetries: -1}, Transport: tr, PerCallPolicies: []policy.Policy{keepBodyPolicy{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := (&Service{
		cfg: azureconn.Config{Credential: azureconn.Identity}, client: client, transport: tr,
	}).Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// C21: a token service in trouble heals without a restart.
func TestTokenTroubleIsBusyOrDeniedAndHeals(t *testing.T) {
	unavailable := func() (azcore.AccessToken, error) {
		return azcore.AccessToken{}, errors.New("SECRET: no managed identity here")
	}
	i := &issuer{answers: []func() (azcore.AccessToken, error){status(429), status(503), status(400), unavailable, good("t1")}}
	seen := ""
	q := identityQueue(t, i, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNoContent)
	})
	m := &queue.Message{ID: "id", Lease: queue.NewLease("r", time.Now(), time.Minute)}
	for n, want := range []error{queue.ErrBusy, queue.ErrBusy, queue.ErrDenied, queue.ErrDenied, nil} {
		err := q.Complete(t.Context(), m)
		if !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", n, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("call %d quotes the credential: %v", n, err)
		}
		if err != nil && strings.Contains(err.Error(), "storage") {
			t.Errorf("call %d blames storage, which was not asked: %v", n, err)
		}
		var refused *azureconn.TokenRefusedError
		if got := []int{429, 503, 400, 0, 0}[n]; errors.As(err, &refused) != (got != 0) || got != 0 && refused.Status != got {
			t.Errorf("call %d: %v does not say that the token service answered %d", n, err, got)
		}
	}
	if seen != "Bearer t1" {
		t.Errorf("storage saw %q", seen)
	}
}

func TestARefusedTokenIsReplacedOnTheNextCall(t *testing.T) {
	i := &issuer{answers: []func() (azcore.AccessToken, error){good("old"), good("new")}}
	q := identityQueue(t, i, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer old" {
			w.Header().Set("x-ms-error-code", "InvalidAuthenticationInfo")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	m := &queue.Message{ID: "id", Lease: queue.NewLease("r", time.Now(), time.Minute)}
	if err := q.Complete(t.Context(), m); !errors.Is(err, queue.ErrDenied) {
		t.Errorf("with the refused token: %v", err)
	}
	if err := q.Complete(t.Context(), m); err != nil {
		t.Errorf("with the next token: %v", err)
	}
}

func TestIdentityAccountsOpenWithoutANetwork(t *testing.T) {
	cfg, err := azureconn.Parse("azure:acct")
	if err != nil {
		t.Fatal(err)
	}
	for _, clientID := range []string{"", "8b1d9b1c-0000-4000-8000-000000000001"} {
		s, err := Open(cfg, Options{ManagedIdentityClientID: clientID})
		if err != nil {
			t.Fatalf("client id %q: %v", clientID, err)
		}
		s.Close()
	}
}
