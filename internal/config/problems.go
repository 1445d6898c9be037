package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	// Setting is the name of the setting or variable.
	Setting string
	// Where says where the value came from: a flag, a variable or a file.
	Where string
	// Text says what is wrong and what to do about it.
	Text string
}

// Error lists everything that is wrong, so that one start shows it all.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("the configuration is not valid:")
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.Setting)
		if p.Where != "" && p.Where != p.Setting {
			b.WriteString(" (" + p.Where + ")")
		}
		b.WriteString(": " + p.Text)
	}
	return b.String()
}

type problems []Problem

func (p *problems) add(setting, where, text string) {
	*p = append(*p, Problem{Setting: setting, Where: where, Text: text})
}

// contradictions finds settings that are good alone and bad together. Settings
// that could not be read are zero here, and say nothing.
func (p *problems) contradictions(c Config, values map[string]value, env map[string]string) {
	add := func(name, text string) { p.add(name, values[name].where, text) }
	if c.PollMin > 0 && c.PollMax > 0 && c.PollMin > c.PollMax {
		add("poll_min", c.PollMin.String()+" is above poll_max, "+c.PollMax.String()+"; lower poll_min or raise poll_max")
	}
	if c.MaxInFlight > 0 && c.MaxInFlight < c.Concurrency {
		add("max_in_flight", strconv.Itoa(c.MaxInFlight)+" for all queues is below concurrency, "+strconv.Itoa(c.Concurrency)+" for each; raise max_in_flight or lower concurrency")
	}
	if c.PoisonCopyTTL > c.Retention && c.Retention > 0 {
		add("poison_copy_ttl", c.PoisonCopyTTL.String()+" is longer than retention, "+c.Retention.String()+": the record that says whose copy it is would be gone before it; raise retention or lower poison_copy_ttl")
	}
	if c.Listen != "" && !loopback(c.Listen) && values["api_keys"].text == "" {
		if c.Dev {
			add("dev", "development mode on "+c.Listen+" without api_keys would let everyone on the network make this machine send requests to itself; listen on 127.0.0.1, or set api_keys")
		} else {
			add("listen", c.Listen+" can be reached from outside, and there are no api_keys; set api_keys (pushlease api-key new), or listen on 127.0.0.1")
		}
	}
	if c.ManagedIdentityClientID != "" && c.Storage.Kind() == StorageConnection {
		add("managed_identity_client_id", "storage is a connection string, which signs in by itself; use storage azure:<account>, or unset this")
	}
	for _, allowed := range c.AllowCIDRs {
		i := slices.IndexFunc(c.DenyCIDRs, func(denied netip.Prefix) bool {
			return denied.Bits() <= allowed.Bits() && denied.Contains(allowed.Addr())
		})
		if i >= 0 {
			add("allow_cidrs", allowed.String()+" lies within "+c.DenyCIDRs[i].String()+" of deny_cidrs, which wins; remove it from one of them")
		}
	}
	if c.OTLPEndpoint != "" && strings.EqualFold(env["OTEL_SDK_DISABLED"], "true") {
		add("otlp_endpoint", "OTEL_SDK_DISABLED=true switches off what this switches on; unset one of them")
	}
}

// suggest names the known name that is nearest to a wrong one, if one is near.
func suggest(name string, known []string, otherwise string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return otherwise + ", or see docs/configuration.md for the settings there are"
	}
	return "did you mean " + best + "?"
}

// editDistance is the Levenshtein distance of two short names.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
