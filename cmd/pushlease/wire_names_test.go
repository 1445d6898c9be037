//go:build linux

package main

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pushlease/pushlease/internal/wire"
)

// nameServer is the one that the program asks. It answers in the order that isAt was told.
type nameServer struct {
	t *testing.T

	mu      sync.Mutex
	names   map[string][]netip.Addr
	unusual map[string]unusualAnswer
}

// unusualAnswer changes what is answered about a name, which is asked for over UDP or TCP; false is no answer at all.
type unusualAnswer func(reply *dnsmessage.Message, overTCP bool) bool

// datagram is the longest answer over UDP that the program says it takes.
const datagram = 1232

func startNames(t *testing.T, w *wire.Wire) *nameServer {
	t.Helper()
	s := &nameServer{t: t, names: map[string][]netip.Addr{}, unusual: map[string]unusualAnswer{}}
	c, err := w.Far.ListenPacket("udp", server(53).String()+":53")
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Far.Listen("tcp", server(53).String()+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = l.Close()
	})
	go s.answer(c)
	go s.answerOverTCP(l)
	return s
}

// isAt says where a name leads from now on.
func (s *nameServer) isAt(name string, addresses ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = addresses
	delete(s.unusual, name)
}

// answers says how answers about a name are changed until isAt is told of it.
func (s *nameServer) answers(name string, unusual unusualAnswer, addresses ...netip.Addr) {
	s.isAt(name, addresses...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unusual[name] = unusual
}

func (s *nameServer) answer(c net.PacketConn) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		if packed := s.about(buffer[:n], false); packed != nil {
			_, _ = c.WriteTo(packed, from) // who asked asks again
		}
	}
}

func (s *nameServer) answerOverTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			question := make([]byte, int(size[0])<<8|int(size[1]))
			if _, err := io.ReadFull(c, question); err != nil {
				return
			}
			if packed := s.about(question, true); packed != nil {
				_, _ = c.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)) // who asked asks again
			}
		}()
	}
}

// about is the answer to a question; nil when there is none.
func (s *nameServer) about(asked []byte, overTCP bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(asked) != nil || len(m.Questions) != 1 {
		return nil
	}
	question := m.Questions[0]
	name := strings.TrimSuffix(question.Name.String(), ".")
	s.mu.Lock()
	addresses, known := s.names[name]
	unusual := s.unusual[name]
	s.mu.Unlock()
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		header := dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: dnsmessage.ClassINET}
		switch {
		case question.Type == dnsmessage.TypeA && a.Is4():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case question.Type == dnsmessage.TypeAAAA && a.Is6():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	if unusual != nil && !unusual(&reply, overTCP) {
		return nil
	}
	packed, err := reply.Pack()
	if err == nil && len(packed) > datagram && !overTCP {
		reply.Truncated, reply.Answers = true, nil
		packed, err = reply.Pack()
	}
	if err != nil {
		s.t.Errorf("an answer about %s: %v", question.Name, err)
		return nil
	}
	return packed
}

// silent, refuses and leadsTo are answers of name servers that are ill.
func silent(of ...dnsmessage.Type) unusualAnswer {
	return func(reply *dnsmessage.Message, _ bool) bool { return !isOf(reply, of) }
}

func refuses(code dnsmessage.RCode, of ...dnsmessage.Type) unusualAnswer {
	return func(reply *dnsmessage.Message, _ bool) bool {
		if isOf(reply, of) {
			reply.RCode, reply.Answers = code, nil
		}
		return true
	}
}

// leadsTo makes each name the alias of the next one, before the addresses, if there are any.
func leadsTo(names ...string) unusualAnswer {
	return func(reply *dnsmessage.Message, _ bool) bool {
		addresses, from := reply.Answers, reply.Questions[0].Name
		reply.Answers = nil
		for _, name := range names {
			to := dnsmessage.MustNewName(name + ".")
			header := dnsmessage.ResourceHeader{Name: from, Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: to}})
			from = to
		}
		for _, a := range addresses {
			a.Header.Name = from
			reply.Answers = append(reply.Answers, a)
		}
		return true
	}
}

func isOf(reply *dnsmessage.Message, types []dnsmessage.Type) bool {
	for _, t := range types {
		if reply.Questions[0].Type == t {
			return true
		}
	}
	return false
}

// TestWhatNameServersAnswer: whatever that is, a receiver that has an address is found, and where none is told the
// attempt says so, nothing is given up, and the message is delivered once the name leads there again (C105, C115).
func TestWhatNameServersAnswer(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", time.Millisecond)
	p := f.start()
	const four, six = dnsmessage.TypeA, dnsmessage.TypeAAAA
	far6 := netip.MustParseAddr("fd77:1::1")
	many := make([]netip.Addr, 0, 200)
	for n := range 200 {
		many = append(many, server(byte(1+n%50)))
	}
	foreign := func(reply *dnsmessage.Message, _ bool) bool { reply.ID++; return true }
	for name, tt := range map[string]struct {
		answer    unusualAnswer
		addresses []netip.Addr
		says      string // of the first attempt, when it fails
	}{
		"no-such-name":            {refuses(dnsmessage.RCodeNameError, four, six), nil, "the host name does not exist or has no address"},
		"nothing":                 {refuses(dnsmessage.RCodeSuccess, four, six), nil, "the host name does not exist or has no address"},
		"server-failure":          {refuses(dnsmessage.RCodeServerFailure, four, six), nil, "the host name could not be resolved"},
		"refused":                 {refuses(dnsmessage.RCodeRefused, four, six), nil, "the host name could not be resolved"},
		"silence":                 {silent(four, six), nil, "the host name could not be resolved"},
		"answers-to-others":       {foreign, []netip.Addr{server(1)}, "the host name could not be resolved"},
		"alias-of-itself":         {leadsTo("loop.test", "alias-of-itself.test"), nil, "the host name does not exist or has no address"},
		"failure-for-one-no-six":  {refuses(dnsmessage.RCodeServerFailure, four), nil, "the host name could not be resolved"},
		"failure-for-six-no-four": {refuses(dnsmessage.RCodeServerFailure, six), nil, "the host name could not be resolved"},
		"failure-for-six":         {refuses(dnsmessage.RCodeServerFailure, six), []netip.Addr{server(1)}, ""},
		"no-such-name-for-six":    {refuses(dnsmessage.RCodeNameError, six), []netip.Addr{server(1)}, ""},
		"failure-for-four":        {refuses(dnsmessage.RCodeServerFailure, four), []netip.Addr{far6}, ""},
		"silence-for-six":         {silent(six), []netip.Addr{server(1)}, ""},
		"aliases":                 {leadsTo("a.test", "b.test", "c.test"), []netip.Addr{server(1)}, ""},
		"too-long-for-a-datagram": {nil, many, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, queue := name+".test", queueName(name)
			f.names.answers(host, tt.answer, tt.addresses...)
			hook := p.register(queue, strings.Replace(f.url, receiverName, host, 1), map[string]any{
				"timeout": "30s", "policy": map[string]any{"max_attempts": 60, "backoff": map[string]any{"delays": []string{"1s"}}},
			})
			id := p.publish(queue, bodyMark)
			if tt.says != "" {
				waitUntil(t, time.Minute, func() string {
					if all := p.attempts(queue); len(all) > 0 {
						return ""
					}
					return "no attempt"
				})
				first := p.attempts(queue)[0]
				if first.Status != 0 || first.ErrorClass != "dns" || !strings.Contains(first.Error, tt.says) {
					t.Errorf("the first attempt is %+v", first)
				}
				f.names.isAt(host, server(1))
			}
			p.waitState(time.Minute, queue, id, hook.ID, "delivered")
			all := p.attempts(queue)
			if last := all[len(all)-1]; last.Status != http.StatusOK || tt.says == "" && len(all) > 1 {
				t.Errorf("attempts are %+v", all)
			}
		})
	}
}
