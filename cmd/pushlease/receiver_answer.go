package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// reply is what a receiver answers to one request.
type reply struct {
	Status int
	// RetryAfter is the header of that name; empty for none.
	RetryAfter string
	// Delay is waited before the answer.
	Delay time.Duration
	// Body is the answer's body; empty for the status' text, unless a ContentType is named.
	Body string
	// ContentType and Decision are headers of an answer that was forwarded.
	ContentType, Decision string
}

// matchRule answers requests whose body has a text.
type matchRule struct {
	Substring string
	Reply     reply
}

// maxDelay bounds how long a receiver lets a request wait.
const maxDelay = time.Hour

// parseReply reads STATUS[,retry-after=…][,delay=…][,body=…]. A body goes on to
// the end, commas included. What is not said is taken from base; a Retry-After
// in base is only for answers that are no success.
func parseReply(text string, base reply) (reply, error) {
	status, rest, more := strings.Cut(text, ",")
	r := base
	var err error
	if r.Status, err = parseStatus(status); err != nil {
		return reply{}, err
	}
	if r.Status/100 == 2 {
		r.RetryAfter = ""
	}
	for more {
		var name, value string
		name, value, _ = strings.Cut(rest, "=")
		name = strings.TrimSpace(name)
		if name == "body" {
			r.Body = value
			return r, nil
		}
		value, rest, more = strings.Cut(value, ",")
		switch name {
		case "retry-after":
			r.RetryAfter, err = parseRetryAfter(strings.TrimSpace(value))
		case "delay":
			r.Delay, err = parseDelay(strings.TrimSpace(value))
		default:
			err = fmt.Errorf("%q is not known; use retry-after=…, delay=… or body=…", name)
		}
		if err != nil {
			return reply{}, err
		}
	}
	return r, nil
}

func parseStatus(text string) (int, error) {
	status, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || status < 200 || status > 599 {
		return 0, fmt.Errorf("%q is not a status to answer; use 200 to 599", text)
	}
	return status, nil
}

// parseRetryAfter takes seconds or a date, the two forms that the header has.
// Nothing else could be tested with it, and a line break would be another header.
func parseRetryAfter(text string) (string, error) {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		return text, nil
	}
	if _, err := http.ParseTime(text); err == nil {
		return text, nil
	}
	return "", fmt.Errorf("%q is not a Retry-After; use seconds, such as 5 (or a date, in --retry-after)", text)
}

func parseDelay(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxDelay {
		return 0, fmt.Errorf("%q is not a delay; use 0s to %s", text, maxDelay)
	}
	return d, nil
}

// parseMatch reads SUBSTRING=>REPLY. The last => divides, so that the text looked
// for may have one.
func parseMatch(text string, base reply) (matchRule, error) {
	i := strings.LastIndex(text, "=>")
	if i <= 0 {
		return matchRule{}, fmt.Errorf("%q is not SUBSTRING=>ANSWER; write 'order 7=>503,retry-after=2'", text)
	}
	r, err := parseReply(text[i+2:], base)
	return matchRule{Substring: text[:i], Reply: r}, err
}

// maxScript bounds the length of a script.
const maxScript = 1000

// parseScript reads the statuses that a message is answered with, one after the
// other: 503,503,200.
func parseScript(text string, base reply) ([]reply, error) {
	var script []reply
	for item := range strings.SplitSeq(text, ",") {
		r, err := parseReply(item, base)
		if err != nil {
			return nil, err
		}
		script = append(script, r)
	}
	if len(script) > maxScript {
		return nil, fmt.Errorf("the script has %d steps; use at most %d", len(script), maxScript)
	}
	return script, nil
}
