package webhook_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// snippet runs a verifying snippet of the README in its language: begin and end make it a
// program that reads the cases and prints one of 1 and 0 for each.
type snippet struct {
	fence, file string
	begin, end  string
	command     []string
	// class is what the code is put into, behind its imports.
	class string
}

var snippets = []snippet{
	{"go", "verify.go", `package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

func receive(secret string, w http.ResponseWriter, r *http.Request) {
`, `}

func main() {
	var cases []struct {
		Secret  string
		Headers map[string]string
		Body    []byte
	}
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil {
		panic(err)
	}
	for _, c := range cases {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(c.Body))
		for name, value := range c.Headers {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		receive(c.Secret, w, r)
		fmt.Print(map[int]int{http.StatusOK: 1}[w.Code])
	}
}
`, []string{"go", "run"}, ""},
	{"js", "verify.cjs", "", `
const cases = JSON.parse(require("node:fs").readFileSync(process.argv[2]));
console.log(cases.map((c) => verify(c.secret, c.headers, Buffer.from(c.body, "base64")) ? 1 : 0).join(""));
`, []string{"node"}, ""},
	{"python", "verify.py", "", `
import json, sys
print("".join("1" if verify(c["secret"], c["headers"], base64.b64decode(c["body"])) else "0" for c in json.load(open(sys.argv[1]))))
`, []string{"python3"}, ""},
	{"java", "Verify.java", "", `
    public static void main(String[] args) throws Exception {
        var utf8 = StandardCharsets.UTF_8;
        for (String line : java.nio.file.Files.readAllLines(java.nio.file.Path.of(args[0]).resolveSibling("cases.txt"), utf8)) {
            var part = line.split(" ", -1);
            var headers = new java.util.HashMap<String, String>();
            for (int i = 0; i < 3; i++)
                if (!part[i + 2].equals("-"))
                    headers.put(java.util.List.of("webhook-id", "webhook-timestamp", "webhook-signature").get(i), new String(Base64.getDecoder().decode(part[i + 2]), utf8));
            System.out.print(verify(part[0], headers::get, Base64.getDecoder().decode(part[1])) ? 1 : 0);
        }
    }
}
`, []string{"java"}, "class Verify {"},
}

// lines are the cases for a language whose library reads no JSON: secret, body, id, timestamp and signature, the latter
// four in base64, and - for what is missing.
func lines(cases []snippetCase) string {
	var text strings.Builder
	for _, c := range cases {
		text.WriteString(c.Secret + " " + c.Body)
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			value, there := c.Headers[name]
			if value = base64.StdEncoding.EncodeToString([]byte(value)); !there {
				value = "-"
			}
			text.WriteString(" " + value)
		}
		text.WriteString("\n")
	}
	return text.String()
}

type snippetCase struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// C97: what the README gives to people verifies what is sent: any bytes, the signature of the
// secret at hand wherever it stands, and nothing that is not ours, or old.
func TestTheSnippetsOfTheReadmeVerifyAnyBytes(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, want := snippetCases(t)
	for _, s := range snippets {
		t.Run(s.fence, func(t *testing.T) {
			_, rest, ok := strings.Cut(string(readme), "```"+s.fence+"\n")
			code, _, ends := strings.Cut(rest, "\n```")
			if !ok || !ends || !strings.Contains(strings.ToLower(code), "verify(") {
				t.Fatal("the README has no such snippet")
			}
			if s.class != "" {
				code = strings.Replace(code, "\n\n", "\n\n"+s.class+"\n", 1)
			}
			if _, err := exec.LookPath(s.command[0]); err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatalf("%s is missing, and CI has to check that the snippets of the README verify", s.command[0])
				}
				t.Skipf("THE SNIPPET FOR %s OF THE README IS NOT CHECKED: %s is missing", strings.ToUpper(s.fence), s.command[0])
			}
			dir := t.TempDir()
			data, err := json.Marshal(cases)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{s.file: s.begin + code + "\n" + s.end, "cases.json": string(data), "cases.txt": lines(cases)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), s.command[0], append(s.command[1:], filepath.Join(dir, s.file), filepath.Join(dir, "cases.json"))...)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%v: %s; want %s", err, got, want)
			}
		})
	}
}

// snippetCases are requests, and 1 or 0 for each that is to be taken or not.
func snippetCases(t *testing.T) (cases []snippetCase, want string) {
	t.Helper()
	now := time.Now()
	secret, other := secretOf(24), secretOf(64)
	sign := func(secret string, at time.Time, body []byte) string {
		text, err := webhook.Sign(secret, "msg_1", at, body)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	add := func(taken bool, body []byte, at time.Time, signature string) {
		headers := map[string]string{"webhook-id": "msg_1", "webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": signature}
		cases = append(cases, snippetCase{secret, headers, base64.StdEncoding.EncodeToString(body)})
		if taken {
			want += "1"
		} else {
			want += "0"
		}
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, body := range [][]byte{[]byte(`{"a":1}`), {}, every, {0xff, 0xfe, 0, '\r', '\n'}, []byte("\xef\xbb\xbf{}"), []byte("€🙂")} {
		mine, others := sign(secret, now, body), sign(other, now, body)
		add(true, body, now, mine)
		add(true, body, now, others+" "+mine)
		add(true, body, now, mine+" "+others)
		add(false, body, now, others)
		add(false, append(slices.Clone(body), 'x'), now, mine)
		add(false, body, now, strings.TrimPrefix(mine, "v1,"))
		add(false, body, now, "")
		add(false, body, now, mine[:len(mine)-1])
		add(false, body, now, "v1,é")
		for _, off := range []time.Duration{-time.Hour, time.Hour} {
			add(false, body, now.Add(off), sign(secret, now.Add(off), body))
		}
		add(false, body, now.Add(time.Minute), mine)
	}
	for _, missing := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		add(false, nil, now, sign(secret, now, nil))
		delete(cases[len(cases)-1].Headers, missing)
	}
	add(false, nil, now, sign(secret, now, nil))
	cases[len(cases)-1].Headers["webhook-timestamp"] = "NaN"
	return cases, want
}
