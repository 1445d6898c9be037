package azureconn

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Right is something that a shared access signature does not allow, and that pushlease
// needs. It holds no part of the signature.
type Right struct {
	// Text says what is wrong, and Cure what to do.
	Text, Cure string
	// Warning: all works as yet. Partly: the API can be served all the same.
	Warning, Partly bool
}

// endsSoon is how long before its end a signature is warned of.
const endsSoon = 7 * 24 * time.Hour

// needs are the permissions of an account's signature, and what goes wrong without them. Source:
// "Create an account SAS", the tables of operations by service.
var needs = []struct {
	permissions string // one of them is enough
	partly      bool
	without     string
}{
	{"r", false, "queues can't be looked into and records can't be read"},
	{"a", false, "nothing can be published, and no record or dead letter written"},
	{"u", false, "messages can't be given back or renewed, and records can't be changed"},
	{"p", true, "nothing can be received or completed"},
	{"d", true, "webhooks and dead letters can't be deleted, and old records not removed"},
	{"l", true, "queues and tables can't be listed"},
	{"cw", true, "queues and tables can't be created"},
}

// SASFaults says what the signature lacks, judged by its own words, before anything is asked of
// storage: its times, services, resource types, permissions, protocol. It is empty for another
// credential, and for a signature that allows all that is needed.
func (c Config) SASFaults(now time.Time) []Right {
	q, err := url.ParseQuery(c.SAS())
	if err != nil || c.Credential != SAS {
		return nil
	}
	const anew = "make a new account SAS with the services queue and table, the resource types service, container and object, and the permissions r, w, d, l, a, c, u and p, and set storage to it"
	if q.Get("ss") == "" || q.Get("srt") == "" {
		return []Right{{Text: "the shared access signature is not one of the account (ss and srt are missing): it reaches one queue or one table only", Cure: anew}}
	}
	var faults []Right
	for _, part := range []struct {
		field, chars, what string
		partly             bool
	}{
		{"ss", "qt", "services (ss)", false}, {"srt", "co", "resource types (srt)", false},
		{"srt", "s", "resource types (srt): queues and tables can't be listed", true},
	} {
		if lacking := without(part.chars, q.Get(part.field)); lacking != "" {
			faults = append(faults, Right{Partly: part.partly, Cure: anew, Text: fmt.Sprintf("the shared access signature lacks %s among its %s", lacking, part.what)})
		}
	}
	for _, n := range needs {
		if !strings.ContainsAny(q.Get("sp"), n.permissions) {
			faults = append(faults, Right{Partly: n.partly, Cure: anew, Text: fmt.Sprintf("the shared access signature lacks the permission %s (sp): %s", strings.Join(strings.Split(n.permissions, ""), " or "), n.without)})
		}
	}
	if q.Get("spr") == "https" && (strings.HasPrefix(c.QueueURL, "http:") || strings.HasPrefix(c.TableURL, "http:")) {
		faults = append(faults, Right{Text: "the shared access signature is for https only (spr), and the account's address is http", Cure: "write the addresses with https, or " + anew})
	}
	faults = append(faults, sasTimes(q, now, anew)...)
	if ip := q.Get("sip"); ip != "" {
		faults = append(faults, Right{Warning: true, Text: "the shared access signature is for requests from certain addresses only (sip); from others everything is refused", Cure: "check that this machine's outgoing address is among them"})
	}
	return faults
}

// sasTimes judges when the signature is in force.
func sasTimes(q url.Values, now time.Time, anew string) (faults []Right) {
	if begin, ok := sasTime(q.Get("st")); ok && begin.After(now) {
		faults = append(faults, Right{Text: "the shared access signature is not in force before " + begin.UTC().Format(time.RFC3339) + " (st)", Cure: "wait until then, set this machine's clock right, or " + anew})
	}
	end, ok := sasTime(q.Get("se"))
	switch {
	case !ok:
		faults = append(faults, Right{Text: "the shared access signature has no end (se) that can be read", Cure: anew})
	case !end.After(now):
		faults = append(faults, Right{Text: "the shared access signature has ended at " + end.UTC().Format(time.RFC3339) + " (se)", Cure: anew})
	case end.Sub(now) < endsSoon:
		faults = append(faults, Right{Warning: true, Text: "the shared access signature ends at " + end.UTC().Format(time.RFC3339) + " (se)", Cure: anew})
	}
	return faults
}

// without names the characters that have is without.
func without(chars, have string) string {
	var lacking []string
	for _, c := range chars {
		if !strings.ContainsRune(have, c) {
			lacking = append(lacking, string(c))
		}
	}
	return strings.Join(lacking, ", ")
}

// sasTime reads a time in the formats that the service takes. Source: "Create a service SAS".
func sasTime(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
