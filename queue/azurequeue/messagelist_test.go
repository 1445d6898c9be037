package azurequeue

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
)

// anyList is a list of messages as encoding/xml reads it.
type anyList struct {
	XMLName  xml.Name `xml:"QueueMessagesList"`
	Messages []struct {
		ID       string `xml:"MessageId"`
		Receipt  string `xml:"PopReceipt"`
		Text     string `xml:"MessageText"`
		Count    int64  `xml:"DequeueCount"`
		Inserted string `xml:"InsertionTime"`
		Expires  string `xml:"ExpirationTime"`
	} `xml:"QueueMessage"`
}

func messageXML(text string) string {
	return "<QueueMessage><MessageId>0b4d1b5e-6f7a</MessageId><InsertionTime>Fri, 09 Oct 2026 21:04:30 GMT</InsertionTime>" +
		"<ExpirationTime>Fri, 16 Oct 2026 21:04:30 GMT</ExpirationTime><PopReceipt>AgAA+/==</PopReceipt>" +
		"<TimeNextVisible>Fri, 09 Oct 2026 23:29:20 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>" +
		"<MessageText>" + text + "</MessageText></QueueMessage>"
}

const listHead = "\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?>"

func listXML(messages ...string) string {
	return listHead + "<QueueMessagesList>" + strings.Join(messages, "") + "</QueueMessagesList>"
}

func TestMessagesAreReadAsTheServiceWritesThem(t *testing.T) {
	texts := map[string]string{
		"plain": "plain", "": "", " a \n\tb ": " a \n\tb ", "&lt;a b=&quot;c&quot;&gt;&amp;amp;&apos;": `<a b="c">&amp;'`,
		"&#xD;&#10;&#x1F642;é🙂": "\r\n🙂é🙂", "]] >": "]] >", "]]&gt;": "]]>",
	}
	for escaped, want := range texts {
		got, ok := parseMessages([]byte(listXML(messageXML(escaped), messageXML("second"))))
		if !ok || len(got) != 2 || string(got[0].text) != want || string(got[1].text) != "second" {
			t.Errorf("%q: %+v, ok %t; want %q", escaped, got, ok, want)
			continue
		}
		m := got[0]
		at := time.Date(2026, 10, 9, 21, 4, 30, 0, time.UTC)
		if m.id != "0b4d1b5e-6f7a" || m.receipt != "AgAA+/==" || m.dequeueCount != 3 || !m.inserted.Equal(at) || !m.expires.Equal(at.Add(7*24*time.Hour)) {
			t.Errorf("read %+v", m)
		}
	}
	for _, empty := range []string{listHead + "<QueueMessagesList />", "<QueueMessagesList/>\n", listXML(), listHead + "\r\n<QueueMessagesList>\r\n </QueueMessagesList>"} {
		if got, ok := parseMessages([]byte(empty)); !ok || len(got) != 0 {
			t.Errorf("%q: %v, ok %t; want an empty list", empty, got, ok)
		}
	}
}

func TestWhatTheReaderIsNotSureAboutIsLeftToTheSDK(t *testing.T) {
	for _, text := range []string{
		"<![CDATA[a]]>", "a<!-- -->b", "&nbsp;", "&#0;", "&#xD800;", "&#x110000;", "&", "&amp", "a\rb", "\x01", "\xff", "\uffff", "]]>", "<b/>", "&#-1;", "&#x;",
	} {
		if got, ok := parseMessages([]byte(listXML(messageXML(text)))); ok {
			t.Errorf("text %q was read as %+v", text, got)
		}
	}
	good := listXML(messageXML("a"))
	for i := range len(good) {
		if got, ok := parseMessages([]byte(good[:i])); ok {
			t.Fatalf("an answer cut after %d bytes was read as %v", i, got)
		}
	}
	for _, change := range [][2]string{
		{"</QueueMessagesList>", "</QueueMessagesList>x"}, {"<QueueMessagesList>", "<QueueMessagesList a='b'>"}, {"<QueueMessagesList>", "<!DOCTYPE a><QueueMessagesList>"},
		{"<DequeueCount>3", "<DequeueCount>three"}, {"GMT</Ins", "CET</Ins"}, {"<MessageId>", "<MessageId>x</MessageId><MessageId>"},
		{"<PopReceipt>AgAA+/==</PopReceipt>", "<Unknown>x</Unknown>"}, {"</MessageId>", "</MessageID>"},
	} {
		changed := strings.Replace(good, change[0], change[1], 1)
		if changed == good {
			t.Fatalf("%q is not in the answer", change[0])
		}
		if got, ok := parseMessages([]byte(changed)); ok {
			t.Errorf("an answer with %q was read as %v", change[1], got)
		}
	}
}

// FuzzMessages compares with encoding/xml: whatever is read here, it reads the same.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{listXML(messageXML("a&amp;b")), listXML(), listHead + "<QueueMessagesList />", listXML(messageXML("&#x41;"), messageXML("\n"))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := parseMessages(b)
		if !ok {
			return
		}
		var want anyList
		if err := xml.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q was read, and is %v", b, err)
		}
		if len(got) != len(want.Messages) {
			t.Fatalf("%q: %d messages, want %d", b, len(got), len(want.Messages))
		}
		for i, w := range want.Messages {
			g := got[i]
			if g.id != w.ID || g.receipt != w.Receipt || !bytes.Equal(g.text, []byte(w.Text)) || g.dequeueCount != w.Count {
				t.Errorf("%q: %+v, want %+v", b, g, w)
			}
		}
	})
}

// FuzzText escapes texts as the service and our stand-in do.
func FuzzText(f *testing.F) {
	f.Add("a<b>&'\"\r\n\té🙂]]>")
	f.Fuzz(func(t *testing.T, s string) {
		var escaped strings.Builder
		if err := xml.EscapeText(&escaped, []byte(s)); err != nil {
			t.Skip()
		}
		var want string
		if err := xml.Unmarshal(fmt.Appendf(nil, "<a>%s</a>", escaped.String()), &want); err != nil {
			t.Skip()
		}
		got, ok := parseMessages([]byte(listXML(messageXML(escaped.String()))))
		if !ok || len(got) != 1 || string(got[0].text) != want {
			t.Errorf("%q: %+v, ok %t", want, got, ok)
		}
	})
}

func BenchmarkParseMessages(b *testing.B) {
	var messages []string
	for range 32 {
		messages = append(messages, messageXML(strings.Repeat(`{&quot;k&quot;:&quot;value&quot;}`, 40)))
	}
	answer := []byte(listXML(messages...))
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := parseMessages(answer); !ok {
				b.Fatal("not read")
			}
		}
	})
	b.Run("encoding/xml", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var l anyList
			if err := xml.Unmarshal(answer, &l); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// receiveFrom receives from a queue service and says who read the answer.
func receiveFrom(t *testing.T, connection, name string) (messages []received, here bool) {
	t.Helper()
	cfg, err := azureconn.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	q, err := s.Queue(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a <b>", "é\r\n"} {
		if strings.HasPrefix(connection, "QueueEndpoint") {
			break // it answers whatever it is asked
		}
		if _, err := q.Send(t.Context(), []byte(text), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	err = s.transport.do(t.Context(), opReceive, name, func(ctx context.Context) (err error) {
		messages, err = q.(*azureQueue).dequeue(ctx, 32, time.Minute)
		here = callFrom(ctx).read
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return messages, here
}

func TestTheEmulatorsAnswersAreReadHere(t *testing.T) {
	messages, here := receiveFrom(t, azuritetest.Start(t).ConnectionString(), azuritetest.Name("read-here"))
	if !here || len(messages) != 2 || string(messages[0].text) != "a <b>" || string(messages[1].text) != "é\r\n" {
		t.Errorf("read %+v here: %t", messages, here)
	}
}

// Answers are read into buffers that are used again, while what was received is kept.
func TestWhatWasReceivedStaysAsItWas(t *testing.T) {
	s := newAnswering(t, func(w http.ResponseWriter, r *http.Request) {
		text := strings.Repeat(strings.Split(r.URL.Path, "/")[2], 2000)
		if strings.HasPrefix(text, "sdk") { // it has to read it itself
			text = "<![CDATA[" + text + "]]>"
		}
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, listXML(messageXML(text), messageXML("&lt;"+text)))
	})
	var receivers sync.WaitGroup
	for _, name := range []string{"here-1", "here-2", "here-3", "sdk-1", "sdk-2", "sdk-3"} {
		q, err := s.Queue(name)
		if err != nil {
			t.Fatal(err)
		}
		receivers.Go(func() {
			var all []*queue.Message
			for range 20 {
				got, err := q.Receive(t.Context(), 32, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				all = append(all, got...)
			}
			want := strings.Repeat(name, 2000)
			for i, m := range all {
				if string(m.Text) != strings.Repeat("<", i%2)+want || m.ID != "0b4d1b5e-6f7a" || m.Lease.Receipt() != "AgAA+/==" {
					t.Errorf("message %d of %s has the id %s, the receipt %s and %d bytes that begin with %.20q", i, name, m.ID, m.Lease.Receipt(), len(m.Text), m.Text)
				}
			}
		})
	}
	receivers.Wait()
}

// newAnswering is a client of a queue service that answers so.
func newAnswering(t *testing.T, answer http.HandlerFunc) *Service {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	cfg, err := azureconn.Parse("QueueEndpoint=" + server.URL + "/acct;" + withSAS)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestTheSDKReadsWhatIsWrittenOtherwise(t *testing.T) {
	for text, wantHere := range map[string]bool{"a<![CDATA[&]]>b": false, "a&amp;b": true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			_, _ = io.WriteString(w, listXML(messageXML(text)))
		}))
		t.Cleanup(server.Close)
		messages, here := receiveFrom(t, "QueueEndpoint="+server.URL+"/acct;SharedAccessSignature=sv=1&sig=x", "orders")
		at := time.Date(2026, 10, 9, 21, 4, 30, 0, time.UTC)
		if here != wantHere || len(messages) != 1 {
			t.Fatalf("read %+v here: %t", messages, here)
		}
		m := messages[0]
		if string(m.text) != "a&b" || m.id != "0b4d1b5e-6f7a" || m.receipt != "AgAA+/==" || m.dequeueCount != 3 ||
			!m.inserted.Equal(at) || !m.expires.Equal(at.Add(7*24*time.Hour)) {
			t.Errorf("read %+v here: %t", m, here)
		}
	}
}
