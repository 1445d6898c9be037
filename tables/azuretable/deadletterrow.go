package azuretable

import (
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// maxDescription is generous: a dead letter is a row of its own.
const maxDescription = 16 << 10

// deadLetterListColumns are all but the text.
var deadLetterListColumns = listColumns()

func listColumns() []string {
	var names []string
	for _, name := range []string{"Queue", "MessageID", "WebhookID", "Instance", "Description"} {
		names = append(names, name, part(name, 1)) // long or hostile ones take two
	}
	return append(names, "DayMs", "Generation", "Status", "Reason", "Attempts", "LastStatus", "LastErrorClass",
		"FirstAtMs", "LastAtMs", "DeadLetteredAtMs", "Encoding", "Size", "BodyHash", "DequeueCount", "InsertedAtMs",
		"CopiedToQueue", "ReplayToken", "Replays", "ReplayedAtMs")
}

func deadLetterColumns(d tables.DeadLetter) columns {
	c := columns{}
	c.key(d.MessageKey)
	c.exact("WebhookID", d.WebhookID)
	c.number("Generation", d.Generation)
	c.exact("Status", string(d.Status))
	c.exact("Reason", string(d.Reason))
	c.text("Description", d.Description, maxDescription)
	c.number("Attempts", d.Attempts)
	c.number("LastStatus", d.LastStatus)
	c.exact("LastErrorClass", string(d.LastErrorClass))
	c.time("FirstAtMs", d.FirstAt)
	c.time("LastAtMs", d.LastAt)
	c.time("DeadLetteredAtMs", d.DeadLetteredAt)
	c.binary("Text", d.Text)
	c.exact("Encoding", d.Encoding)
	c.number("Size", d.Size)
	c.exact("BodyHash", d.BodyHash)
	c.long("DequeueCount", d.DequeueCount)
	c.time("InsertedAtMs", d.InsertedAt)
	c.exact("CopiedToQueue", d.CopiedToQueue)
	c.exact("ReplayToken", d.ReplayToken)
	c.number("Replays", d.Replays)
	c.time("ReplayedAtMs", d.ReplayedAt)
	c.text("Instance", d.Instance, maxText)
	return c
}

func (e entity) deadLetter() tables.DeadLetter {
	d := tables.DeadLetter{
		ID:             e.pk + "." + e.rk,
		MessageKey:     e.key(),
		WebhookID:      e.text("WebhookID"),
		Generation:     e.number("Generation"),
		Status:         tables.DeadLetterStatus(e.text("Status")),
		Reason:         policy.Reason(e.text("Reason")),
		Description:    e.text("Description"),
		Attempts:       e.number("Attempts"),
		LastStatus:     e.number("LastStatus"),
		LastErrorClass: policy.ErrorClass(e.text("LastErrorClass")),
		FirstAt:        e.time("FirstAtMs"),
		LastAt:         e.time("LastAtMs"),
		DeadLetteredAt: e.time("DeadLetteredAtMs"),
		Text:           e.binary("Text"),
		Encoding:       e.text("Encoding"),
		Size:           e.number("Size"),
		BodyHash:       e.text("BodyHash"),
		DequeueCount:   e.long("DequeueCount"),
		InsertedAt:     e.time("InsertedAtMs"),
		CopiedToQueue:  e.text("CopiedToQueue"),
		ReplayToken:    e.text("ReplayToken"),
		Replays:        e.number("Replays"),
		ReplayedAt:     e.time("ReplayedAtMs"),
		Instance:       e.text("Instance"),
		ETag:           e.etag,
	}
	if d.Queue != e.pk { // a list of the queue finds it all the same
		e.note("Queue")
		d.Queue = e.pk
	}
	if d.DeadLetteredAt.IsZero() {
		e.note("DeadLetteredAtMs")
		d.DeadLetteredAt = tables.DeadLetterAt(e.rk)
	}
	if !d.MendStatus() {
		e.note("Status")
	}
	if d.Status == tables.Replaying && d.ReplayedAt.IsZero() {
		e.note("ReplayedAtMs")
	}
	d.Damaged = e.damage()
	return d
}
