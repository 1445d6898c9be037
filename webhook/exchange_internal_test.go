package webhook

import (
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// While the body of an answer is waited for nothing is held of its header but what is read.
func TestOnlyHeadersThatAreReadAreHeld(t *testing.T) {
	for _, others := range []int{3, 40} { // few are removed, of many the others are copied
		all := http.Header{"Retry-After": {"3", "4"}, "Date": {"x"}, "Ratelimit": {"y"}, "Pushlease-Decision": {"complete"}}
		want := maps.Clone(all)
		want[keyLocation] = []string{"/elsewhere"}
		all["Location"] = []string{"/elsewhere"}
		for i := range others {
			all["X-"+strconv.Itoa(i)] = []string{strings.Repeat("a", 1000)}
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
		if !reflect.DeepEqual(response.Header, want) {
			t.Errorf("held beside %d others: %v, want %v", others, response.Header, want)
		}
		_ = response.Body.Close()
	}
}
