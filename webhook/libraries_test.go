package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/webhook"
)

// The libraries of npm that the README names take what is sent, where that is JSON in UTF-8; what the README
// warns of is so with them.
func TestTheLibrariesOfNpmVerifyWhatIsSent(t *testing.T) {
	now, secret, other := time.Now(), secretOf(24), secretOf(32)
	type request struct {
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	var requests []request
	var want strings.Builder
	add := func(taken bool, body string, signature ...string) {
		requests = append(requests, request{secret, map[string]string{
			"webhook-id": "msg_1", "webhook-timestamp": strconv.FormatInt(now.Unix(), 10), "webhook-signature": strings.Join(signature, " "),
		}, base64.StdEncoding.EncodeToString([]byte(body))})
		want.WriteString(map[bool]string{true: "1", false: "0"}[taken])
	}
	sign := func(secret, body string) string {
		text, err := webhook.Sign(secret, "msg_1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, body := range []string{`{"a":1}`, `{"name":"Zoë 🙂","list":[1,2]}`, " {\"a\": 1}\r\n", `[]`} {
		mine, others := sign(secret, body), sign(other, body)
		add(true, body, mine)
		add(true, body, others, mine) // in a rotation either comes first
		add(true, body, mine, others)
		add(false, body, others)
		add(false, body+" ", mine)
		add(false, body, "")
	}
	notText := "{\"a\":\"\xff\xfe\"}" // for which the README has snippets
	add(false, notText, sign(secret, notText))

	input, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"standardwebhooks", "svix"} {
		t.Run(library, func(t *testing.T) {
			got := npmtest.SDKs.Run(t, `
(async () => {
  const { Webhook } = await import("`+library+`");
  const requests = JSON.parse(require("node:fs").readFileSync(0));
  console.log(requests.map(({ secret, headers, body }) => {
    try { new Webhook(secret).verify(Buffer.from(body, "base64"), headers); return 1; } catch { return 0; }
  }).join(""));
})();`, string(input))
			if got = strings.TrimSpace(got); got != want.String() {
				t.Errorf("took %s, want %s", got, want.String())
			}
		})
	}
}
