package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// ClaimState says how far the owner of a claim has come.
type ClaimState string

// The states of a claim.
const (
	// Claimed: the owner is working on it; others wait until Until has passed.
	Claimed ClaimState = "claimed"
	// Done: the owner has finished; others are duplicates.
	Done ClaimState = "done"
)

// Claim is the right to handle everything that has one key. It has two lifetimes: as
// Claimed it ends at Until, soon, so that a dead owner blocks nobody for long; as Done
// it is kept for the window.
type Claim struct {
	// Key is made by ClaimKey.
	Key string
	// Owner tells claimants apart. It is the same when one claimant asks again, so a
	// repeated insert whose first answer was lost is not taken for somebody else's.
	Owner string
	State ClaimState
	// Until ends a Claimed claim. It does not end a Done one.
	Until time.Time
	// At is the time by which the claim is kept: it is constant for one owner (a queue
	// message's insertion time), so that every claimant looks in the same place.
	At time.Time
	// MessageID and BodyHash are of the owner's message; a message that is made under
	// the claim has its id only when it is finished.
	MessageID string
	BodyHash  string
}

// ClaimWindow is how long a Done claim is kept at least.
const ClaimWindow = 7 * 24 * time.Hour

// ClaimKey makes the key of a claim from parts that may hold anything: it is short,
// safe for every store, and two lists of parts never give the same key.
func ClaimKey(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(fmt.Appendf(nil, "%d:%s", len(p), p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Claims remembers who handles what. Safe for concurrent use.
type Claims interface {
	// Claim asks for c.Key until c.Until. won is true when c.Owner has the claim now: it
	// was free, or had ended (a Claimed one whose Until is before now, or any that is
	// older than ClaimWindow), or was this owner's already (then Until is set anew, and a
	// claim that this owner finished stays Done, which current shows). Otherwise current is
	// the other's claim. Of concurrent claimants exactly one wins; where At puts them
	// into different tables it may happen that none does, and they ask again. A claim
	// whose own At is older than ClaimWindow before now keeps nobody out, and need not
	// be stored. An error says neither yes nor no: ErrDamaged that another program has changed
	// somebody's claim, any other that the store could not be asked.
	Claim(ctx context.Context, c Claim, now time.Time) (current Claim, won bool, err error)

	// FinishClaim makes the owner's claim Done, with the Until, MessageID and BodyHash of
	// c: what the owner found out meanwhile is kept. A claim that is Done already stays as
	// it is. ErrConflict when someone else has it by now, ErrNotFound when it is gone.
	FinishClaim(ctx context.Context, c Claim) error

	// ReleaseClaim removes the owner's claim so that it is free at once. A claim that
	// is gone, somebody else's or Done is left alone, without an error: another holder
	// of the owner's message may have finished it.
	ReleaseClaim(ctx context.Context, c Claim) error

	// ExpireClaims removes claims that are older than ClaimWindow before now, and returns
	// how many rows (0 where the store can't count). Where it removes whole tables, a
	// claim may stay for one more ClaimWindow.
	ExpireClaims(ctx context.Context, now time.Time) (int64, error)
}
