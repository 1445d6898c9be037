package webhook

import (
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// While the body of an answer is waited for nothing is held of its header but what is read.
func TestOnlyHeadersThatAreReadAreHeld(t *testing.T) {
	all := http.Header{"Retry-After": {"3", "4"}, "Date": {"x"}, "Ratelimit": {"y"}, "Pushlease-Decision": {"complete"}}
	want := maps.Clone(all)
	want[keyLocation] = []string{"/elsewhere"}
	all["Location"] = []string{"/elsewhere"}
	for _, other := range []string{"Set-Cookie", "Content-Type", "X-Large"} {
		all[other] = []string{strings.Repeat("a", 1000)}
	}
	e := edge{inner: answers(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusFound, Header: all, Body: http.NoBody}, nil
	})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://receiver.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if !reflect.DeepEqual(response.Header, want) {
		t.Errorf("held: %v, want %v", response.Header, want)
	}
}
