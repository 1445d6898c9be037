package tables

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/pushlease/pushlease/policy"
)

// BodyHash is the first 16 hex digits of the SHA-256: enough to tell two bodies
// apart, too little to confirm a guess of a secret one by its full digest.
func BodyHash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// Misnamed reports whether the columns that say whose message d is are not those that its id was
// made of: another program has changed them, and a replay would go to others or under another id.
func (d DeadLetter) Misnamed() bool {
	return !strings.HasSuffix(d.ID, "-"+whose(d.MessageKey, d.WebhookID, d.Generation))
}

// Fits reports whether body, nil where Text can't be read, is what was received. Earlier versions kept
// the hash of the first reading beside the setting of the last one, so Encoding alone decides nothing.
func (d DeadLetter) Fits(body []byte) bool { return d.Altered(body) == "" }

// Altered names the columns that another program has changed so that a replay of d would send other
// bytes than were received; empty when none has. body is what Text stands for, nil where it
// can't be read. A row without a hash is known by its size.
func (d DeadLetter) Altered(body []byte) string {
	readings := [][]byte{body}
	if body == nil || d.Reason == policy.Undecodable { // Encoding does not read it
		readings = append(readings, d.Text)
	}
	sized, hashed := d.Size == len(d.Text), d.BodyHash == ""
	for _, r := range readings {
		sized = sized || r != nil && d.Size == len(r)
		hashed = hashed || d.BodyHash == BodyHash(r)
	}
	var columns []string
	switch {
	case !hashed && len(d.Text) == 0:
		columns = []string{"Text"}
	case !hashed:
		columns = []string{"Text", "Encoding", "BodyHash"}
	case !sized:
		columns = []string{"Text", "Size"}
	}
	return strings.Join(columns, ", ")
}
