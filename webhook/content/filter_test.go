package content_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/webhook/content"
)

// filter reads a filter that must be right.
func filter(t testing.TB, text string) content.Filter {
	t.Helper()
	f, problems := content.OverlayFilter(content.Filter{}, []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%s: %v", text, problems)
	}
	return f
}

func takes(t testing.TB, f content.Filter, body string) (bool, string) {
	t.Helper()
	return f.Match(content.Read([]byte(body), ""))
}

func TestFilterOnEventAttributes(t *testing.T) {
	tests := []struct {
		filter string
		want   bool
		reason string
	}{
		{`{}`, true, "there is no filter"},
		{`null`, true, "there is no filter"},
		{`{"types":["com.example.order.paid"]}`, true, "every condition holds"},
		{`{"types":["other","com.example.*"]}`, true, "every condition holds"},
		{`{"types":["*.paid"],"sources":["/shop"],"subjects":["orders/*"]}`, true, "every condition holds"},
		{`{"types":["com.*.order.*"]}`, true, "every condition holds"},
		{`{"types":["*"]}`, true, "every condition holds"},
		{`{"types":["com.example"]}`, false, "types: the event's type is none of them"},
		{`{"types":["com.example.order.paid.*"]}`, false, "types: the event's type is none of them"},
		{`{"types":["Com.Example.*"]}`, false, "types: the event's type is none of them"},
		{`{"types":["*"],"sources":["/sho"]}`, false, "sources: the event's source is none of them"},
		{`{"types":["*"],"subjects":["7"]}`, false, "subjects: the event's subject is none of them"},
		{`{"types":["*"],"fields":[{"field":"data.amount","op":"gt","value":12345678901234567890}]}`, false, "fields[0] (data.amount gt): the field is not greater"},
		{`{"types":["*"],"fields":[{"field":"data.amount","op":"gt","value":12345678901234567889}]}`, true, "every condition holds"},
	}
	for _, test := range tests {
		if got, reason := takes(t, filter(t, test.filter), orderEvent); got != test.want || reason != test.reason {
			t.Errorf("%s: %v, %q; want %v, %q", test.filter, got, reason, test.want, test.reason)
		}
	}
	const none = "types: the message is no event in JSON, neither of CloudEvents 1.0 nor of Event Grid"
	if got, reason := takes(t, filter(t, `{"types":["*"]}`), `{"type":"a"}`); got || reason != none {
		t.Errorf("a message that is no event: %v, %q", got, reason)
	}
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, value string
		want           bool
	}{
		{"a*", "a", true}, {"a*", "ab", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "acb", false},
		{"a**c", "ac", true}, {"*ab*ab*", "abab", true}, {"*ab*ab*", "aba", false}, {"a?c", "abc", false}, {"[a]", "a", false},
		{"*é", "caf\u00e9", true},
	} {
		body, _ := json.Marshal(map[string]string{"specversion": "1.0", "id": "1", "source": "s", "type": test.value})
		if got, _ := takes(t, content.Filter{Types: []string{test.pattern}}, string(body)); got != test.want {
			t.Errorf("%q on %q: %v, want %v", test.pattern, test.value, got, test.want)
		}
	}
}

func TestFilterOnFields(t *testing.T) {
	const body = `{"n":100,"big":9007199254740993,"f":1.50,"t":"abc","u":"\u00e9\n","yes":true,"no":false,"nil":null,
		"o":{"a.b":1,"a/b":2,"~":3,"":4,"x":1,"x":2},"l":[10,"b",{"k":"v"},[1]],"e":[],"0":"zero","time":"2026-01-02T03:04:05Z"}`
	const yes, no = true, false
	tests := []struct {
		field, op, value string
		want             bool
	}{
		{"n", "eq", `100`, yes}, {"n", "eq", `100.0`, yes}, {"n", "eq", `1e2`, yes}, {"n", "eq", `"100"`, no},
		{"n", "ne", `100`, no}, {"n", "ne", `101`, yes}, {"n", "ne", `"100"`, yes}, {"missing", "ne", `1`, yes}, {"missing", "eq", `null`, no},
		{"big", "eq", `9007199254740993`, yes}, {"big", "eq", `9007199254740992`, no}, {"big", "gt", `9007199254740992`, yes},
		{"f", "eq", `1.5`, yes}, {"f", "lt", `1.51`, yes}, {"f", "lte", `1.5`, yes}, {"f", "gt", `-3`, yes},
		{"n", "gte", `100`, yes}, {"n", "gt", `100`, no}, {"n", "lt", `1000`, yes}, {"n", "lt", `99.99`, no}, {"t", "gt", `1`, no}, {"yes", "gt", `0`, no},
		{"time", "gte", `"2026-01-01"`, yes}, {"time", "lt", `"2026-01-01"`, no},
		{"t", "eq", `"abc"`, yes}, {"t", "eq", `"ABC"`, no}, {"u", "eq", `"é\n"`, yes}, {"u", "eq", `"\u00E9\u000a"`, yes},
		{"yes", "eq", `true`, yes}, {"no", "eq", `true`, no}, {"nil", "eq", `null`, yes}, {"nil", "ne", `null`, no}, {"o", "eq", `1`, no}, {"l", "eq", `10`, no},
		{"n", "in", `[1,100]`, yes}, {"n", "in", `["100"]`, no}, {"t", "not_in", `["x"]`, yes}, {"t", "not_in", `["x","abc"]`, no}, {"missing", "not_in", `[1]`, yes}, {"missing", "in", `[null]`, no}, {"nil", "in", `[null]`, yes},
		{"n", "exists", ``, yes}, {"nil", "exists", `true`, yes}, {"missing", "exists", ``, no}, {"missing", "exists", `false`, yes}, {"n", "exists", `false`, no},
		{"t", "prefix", `"ab"`, yes}, {"t", "prefix", `"b"`, no}, {"t", "suffix", `"bc"`, yes}, {"n", "prefix", `"1"`, no},
		{"t", "contains", `"b"`, yes}, {"t", "contains", `"x"`, no}, {"l", "contains", `10`, yes}, {"l", "contains", `"b"`, yes}, {"l", "contains", `1`, no}, {"e", "contains", `1`, no}, {"n", "contains", `100`, no},
		{"l.0", "eq", `10`, yes}, {"l.2.k", "eq", `"v"`, yes}, {"l.3.0", "eq", `1`, yes}, {"l.4", "exists", ``, no}, {"l.-1", "exists", ``, no}, {"l.01", "exists", ``, no}, {"l.k", "exists", ``, no}, {"0", "eq", `"zero"`, yes}, {"n.x", "exists", ``, no},
		{"/o/a.b", "eq", `1`, yes}, {"/o/a~1b", "eq", `2`, yes}, {"/o/~0", "eq", `3`, yes}, {"/o/", "eq", `4`, yes}, {"o.a/b", "eq", `2`, yes},
		{"o.x", "eq", `2`, yes}, {"o.x", "eq", `1`, no},
	}
	for _, test := range tests {
		condition := fmt.Sprintf(`{"field":%q,"op":%q}`, test.field, test.op)
		if test.value != "" {
			condition = fmt.Sprintf(`{"field":%q,"op":%q,"value":%s}`, test.field, test.op, test.value)
		}
		f := filter(t, `{"fields":[`+condition+`]}`)
		if got, reason := takes(t, f, body); got != test.want {
			t.Errorf("%s: %v (%s), want %v", condition, got, reason, test.want)
		}
		for _, other := range []string{"", "plain text", "{", "\xff\xfe\x00\x01", `{"a":1}{"b":2}`} {
			if got, reason := takes(t, f, other); got || !strings.HasSuffix(reason, "the body is not JSON") {
				t.Errorf("%s on %q: %v, %q; want a refusal", condition, other, got, reason)
			}
		}
	}
}

// A document's number is compared exactly, and a monstrous one costs nothing.
func TestNumbersAreComparedExactly(t *testing.T) {
	numbers := []string{
		"-1e999999999999999999999", "-9223372036854775809", "-9223372036854775808", "-1.5", "-0.0000001", "0", "-0", "0e99", "0.000",
		"1e-999999999999999999999", "0.1", "0.10", "1e-1", "1", "1.0", "10e-1", "9", "10", "99.999", "100", "9223372036854775807", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "18446744073709551616.5", "1e40", "1e999999999999999999999",
	}
	for _, got := range numbers {
		for _, want := range numbers {
			if strings.HasSuffix(want, "e999999999999999999999") || strings.HasSuffix(want, "e-999999999999999999999") {
				continue // no filter can have it
			}
			order := reference(t, got).Cmp(reference(t, want))
			for op, expected := range map[string]bool{"eq": order == 0, "ne": order != 0, "gt": order > 0, "gte": order >= 0, "lt": order < 0, "lte": order <= 0} {
				f := filter(t, fmt.Sprintf(`{"fields":[{"field":"n","op":%q,"value":%s}]}`, op, want))
				if took, _ := takes(t, f, `{"n":`+got+`}`); took != expected {
					t.Errorf("%s %s %s: %v, want %v", got, op, want, took, expected)
				}
			}
		}
	}
}

// reference reads a number with math/big, where the exponents are cut to what it can do.
func reference(t *testing.T, text string) *big.Rat {
	r, ok := new(big.Rat).SetString(strings.ReplaceAll(text, "999999999999999999999", "999"))
	if !ok {
		t.Fatalf("%q", text)
	}
	return r
}

func TestProblemsNameTheFieldAndTheCure(t *testing.T) {
	long := strings.Repeat("x", 2000)
	tests := []struct{ filter, field, problem string }{
		{`[]`, "", "is not an object"},
		{`{`, "", "is not JSON"},
		{`{"types":[` + strings.TrimSuffix(strings.Repeat(`"`+long[:400]+`",`, 50), ",") + `]}`, "", "has 20161 bytes"},
		{`{"type":["a"]}`, "type", "is not known here"},
		{`{"types":["a"],"types":["b"]}`, "types", "is there twice"},
		{`{"types":"a"}`, "types", "is not a list of texts"},
		{`{"types":[1]}`, "types", "is not a list of texts"},
		{`{"types":["a",""]}`, "types[1]", "is empty"},
		{`{"sources":["a\nb"]}`, "sources[0]", "has characters that are no text"},
		{`{"subjects":["` + long + `"]}`, "subjects[0]", "has 2000 bytes"},
		{`{"types":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 51), ",") + `]}`, "types", "has 51 entries"},
		{`{"fields":{}}`, "fields", "is not a list"},
		{`{"fields":[` + strings.TrimSuffix(strings.Repeat(`{"field":"a","op":"exists"},`, 60), ",") + `]}`, "fields", "has 51 conditions"},
		{`{"fields":["a"]}`, "fields[0]", "is not an object"},
		{`{"fields":[{"field":"a","op":"eq","value":1,"values":[1]}]}`, "fields[0].values", "is not known here"},
		{`{"fields":[{"op":"eq","value":1}]}`, "fields[0].field", "is empty or has an empty name"},
		{`{"fields":[{"field":"a..b","op":"eq","value":1}]}`, "fields[0].field", "is empty or has an empty name"},
		{`{"fields":[{"field":"/a~b","op":"eq","value":1}]}`, "fields[0].field", "has a ~ that is followed by neither 0 nor 1"},
		{`{"fields":[{"field":"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q","op":"exists"}]}`, "fields[0].field", "has 17 names"},
		{`{"fields":[{"field":"` + long + `","op":"exists"}]}`, "fields[0].field", "is not a text of at most 512 bytes"},
		{`{"fields":[{"field":1,"op":"exists"}]}`, "fields[0].field", "is not a text"},
		{`{"fields":[{"field":"a","op":"like","value":1}]}`, "fields[0].op", "is not an operator"},
		{`{"fields":[{"field":"a","value":1}]}`, "fields[0].op", "is not an operator"},
		{`{"fields":[{"field":"a","op":"eq"}]}`, "fields[0].value", "is missing"},
		{`{"fields":[{"field":"a","op":"eq","value":[1]}]}`, "fields[0].value", "is an object or a list"},
		{`{"fields":[{"field":"a","op":"gt","value":true}]}`, "fields[0].value", "has no order"},
		{`{"fields":[{"field":"a","op":"gt","value":1e10000}]}`, "fields[0].value", "is a number that is too long or too large"},
		{`{"fields":[{"field":"a","op":"eq","value":"` + long + `"}]}`, "fields[0].value", "has 2000 bytes"},
		{`{"fields":[{"field":"a","op":"eq","value":"\ud800"}]}`, "fields[0].value", "is a text that is not Unicode"},
		{`{"fields":[{"field":"a","op":"in","value":1}]}`, "fields[0].value", "is not a list"},
		{`{"fields":[{"field":"a","op":"not_in","value":[]}]}`, "fields[0].value", "is an empty list"},
		{`{"fields":[{"field":"a","op":"in","value":[1,{}]}]}`, "fields[0].value[1]", "is an object or a list"},
		{`{"fields":[{"field":"a","op":"in","value":[` + strings.TrimSuffix(strings.Repeat("1,", 101), ",") + `]}]}`, "fields[0].value", "is too long"},
		{`{"fields":[{"field":"a","op":"exists","value":1}]}`, "fields[0].value", "is neither true nor false"},
		{`{"fields":[{"field":"a","op":"prefix","value":1}]}`, "fields[0].value", "is not a text"},
		{`{"fields":[{"field":"a","op":"suffix","value":""}]}`, "fields[0].value", "is empty and would hold for every text"},
		{`{"fields":[{"field":"a","op":"contains"}]}`, "fields[0].value", "is missing"},
	}
	for _, test := range tests {
		f, problems := content.OverlayFilter(content.Filter{}, []byte(test.filter))
		if len(problems) != 1 || problems[0].Field != test.field || problems[0].Problem != test.problem || problems[0].Cure == "" {
			t.Errorf("%.200s: %v; want %s %s", test.filter, problems, test.field, test.problem)
		}
		if !f.IsZero() {
			t.Errorf("%.200s: a filter in spite of the problem", test.filter)
		}
	}
	_, problems := content.OverlayFilter(content.Filter{}, []byte(`{"typs":1,"types":[""],"fields":[{"field":"","op":"eq","value":1},{"field":"a","op":"x"},{"field":"a","op":1}]}`))
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	if want := []string{"typs", "fields[2].op", "types[0]", "fields[0].field", "fields[1].op"}; !slices.Equal(fields, want) {
		t.Errorf("problems in %v, want all of %v", fields, want)
	}
}

// What is stored and read again is the same filter.
func TestFilterKeepsItsJSON(t *testing.T) {
	f := filter(t, `{"types":["a.*"],"fields":[{"field":"n","op":"in","value":[ 12345678901234567890 , 1.50, "é" ]}]}`)
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"types":["a.*"],"fields":[{"field":"n","op":"in","value":[12345678901234567890,1.50,"é"]}]}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	if diff := cmp.Diff(f, filter(t, string(text))); diff != "" {
		t.Error(diff)
	}
}

func TestFilterIsChangedListByList(t *testing.T) {
	base := filter(t, `{"types":["a"],"sources":["s"],"fields":[{"field":"n","op":"exists"}]}`)
	for patch, want := range map[string]string{
		`{}`:                             `{"types":["a"],"sources":["s"],"fields":[{"field":"n","op":"exists"}]}`,
		`{"types":["b","c"]}`:            `{"types":["b","c"],"sources":["s"],"fields":[{"field":"n","op":"exists"}]}`,
		`{"sources":null,"fields":null}`: `{"types":["a"]}`,
		`{"types":[],"fields":[{"field":"m","op":"exists"}]}`: `{"sources":["s"],"fields":[{"field":"m","op":"exists"}]}`,
		`null`: `{}`,
	} {
		got, problems := content.OverlayFilter(base, []byte(patch))
		text, err := json.Marshal(got)
		if err != nil || len(problems) > 0 || string(text) != want {
			t.Errorf("%s: %s, %v, %v; want %s", patch, text, problems, err, want)
		}
	}
	got, problems := content.OverlayFilter(base, []byte(`{"types":["b"],"sources":1}`))
	if diff := cmp.Diff(base, got); diff != "" || len(problems) != 1 {
		t.Error("a bad patch changed something", diff, problems)
	}
	if base.Types[0] != "a" {
		t.Error("the base was changed in place")
	}
}

// A row of a newer version must not lose messages.
func TestUnknownConditionsHold(t *testing.T) {
	f := content.Filter{Fields: []content.Condition{
		{Field: "a", Op: "matches", Value: json.RawMessage(`"x"`)}, {Field: "..", Op: content.OpEqual, Value: json.RawMessage(`1`)}, {Field: "a", Op: content.OpEqual},
	}}
	if took, reason := takes(t, f, `{}`); !took {
		t.Error(reason)
	}
}

// For any filter and body: nothing panics, what passes OverlayFilter passes Validate, the
// negations are negations, and no reason repeats the body.
// C98: Event Grid's own schema is the default of that service.
func TestTypesMatchEventsOfEventGrid(t *testing.T) {
	const event = `{"id":"1807","eventType":"Microsoft.Storage.BlobCreated","topic":"/subscriptions/x","subject":"/blobServices/default/a.txt",
		"eventTime":"2026-03-14T09:26:53Z","data":{"api":"PutBlob"},"dataVersion":"","metadataVersion":"1"}`
	c := content.Read([]byte(event), "application/json")
	for text, want := range map[string]bool{
		`{"types":["Microsoft.Storage.*"]}`: true, `{"types":["microsoft.storage.blobcreated"]}`: false, `{"types":["order.*"]}`: false,
		`{"sources":["/subscriptions/*"],"subjects":["*.txt"]}`: true, `{"subjects":["*.png"]}`: false,
		`{"types":["Microsoft.*"],"fields":[{"field":"data.api","op":"eq","value":"PutBlob"}]}`: true,
	} {
		if got, why := filter(t, text).Match(c); got != want {
			t.Errorf("%s: %v, %s", text, got, why)
		}
	}
	if c.Event != nil {
		t.Error("it counts as a CloudEvents event")
	}
	for _, other := range []string{
		`{"eventType":"a"}`, `[` + event + `]`, strings.Replace(event, `"id"`, `"eventType":"b","id"`, 1), strings.Replace(event, `"1807"`, "7", 1),
		strings.Replace(event, `"dataVersion":"",`, "", 1),
	} {
		if got, _ := filter(t, `{"types":["*"]}`).Match(content.Read([]byte(other), "")); got {
			t.Errorf("%s is taken for an event", other)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("a.b", "eq", `"secret-text"`, []byte(`{"a":{"b":"secret-text"}}`))
	f.Add("/a/0", "in", `[1,2.50,1e3,null]`, []byte(`{"a":[1000,{"b":[]}]}`))
	f.Add("a", "contains", `"\ud83d\ude00"`, []byte(`{"a":"\ud83d\ude00"}`))
	f.Add("a", "lt", `-0.0`, []byte(`{"a":-1e-5}`))
	opposites := map[content.Op]content.Op{content.OpEqual: content.OpNotEqual, content.OpIn: content.OpNotIn}
	f.Fuzz(func(t *testing.T, field, op, value string, body []byte) {
		c := content.Condition{Field: field, Op: content.Op(op), Value: json.RawMessage(value)}
		read := content.Read(body, "")
		content.Filter{Types: []string{field}, Fields: []content.Condition{c}}.Match(read)
		stored := content.Filter{Fields: []content.Condition{c}}
		if len(stored.Validate()) > 0 {
			return
		}
		raw, err := json.Marshal(stored)
		if err != nil {
			t.Fatal(err)
		}
		again, problems := content.OverlayFilter(content.Filter{}, raw)
		if len(problems) > 0 {
			t.Fatalf("%s passes Validate and not OverlayFilter: %v", raw, problems)
		}
		took, reason := stored.Match(read)
		if tookAgain, _ := again.Match(read); took != tookAgain {
			t.Fatalf("%s decides otherwise after a round trip", raw)
		}
		if opposite, ok := opposites[c.Op]; ok && json.Valid(body) {
			c.Op = opposite
			if other, _ := (content.Filter{Fields: []content.Condition{c}}).Match(read); other == took {
				t.Errorf("%s and %s agree on %q", op, opposite, body)
			}
		}
		if strings.Contains(reason, "secret-text") && !strings.Contains(field, "secret-text") {
			t.Errorf("the reason %q repeats the body", reason)
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	f := filter(b, `{"types":["com.example.*"],"fields":[{"field":"data.amount","op":"gte","value":100}]}`)
	body := []byte(orderEvent)
	b.ReportAllocs()
	for b.Loop() {
		f.Match(content.Read(body, "application/json"))
	}
}

// C78: a body is read once for all conditions of all webhooks.
func BenchmarkFiltersOfOneMessage(b *testing.B) {
	for _, size := range []int{300, 60_000} {
		body := []byte(`{"list":[` + strings.TrimSuffix(strings.Repeat(`{"sku":"EU-1","n":12345678},`, size/28), ",") + `],"total":7}`)
		var f content.Filter
		for range 50 {
			f.Fields = append(f.Fields, content.Condition{Field: "total", Op: content.OpGreater, Value: []byte("1")})
		}
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			for b.Loop() {
				c := content.Read(body, "application/json")
				for range 10 { // webhooks
					if ok, why := f.Match(c); !ok {
						b.Fatal(why)
					}
				}
			}
		})
	}
}
