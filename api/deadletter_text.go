package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// skipText is why a replay by filter leaves out what another program has rewritten.
const skipText = "text_changed"

// changed says why a dead letter's text is not what was received; empty when it is.
func changed(d tables.DeadLetter) string {
	if d.Damaged != nil {
		return "columns of its row have another type than was written: another program has changed it"
	}
	if d.BodyHash == "" || holds(d.Text, d.BodyHash) {
		return ""
	}
	if len(d.Text) == 0 {
		return "its row has no text any more (column Text)"
	}
	return "its text is not the one that was received (column Text, against BodyHash)"
}

// holds reports whether a text has this hash, or the body that it stands for has: the hash
// is the body's where that could be read. It may have been read by another setting.
func holds(text []byte, hash string) bool {
	if hashOf(text) == hash {
		return true
	}
	for _, setting := range []queue.Encoding{queue.EncodingAuto, queue.EncodingBase64, queue.EncodingNone} {
		if b, err := queue.Decode(setting, text); err == nil && hashOf(b.Bytes) == hash {
			return true
		}
	}
	return false
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// unchanged refuses what another program has rewritten, unless that is meant.
func unchanged(d tables.DeadLetter, force bool) error {
	why := changed(d)
	if why == "" || force {
		return nil
	}
	return web.NewProblem(web.TextChanged,
		fmt.Sprintf("It is neither shown nor sent as it is: %s.", why),
		web.Wrong("text", "is not what was received", "put the row back as it was, or add ?force=true to take it as it is now"))
}

// intact is unchanged for a replay by filter, which leaves such ones out.
func (a *API) intact(ctx context.Context, d tables.DeadLetter) error {
	if changed(d) != "" {
		return skipError(skipText)
	}
	return a.replayable(ctx, d, false)
}
