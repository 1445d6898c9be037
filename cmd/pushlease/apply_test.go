package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const declaredHooks = `
webhooks:
  - id: billing
    queue: orders
    url: {env: HOOK_URL}
    secret: {file: billing.secret}
    headers:
      X-Api-Key: {env: HOOK_KEY}
    policy: {preset: realtime}
  - id: audit
    queue: orders
    url: https://example.com/audit
    filter: {types: ["com.example.*"]}
`

// writeFile writes a file into a folder of the test and returns its path.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A declared file applied twice changes nothing the second time, and neither does what export writes.
func TestApplyMakesWhatAFileDeclares(t *testing.T) {
	p := sqliteStore(t).start(t)
	t.Setenv(serverEnv, p.url)
	t.Setenv("HOOK_URL", "https://example.com/hook?sig=SIGNED-PART")
	t.Setenv("HOOK_KEY", "key-of-the-hook")
	dir, secret := t.TempDir(), newHookSecret()
	writeFile(t, dir, "billing.secret", secret+"\n")
	file := writeFile(t, dir, "webhooks.yaml", declaredHooks)
	apply := func(wantCode int, want string, args ...string) result {
		t.Helper()
		r := execute(t, "", append([]string{"apply", "-f", file, "--detailed-exitcode"}, args...)...)
		if r.code != wantCode || !strings.Contains(r.out, want) {
			t.Fatalf("code %d, want %d and %q:\n%s%s", r.code, wantCode, want, r.out, r.err)
		}
		for _, hidden := range []string{secret, "SIGNED-PART", "key-of-the-hook"} {
			if strings.Contains(r.out+r.err, hidden) {
				t.Fatalf("shows what is secret:\n%s%s", r.out, r.err)
			}
		}
		return r
	}
	apply(exitChanged, "To create 2, to replace 0, to delete 0, unchanged 0.", "--dry-run")
	if r := execute(t, "", "webhooks", "list", "-o", "json"); !strings.Contains(r.out, `"data":[]`) {
		t.Fatalf("a dry run wrote: %s", r.out)
	}
	if r := apply(exitChanged, "2 created, 0 replaced, 0 deleted, 0 unchanged."); !strings.Contains(r.err, "audit: A signing secret was made") || strings.Contains(r.err, "billing: A signing secret") {
		t.Errorf("of secrets it says: %s", r.err)
	}
	apply(exitOK, "0 created, 0 replaced, 0 deleted, 2 unchanged.")

	t.Setenv("HOOK_KEY", "another-key")
	writeFile(t, dir, "webhooks.yaml", strings.Replace(declaredHooks, "preset: realtime", "preset: realtime, max_attempts: 9", 1))
	if r := apply(exitChanged, "0 created, 1 replaced, 0 deleted, 1 unchanged."); !strings.Contains(r.out, "policy.max_attempts: ") || !strings.Contains(r.out, "headers.X-Api-Key: changed, not shown") || strings.Contains(r.out, "another-key") {
		t.Errorf("what changed:\n%s", r.out)
	}

	exported := execute(t, "", "export")
	if exported.code != exitOK || !strings.Contains(exported.out, "Before, set what is not shown: HOOK_BILLING_URL, HOOK_BILLING_X_API_KEY\n") || strings.Contains(exported.out, secret) || strings.Contains(exported.out, "SIGNED-PART") {
		t.Fatalf("export: %s%s", exported.out, exported.err)
	}
	t.Setenv("HOOK_BILLING_URL", "https://example.com/hook?sig=SIGNED-PART")
	t.Setenv("HOOK_BILLING_X_API_KEY", "another-key")
	writeFile(t, dir, "webhooks.yaml", exported.out)
	apply(exitOK, "0 created, 0 replaced, 0 deleted, 2 unchanged.", "--prune")

	p.call(http.MethodPut, "/api/v1/webhooks/by-hand", `{"queue":"orders","url":"https://example.com/by-hand"}`, http.StatusCreated, nil)
	if r := execute(t, "y\n", "apply", "-f", file, "--prune"); r.code != exitUsage || !strings.Contains(r.err, "would delete 1 webhook,") {
		t.Errorf("without a terminal: %d %s%s", r.code, r.out, r.err)
	}
	apply(exitChanged, "delete   by-hand (orders)", "--prune", "--dry-run")
	apply(exitChanged, "0 created, 0 replaced, 1 deleted, 2 unchanged.", "--prune", "--yes")
	var listed struct{ Webhooks []struct{ ID, Action string } }
	if r := apply(exitOK, "", "-o", "json"); json.Unmarshal([]byte(r.out), &listed) != nil || len(listed.Webhooks) != 2 || listed.Webhooks[1].Action != "nothing" {
		t.Errorf("as JSON: %s", r.out)
	}
}

// What is wrong with one webhook is told before anything is written, with the place and the cure, and without what
// the file holds.
func TestApplyWritesNothingOfAFileThatIsWrong(t *testing.T) {
	p := sqliteStore(t).start(t)
	t.Setenv(serverEnv, p.url)
	const good = "webhooks:\n  - {id: good, queue: orders, url: 'https://example.com/'}\n"
	for name, c := range map[string]struct {
		text, want string
		code       int
	}{
		"no YAML":             {"webhooks: [\"SECRET", "no YAML", exitUsage},
		"twice the same name": {good + "    queue: SECRET\n", "no YAML", exitUsage},
		"another member":      {good + "hooks: []\n", `begin with "hooks"`, exitUsage},
		"no list":             {"webhooks: {}\n", "declares no webhooks", exitUsage},
		"empty":               {"", "declares no webhooks", exitUsage},
		"no map":              {good + "  - SECRET\n", "webhooks.yaml:3: webhooks[1]: is no map", exitUsage},
		"no id":               {good + "  - {queue: orders}\n", "webhooks.yaml:3: webhooks[1]: id: is missing", exitUsage},
		"the same id":         {good + "  - {id: good, queue: orders, url: 'https://example.com/'}\n", "webhooks.yaml:2 too; give each webhook an id of its own", exitUsage},
		"variable not set":    {good + "  - {id: b, queue: orders, url: {env: HOOK_NOT_SET}}\n", "webhooks.yaml:3: b: url: the environment variable HOOK_NOT_SET is not set", exitUsage},
		"no such file":        {good + "  - {id: b, queue: orders, url: 'https://example.com/', secret: {file: none}}\n", "secret: ", exitUsage},
		"file of no name":     {good + "  - {id: b, queue: orders, url: 'https://example.com/', secret: {file: '-'}}\n", "names standard input", exitUsage},
		"no reference":        {good + "  - {id: b, queue: orders, url: {vault: SECRET}}\n", "url: is neither a text nor a reference", exitUsage},
		"unknown field":       {good + "  - {id: b, queue: orders, url: 'https://example.com/', timout: 5s}\n", "webhooks.yaml:3: b: timout: ", exitRefused},
		"deep in a webhook":   {good + "  - id: b\n    queue: orders\n    url: 'https://example.com/'\n    policy:\n      preset: realtime\n      max_attempts: -5\n", "webhooks.yaml:8: b: policy.max_attempts: ", exitRefused},
		"in a list":           {good + "  - id: b\n    queue: orders\n    url: 'https://example.com/'\n    filter:\n      types:\n      - 'a'\n      - ''\n", "webhooks.yaml:7: b: filter.types[1]: ", exitRefused},
		"by an alias":         {"webhooks:\n  - &a {id: a, queue: orders, url: 'https://example.com/', timout: 5s}\n", "webhooks.yaml:2: a: timout: ", exitRefused},
		"two documents":       {good + "---\n" + good, "holds more than one document", exitUsage},
		"a head before it":    {"# ours\n---\n" + good + "  - {id: b, queue: orders}\n", "webhooks.yaml:5: b: url: ", exitRefused},
		"id that can't be":    {good + "  - {id: -b, queue: orders, url: 'https://example.com/'}\n", "webhooks.yaml:3: -b: ", exitRefused},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "webhooks.yaml", c.text)
			r := execute(t, "", "apply", "-f", file)
			if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Contains(r.out+r.err, "SECRET") {
				t.Errorf("code %d, want %d and %q: %s%s", r.code, c.code, c.want, r.out, r.err)
			}
			if r := execute(t, "", "webhooks", "list", "-o", "json"); !strings.Contains(r.out, `"data":[]`) {
				t.Errorf("it wrote: %s", r.out)
			}
		})
	}
	if r := execute(t, good, "apply", "-f", "-"); r.code != exitOK || !strings.Contains(r.out, "create   good (orders)") {
		t.Errorf("from standard input: %d %s%s", r.code, r.out, r.err)
	}
	if r := execute(t, "", "apply"); r.code != exitUsage || !strings.Contains(r.err, "name a file") {
		t.Errorf("without a file: %d %s", r.code, r.err)
	}
}
