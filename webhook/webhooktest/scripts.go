package webhooktest

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Answer reads requests and answers each with the same bytes.
func Answer(answer string) Script {
	return func(c *Conn) {
		for {
			if _, _, err := c.ReadRequest(); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

// Silence accepts and never says anything.
func Silence(c *Conn) { _, _ = io.Copy(io.Discard, c.in) }

// Hang reads the request and never answers.
func Hang(c *Conn) {
	if _, _, err := c.ReadRequest(); err == nil {
		Silence(c)
	}
}

// Reset reads the request and ends the connection, over TCP with a reset.
func Reset(c *Conn) {
	_, _, _ = c.ReadRequest()
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// CloseOnReuse answers the first request on a connection with 200 and ends the
// connection when a second one arrives.
func CloseOnReuse(c *Conn) {
	if _, _, err := c.ReadRequest(); err != nil {
		return
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return
	}
	_, _ = c.in.ReadByte()
}

// Drip answers one byte at a time and never ends the head.
func Drip(every time.Duration) Script {
	return repeat("HTTP/1.1 200 OK\r\nX: ", "a", every)
}

// DripBody answers the status at once and the body one byte at a time.
func DripBody(status int, every time.Duration) Script {
	return repeat("HTTP/1.1 "+strconv.Itoa(status)+" X\r\n\r\n", "a", every)
}

// Interim answers with 103 for ever; every 0 is a flood.
func Interim(every time.Duration) Script {
	return repeat("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", every)
}

// EndlessBody answers the status and a body that never ends.
func EndlessBody(status int) Script {
	return repeat("HTTP/1.1 "+strconv.Itoa(status)+" X\r\nContent-Type: text/plain\r\n\r\n", strings.Repeat("a", 32<<10), 0)
}

// LargeBody answers the status and a body of so many bytes.
func LargeBody(status int, size int64) Script {
	head := "HTTP/1.1 " + strconv.Itoa(status) + " X\r\nContent-Length: " + strconv.FormatInt(size, 10) + "\r\n\r\n"
	return func(c *Conn) {
		if _, _, err := c.ReadRequest(); err != nil {
			return
		}
		if _, err := io.WriteString(c, head); err != nil {
			return
		}
		_, _ = io.CopyN(c, zeros{}, size)
	}
}

// LargeHead answers the status and a head of about so many bytes.
func LargeHead(status, size int) Script {
	var head strings.Builder
	head.WriteString("HTTP/1.1 " + strconv.Itoa(status) + " X\r\n")
	for i := 0; head.Len() < size; i++ {
		head.WriteString("X-" + strconv.Itoa(i) + ": " + strings.Repeat("a", 1000) + "\r\n")
	}
	return Answer(head.String() + "Content-Length: 0\r\n\r\n")
}

// GzipBomb answers the status and a compressed body of so many zeros, rounded up to
// whole parts of 64 MiB: a compressed body may consist of several.
func GzipBomb(status int, size int64) Script {
	const part = 64 << 20
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	_, _ = io.CopyN(z, zeros{}, part)
	_ = z.Close()
	parts := int((size + part - 1) / part)
	head := "HTTP/1.1 " + strconv.Itoa(status) + " X\r\nContent-Encoding: gzip\r\nContent-Length: " +
		strconv.Itoa(parts*member.Len()) + "\r\n\r\n"
	return func(c *Conn) {
		if _, _, err := c.ReadRequest(); err != nil {
			return
		}
		_, err := io.WriteString(c, head)
		for range parts {
			if err != nil {
				return
			}
			_, err = c.Write(member.Bytes())
		}
	}
}

// repeat reads a request and writes first, and then next for ever.
func repeat(first, next string, every time.Duration) Script {
	return func(c *Conn) {
		if _, _, err := c.ReadRequest(); err != nil {
			return
		}
		for text := first; ; text = next {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			if every > 0 {
				time.Sleep(every)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
