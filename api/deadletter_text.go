package api

import (
	"context"
	"fmt"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// skipText is why a replay by filter leaves out what another program has rewritten.
const skipText = "text_changed"

// changed says why a dead letter is not what was received; empty when it is.
func (a *API) changed(d tables.DeadLetter) string {
	if why := damage(d); why != "" {
		return why
	}
	body, err := queue.Decode(a.setting(d), d.Text)
	if err != nil {
		body.Bytes = nil
	}
	switch columns := d.Altered(body.Bytes); {
	case columns == "":
		return ""
	case len(d.Text) == 0:
		return "its row has no text any more (columns " + columns + ")"
	default:
		return "its text is not the one that was received (columns " + columns + ")"
	}
}

// damage says what can be seen of a row without its text.
func damage(d tables.DeadLetter) string {
	switch {
	case d.Damaged != nil:
		return d.Damaged.Error()
	case d.Misnamed():
		return "another program has changed what its row says of whose message it is (columns Queue, MessageID, WebhookID, Generation, DeadLetteredAtMs)"
	}
	return ""
}

// setting reads a dead letter's text, as the dispatcher does: that of its row, or the queue's where
// another program has left none, unless another one reads what was received.
func (a *API) setting(d tables.DeadLetter) queue.Encoding {
	setting, err := queue.ParseEncoding(d.Encoding)
	if err != nil {
		setting = a.Encoding(d.Queue)
	}
	return queue.SettingFor(setting, d.Text, d.Fits)
}

// asItIs makes what a dead letter holds now what it is from now on: an operator has said so.
func (a *API) asItIs(d tables.DeadLetter) tables.DeadLetter {
	if a.changed(d) == "" {
		return d
	}
	setting, read := a.setting(d), d.Text
	if body, err := queue.Decode(setting, d.Text); err == nil {
		read = body.Bytes
	}
	d.Encoding, d.Size, d.BodyHash, d.Damaged = string(setting), len(read), tables.BodyHash(read), nil
	return d
}

// unchanged refuses what another program has rewritten, unless that is meant. Whose message it
// is can't be meant to be another: a replay would go to webhooks that have it, or under another id.
func (a *API) unchanged(d tables.DeadLetter, force bool) error {
	why := a.changed(d)
	if why == "" || force && !d.Misnamed() {
		return nil
	}
	field, cure := "text", "put the row back as it was, or add ?force=true to take it as it is now"
	switch {
	case d.Misnamed():
		field, cure = "id", "put the row back as it was: force does not help here"
	case d.Damaged != nil:
		field = "row"
	}
	return web.NewProblem(web.TextChanged,
		fmt.Sprintf("It is neither shown nor sent as it is: %s.", why),
		web.Wrong(field, "is not what was received", cure))
}

// intact is unchanged for a replay by filter, which leaves such ones out.
func (a *API) intact(ctx context.Context, d tables.DeadLetter) error {
	if a.changed(d) != "" {
		return skipError(skipText)
	}
	return a.replayable(ctx, d, false)
}
