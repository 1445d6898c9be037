package config

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// The errors of these functions say what is wrong and what to write instead.

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

type prefixes []netip.Prefix

func parseDuration(v string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; write a number and a unit, such as 500ms, 30s or 1h30m", v)
	case d < least || d > most:
		return 0, fmt.Errorf("%s is out of range; use %s to %s", d, least, most)
	}
	return d, nil
}

func parseInt(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", v, least, most)
	}
	return n, nil
}

func parseBool(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", v)
	}
	return b, nil
}

func oneOf(v string, allowed ...string) (string, error) {
	if !slices.Contains(allowed, v) {
		return "", fmt.Errorf("%q is not known; use %s", v, strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1])
	}
	return v, nil
}

func parseLevel(v string) (slog.Level, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	l, ok := levels[strings.ToLower(v)]
	if !ok {
		return 0, fmt.Errorf("%q is not a level; use debug, info, warn or error", v)
	}
	return l, nil
}

func parseListen(v string) (string, error) {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return "", fmt.Errorf("%q is not host:port; write 127.0.0.1:8080, or :8080 for all addresses", v)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("%q is not a port; use 0 to 65535", port)
	}
	port = strconv.FormatUint(n, 10)
	if host != "" && host != "localhost" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("%q is not an IP address; write an address such as 127.0.0.1 or 0.0.0.0, or localhost", host)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// loopback reports whether only this machine can reach the address that
// parseListen returned.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}

func parseHTTPRules(v string) ([]webhook.HTTPRule, error) {
	var rules []webhook.HTTPRule
	for _, item := range splitList(v) {
		rule, err := webhook.ParseHTTPRule(item)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseCIDRs(v string) (prefixes, error) {
	var found prefixes
	for _, item := range splitList(v) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			addr, addrErr := netip.ParseAddr(item)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is not an address range; write a CIDR such as 10.1.0.0/16 or fd00::/8", item)
			}
			p = netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
		}
		if p.Masked() != p {
			return nil, fmt.Errorf("%s has bits beyond its length; did you mean %s?", p, p.Masked())
		}
		found = append(found, p)
	}
	return found, nil
}

// parseTablePrefix keeps to the rules for Azure table names, and leaves room for
// what is appended.
func parseTablePrefix(v string) (string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if len(v) < 3 || len(v) > maxTablePrefix || !only(v, letters+"0123456789") || !only(v[:1], letters) {
		return "", fmt.Errorf("%q can't begin a table's name; use 3 to %d letters and digits, beginning with a letter", v, maxTablePrefix)
	}
	return v, nil
}

func parseClientID(v string) (string, error) {
	if len(v) != 36 || !only(v, "0123456789abcdefABCDEF-") {
		return "", errors.New("this is not a client id; it looks like 00000000-0000-0000-0000-000000000000")
	}
	return v, nil
}

func parseEndpoint(v string) (string, error) {
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", errors.New("this is not an http or https URL; write http://127.0.0.1:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the URL has a user, password, query or fragment; put credentials into OTEL_EXPORTER_OTLP_HEADERS")
	}
	return strings.TrimRight(v, "/"), nil
}

func parseInstance(v string) (string, error) {
	if len(v) > maxNameBytes || !only(v, nameChars) {
		return "", fmt.Errorf("%q can't be an instance name; use 1 to %d letters, digits, '-', '_' and '.'", v, maxNameBytes)
	}
	return v, nil
}

// randomInstance keeps what is allowed of the host's name and makes it unique,
// because several processes may run on one host.
func randomInstance(host string) string {
	var suffix [3]byte
	_, _ = rand.Read(suffix[:]) // never fails
	host = strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameChars, r) {
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), maxNameBytes-7)] + "-" + hex.EncodeToString(suffix[:])
}

// splitList splits at commas and white space; empty items are dropped.
func splitList(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' })
}

func joinList[T fmt.Stringer](items []T) string {
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = item.String()
	}
	return strings.Join(parts, ",")
}
