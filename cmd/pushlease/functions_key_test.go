package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
)

// TestTheCommandsReachAnAppBehindTheHostsKey: an app on Azure asks for a function key in front of
// the API's own, and the first webhook is registered there like anywhere else.
func TestTheCommandsReachAnAppBehindTheHostsKey(t *testing.T) {
	onBothHosts(t, func(t *testing.T, o hosttest.Options) {
		name := queueName("keyed")
		root := packaged(t, name)
		quickly(t, root, nil)
		h := startHosted(t, root, o)
		receiver := newAnswering(t)
		const mistaken = "a-key-of-another-app"
		env := []string{"PUSHLEASE_SERVER=" + h.url + "/", apiKeyEnv + "=" + functionsToken}
		run := func(key string, args ...string) result {
			t.Helper()
			r, _ := runBinary(t, append(env, functionsKeyEnv+"="+key), args...)
			for _, secret := range []string{hosttest.FunctionKey, mistaken, functionsToken} {
				if strings.Contains(r.out+r.err, secret) {
					t.Errorf("%v tells a key: %s%s", args, r.out, r.err)
				}
			}
			return r
		}
		create := []string{"webhooks", "create", "--queue", name, "--url", receiver.URL, "-o", "json"}
		for key, hint := range map[string]string{
			"":       "set PUSHLEASE_FUNCTIONS_KEY to one of its function keys",
			mistaken: "the key in PUSHLEASE_FUNCTIONS_KEY is none of its function keys",
		} {
			if r := run(key, create...); r.code != exitFailed || !strings.Contains(r.err, hint) {
				t.Errorf("with the key %q: code %d, %s%s", key, r.code, r.out, r.err)
			}
			r := run(key, "doctor", "--server", h.url)
			if r.code != exitFailed || !strings.Contains(r.out, hint) || strings.Contains(r.out, "start it") {
				t.Errorf("the doctor with the key %q: code %d, %s%s", key, r.code, r.out, r.err)
			}
		}
		for _, args := range [][]string{
			create, {"send", name, `{"n":1}`}, {"webhooks", "list"}, {"queues", "show", name}, {"instances"}, {"dead-letters", "summary"}, {"doctor", "--server", h.url},
		} {
			if r := run(hosttest.FunctionKey, args...); r.code != exitOK {
				t.Errorf("%v: code %d, %s%s", args, r.code, r.out, r.err)
			}
		}
		h.waitEmpty(10*time.Second, name)
		if posts := receiver.total(); posts != 1 {
			t.Errorf("%d POSTs", posts)
		}
	})
}

// TestAFunctionKeyInAURLIsSentToItsVariable: a key in a URL ends up in logs.
func TestAFunctionKeyInAURLIsSentToItsVariable(t *testing.T) {
	r := execute(t, "", "webhooks", "list", "--server", "https://my-app.azurewebsites.net?code=sesame")
	if r.code != exitUsage || !strings.Contains(r.err, functionsKeyEnv) || strings.Contains(r.err, "sesame") {
		t.Errorf("code %d: %s", r.code, r.err)
	}
}

// TestOnlyTheHostsRefusalNamesItsKey: a refusal by the API is about the API's key.
func TestOnlyTheHostsRefusalNamesItsKey(t *testing.T) {
	const token = "a-token-that-nobody-knows"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"title":"Unauthorized","status":401,"detail":"send the header"}`))
	}))
	t.Cleanup(server.Close)
	t.Setenv(functionsKeyEnv, token)
	r := execute(t, "", "webhooks", "list", "--server", server.URL)
	if r.code != exitRefused || strings.Contains(r.err, functionsKeyEnv) || strings.Contains(r.err, token) {
		t.Errorf("code %d: %s", r.code, r.err)
	}
}
