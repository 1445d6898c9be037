package queuetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var sendTests = []test{
	{"XMLSafeTextIsKeptByteForByte", textIsKept},
	{"LargestTextFitsAndOneMoreDoesNot", largestText},
	{"TextThatXMLCannotCarryIsRefused", unsendableText},
	{"EveryBodyTravelsUnderEveryEncoding", bodiesTravel},
	{"SendCreatesTheQueue", sendCreatesQueue},
	{"DelayHidesAtFirst", sendDelay},
	{"ExpiredMessageIsNeverReceived", expiredNeverReceived},
	{"TimeToLive", timeToLive},
	{"OptionsOutOfBoundsAreRefused", optionsRefused},
	{"BadNamesAreRefused", badNames},
	{"ListIsAscending", listAscending},
	{"DepthCounts", depthCounts},
	{"QueuesAreSeparate", queuesSeparate},
}

func textIsKept(s *suite) {
	texts := []string{
		"", " ", "\n", "\r\n", "plain", " leading and trailing ", "\t\ttabs\t", "a\r\nb\rc\nd",
		"]]>", "<![CDATA[x]]>", "<a b=\"c\">&amp;&lt;'</a>", "&#x0;", "emoji 🙂 \U0001F468\u200d\U0001F469", "é\u0301\u200b",
		"\ufffd", "\ufdd0\ufdef", "\U0001FFFE\U0001FFFF\U000EFFFE\U0010FFFF", "\x7f\u0085\u2028", `{"json":[1,2]}`, "SGVsbG8=", "%41+%2B", "--", "'; drop",
	}
	for _, text := range texts {
		s.send(text)
		m := s.one(time.Minute)
		if string(m.Text) != text {
			s.Errorf("sent %q, received %q", text, m.Text)
		}
		if err := s.queue.Complete(s.Context(), m); err != nil {
			s.Fatal(err)
		}
	}
}

func largestText(s *suite) {
	text := strings.Repeat("0123456789abcdef", queue.MaxTextBytes/16)
	s.send(text)
	if m := s.one(time.Minute); string(m.Text) != text {
		s.Errorf("a text of %d bytes came back as %d other bytes", len(text), len(m.Text))
	}
	_, err := s.queue.Send(s.Context(), []byte(text+"x"), queue.SendOptions{})
	if !errors.Is(err, queue.ErrTooLarge) {
		s.Errorf("Send of %d bytes = %v, want ErrTooLarge", len(text)+1, err)
	}
	s.none()
}

func unsendableText(s *suite) {
	s.send("there")
	for _, text := range []string{"\x00", "a\x01b", "\x1b", "\xff", "a\xc3", "\xed\xa0\x80", "\ufffe", "\uffff"} {
		if _, err := s.queue.Send(s.Context(), []byte(text), queue.SendOptions{}); !errors.Is(err, queue.ErrUnsendable) {
			s.Errorf("Send(%q) = %v, want ErrUnsendable", text, err)
		}
	}
	s.one(time.Minute)
}

func bodiesTravel(s *suite) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	bodies := [][]byte{
		{}, every, bytes.Repeat(every, 128), []byte("SEND"), []byte("\xff\xfe\x00"), []byte(`{"a":"🙂"}`),
		[]byte("eyJhIjoxfQ=="), []byte(`{"pushlease":1,"body":"eA=="}`), []byte("line\r\nline"), []byte("\ufeff[1]"),
		[]byte("\ufffe"), []byte("a\uffffb"), []byte("{\"a\":\"\ufffe\ufdd0\U0001FFFF\"}"), []byte("\x00\x0b\x1f\x7f\u0080\u009f"), // which XML has not, or should not have
	}
	for _, setting := range []queue.Encoding{queue.EncodingAuto, queue.EncodingBase64, queue.EncodingNone} {
		for _, body := range bodies {
			text, err := queue.Encode(setting, body, "")
			if err != nil {
				s.Fatalf("Encode(%s, %d bytes): %v", setting, len(body), err)
			}
			s.send(string(text))
			m := s.one(time.Minute)
			got, err := queue.Decode(setting, m.Text)
			if err != nil || !bytes.Equal(got.Bytes, body) {
				s.Errorf("%s: a body of %d bytes (%.40q) came back as %.40q, %v", setting, len(body), body, got.Bytes, err)
			}
			if err := s.queue.Complete(s.Context(), m); err != nil {
				s.Fatal(err)
			}
		}
	}
}

func sendCreatesQueue(s *suite) {
	names, err := s.service.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if slices.Contains(names, s.queue.Name()) {
		s.Fatal("the queue is there before the first Send")
	}
	s.send("a")
	names, err = s.service.List(s.Context())
	if err != nil || !slices.Contains(names, s.queue.Name()) {
		s.Errorf("List = %v, %v, want %s in it after Send", names, err, s.queue.Name())
	}
	// Another handle on the same queue sees the same messages.
	ms, err := s.open(s.queue.Name()).Receive(s.Context(), 1, time.Minute)
	if err != nil || len(ms) != 1 {
		s.Errorf("Receive through a second handle = %d messages, %v, want 1", len(ms), err)
	}
}

func sendDelay(s *suite) {
	start := time.Now()
	// 1.2s is rounded up to 2s.
	s.sendWith("later", queue.SendOptions{Delay: 1200 * time.Millisecond})
	m := s.comesBackAfter(start, 2*time.Second)
	if m.DequeueCount != 1 || string(m.Text) != "later" {
		s.Errorf("received (count %d, %q), want (count 1, later)", m.DequeueCount, m.Text)
	}
}

func expiredNeverReceived(s *suite) {
	s.sendWith("gone", queue.SendOptions{TTL: time.Second})
	s.sendWith("gone while delayed", queue.SendOptions{TTL: 2 * time.Second, Delay: time.Second})
	s.sendWith("there", queue.SendOptions{TTL: time.Hour})
	s.h.Advance(2500 * time.Millisecond)
	if m := s.one(time.Minute); string(m.Text) != "there" {
		s.Errorf("received %q, which has expired", m.Text)
	}
}

func timeToLive(s *suite) {
	for _, tt := range []struct{ ttl, want time.Duration }{
		{0, queue.DefaultTTL},
		{time.Hour, time.Hour},
		{30 * 24 * time.Hour, 30 * 24 * time.Hour},
		{queue.NoExpiry, 0},
	} {
		sent := s.sendWith("a", queue.SendOptions{TTL: tt.ttl})
		m := s.one(time.Minute)
		if !sent.ExpiresAt.Equal(m.ExpiresAt) {
			s.Errorf("TTL %v: Send says it expires at %v, Receive at %v", tt.ttl, sent.ExpiresAt, m.ExpiresAt)
		}
		if tt.ttl == queue.NoExpiry {
			if !m.ExpiresAt.IsZero() {
				s.Errorf("NoExpiry: ExpiresAt = %v, want the zero time", m.ExpiresAt)
			}
			continue
		}
		if d := m.ExpiresAt.Sub(m.InsertedAt) - tt.want; d < -time.Second || d > time.Second {
			s.Errorf("TTL %v: lives %v, want %v", tt.ttl, m.ExpiresAt.Sub(m.InsertedAt), tt.want)
		}
	}
}

func optionsRefused(s *suite) {
	for _, opts := range []queue.SendOptions{
		{Delay: -time.Second},
		{Delay: queue.MaxDelay + time.Second, TTL: queue.NoExpiry},
		{TTL: -2},
		{TTL: time.Minute, Delay: time.Minute},
		{TTL: time.Minute, Delay: time.Hour},
	} {
		if _, err := s.queue.Send(s.Context(), []byte("a"), opts); err == nil {
			s.Errorf("Send with %+v succeeded, want an error", opts)
		}
	}
}

func badNames(s *suite) {
	for _, name := range []string{"", "ab", "Upper", "a--b", "-abc", "abc-", "a_b", "a/b", "a b", "../x", strings.Repeat("a", 64), "ümlaut", "a\x00b"} {
		if q, err := s.service.Queue(name); err == nil {
			s.Errorf("Queue(%q) = %v, want an error", name, q.Name())
		}
	}
	if got := s.open("good-name-1").Name(); got != "good-name-1" {
		s.Errorf("Name = %q, want good-name-1", got)
	}
}

func listAscending(s *suite) {
	prefix := newName()
	want := []string{prefix + "-a", prefix + "-b", prefix + "-c1", prefix + "-c2"}
	for _, i := range []int{2, 0, 3, 1} {
		if _, err := s.open(want[i]).Send(s.Context(), []byte("a"), queue.SendOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	all, err := s.service.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if !slices.IsSorted(all) {
		s.Errorf("List is not ascending: %v", all)
	}
	own := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	if !slices.Equal(own, want) {
		s.Errorf("List has %v, want %v", own, want)
	}
}

func depthCounts(s *suite) {
	for i := range 3 {
		s.send(fmt.Sprint(i))
	}
	s.sendWith("delayed", queue.SendOptions{Delay: time.Hour})
	s.receive(1, time.Minute)
	d, err := s.queue.Depth(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if d.Visible != 2 {
		s.Errorf("Visible = %d, want 2: three sent, one leased, one more delayed", d.Visible)
	}
	if d.Total < 4 || (d.Exact && d.Total != 4) {
		s.Errorf("Total = %d, want 4: leased and delayed ones count", d.Total)
	}
}

func queuesSeparate(s *suite) {
	other := s.open(newName())
	sent := s.send("mine")
	theirs, err := other.Send(s.Context(), []byte("theirs"), queue.SendOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if sent.ID == theirs.ID {
		s.Errorf("two messages have the id %s", sent.ID)
	}
	m := s.one(time.Minute)
	if string(m.Text) != "mine" {
		s.Errorf("received %q from the other queue", m.Text)
	}
	if err := other.Complete(s.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
		s.Errorf("Complete through the other queue = %v, want ErrLeaseLost", err)
	}
	if err := s.queue.Complete(s.Context(), m); err != nil {
		s.Errorf("Complete through its own queue: %v", err)
	}
}
