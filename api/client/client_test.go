package client_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/api/client"
)

// Whoever changes the document makes the client anew; that it is what the generator makes is seen by .ci/run.
func TestTheClientIsOfThisDocument(t *testing.T) {
	var all []byte
	for _, path := range []string{"oapi-codegen.yaml", "../openapi.yaml"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	was, err := os.ReadFile("document.sha256")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(all); !strings.HasPrefix(string(was), hex.EncodeToString(sum[:])) {
		t.Error("the client is of another document: go generate ./api/client")
	}
}

func TestAClientFollowsNoRedirectAndSaysWhatTheServerSaid(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed, with %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("sent with %q", r.Header.Get("Authorization"))
		}
		if strings.HasSuffix(r.URL.Path, "/queues") {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"type":"x","title":"No such webhook","status":404,"detail":"There is none.","errors":[{"field":"id","problem":"is unknown","cure":"list them"}]}`))
	}))
	defer server.Close()
	c, err := client.NewAPI(server.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	moved, err := c.ListQueuesWithResponse(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(moved.HTTPResponse, moved.Body); err == nil || err.Error() != "the server answered 302" {
		t.Errorf("redirected: %v", err)
	}
	got, err := c.GetWebhookWithResponse(t.Context(), "wh_1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Err(got.HTTPResponse, got.Body); err == nil || err.Error() != "the server answered 404: No such webhook: There is none.; id is unknown: list them" {
		t.Errorf("%v", err)
	}
}

// A webhook is registered, and what the answer says is typed.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // in the place of a pushlease server
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"wh_1","queue":"orders","url":"https://example.com/hook"}`))
	}))
	defer server.Close()

	c, err := client.NewAPI(server.URL, os.Getenv("PUSHLEASE_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	key, yes := "register-billing", true
	made, err := c.CreateWebhookWithResponse(context.Background(), &client.CreateWebhookParams{IdempotencyKey: &key}, client.WebhookCreate{
		Queue: "orders", Url: "https://example.com/hook", Signatures: &client.SignaturesInput{V1a: &yes},
	})
	if err == nil {
		err = client.Err(made.HTTPResponse, made.Body)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(made.JSON201.Id, made.JSON201.Queue)
	// Output: wh_1 orders
}
