package azuretable

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// The longest text columns, in UTF-16 units. They are far below the service's
// 32,768 so that the 100 rows of a Record fit into one transaction.
const (
	maxShortText = 256
	maxText      = 1024
	maxLongText  = 4096
)

func (c *columns) key(k tables.MessageKey) {
	c.exact("Queue", k.Queue)
	c.exact("MessageID", k.MessageID)
	c.time("DayMs", k.Day)
}

func (e entity) key() tables.MessageKey {
	return tables.MessageKey{Queue: e.text("Queue"), MessageID: e.text("MessageID"), Day: e.time("DayMs")}
}

func deliveryColumns(d tables.Delivery) columns {
	c := columns{}
	c.key(d.MessageKey)
	c.exact("WebhookID", d.WebhookID)
	c.number("Generation", d.Generation)
	c.exact("State", string(d.State))
	c.exact("Reason", string(d.Reason))
	c.number("Attempts", d.Attempts)
	c.number("Charged", d.Charged)
	c.number("Waits", d.Waits)
	c.number("Excused", d.Excused)
	c.number("MissingRecords", d.MissingRecords)
	c.number("LastStatus", d.LastStatus)
	c.exact("LastErrorClass", string(d.LastErrorClass))
	c.time("FirstAtMs", d.FirstAt)
	c.time("LastAtMs", d.LastAt)
	c.time("NextAtMs", d.NextAt)
	c.time("UpdatedAtMs", d.UpdatedAt)
	c.time("ExpiresAtMs", d.ExpiresAt)
	c.exact("Encoding", d.Encoding)
	c.number("Size", d.Size)
	c.exact("BodyHash", d.BodyHash)
	c.exact("DeadLetterID", d.DeadLetterID)
	c.exact("SameEventAs", d.SameEventAs)
	c.text("Instance", d.Instance, maxText)
	return c
}

// decisive are the columns by which it is decided what becomes of a message; the others are for people.
var decisive = []string{
	"State", "Reason", "Generation", "Attempts", "Number", "Charged", "Waits", "Excused", "DayMs", "UpdatedAtMs", "NextAtMs", "ExpiresAtMs", "WebhookID",
	"DeadLetterID", "SameEventAs",
}

func (e entity) delivery() tables.Delivery {
	d := tables.Delivery{ // what no attempt says
		UpdatedAt: e.time("UpdatedAtMs"), ExpiresAt: e.time("ExpiresAtMs"),
		Encoding: e.text("Encoding"), Size: e.number("Size"), BodyHash: e.text("BodyHash"),
	}
	if a, ok := e.completed(); ok {
		d.Damage = tables.NewDamage(*e.wrong, decisive)
		return a.Completed(&d)
	}
	d.MessageKey, d.WebhookID, d.Generation = e.key(), e.text("WebhookID"), e.number("Generation")
	d.State, d.Reason = tables.State(e.text("State")), policy.Reason(e.text("Reason"))
	d.Attempts, d.Charged, d.Waits, d.Excused = e.number("Attempts"), e.number("Charged"), e.number("Waits"), e.number("Excused")
	d.MissingRecords = e.number("MissingRecords")
	d.LastStatus, d.LastErrorClass = e.number("LastStatus"), policy.ErrorClass(e.text("LastErrorClass"))
	d.FirstAt, d.LastAt, d.NextAt = e.time("FirstAtMs"), e.time("LastAtMs"), e.time("NextAtMs")
	d.DeadLetterID, d.SameEventAs, d.Instance = e.text("DeadLetterID"), e.text("SameEventAs"), e.text("Instance")
	if !slices.Contains(tables.States(), d.State) {
		e.note("State")
	}
	if d.Day.IsZero() {
		e.note("DayMs")
	}
	e.byKey(&d.MessageKey, &d.WebhookID, &d.Generation)
	d.Damage = tables.NewDamage(*e.wrong, decisive)
	return d
}

// byKey puts what the row's key says in place of what its columns say, and notes where they differ. The key
// of a row in a Recent table says less.
func (e entity) byKey(message *tables.MessageKey, webhook *string, generation *int) {
	parts := strings.Split(e.rk, separator)
	if len(parts) < 6 {
		if of := strings.Split(e.pk, separator); len(of) == 3 {
			e.byKeyText("WebhookID", of[1], webhook)
		}
		if len(parts) == 4 {
			e.byKeyNumber("Generation", parts[2], generation)
		}
		return
	}
	e.byKeyText("MessageID", parts[0], &message.MessageID)
	e.byKeyText("Queue", parts[1], &message.Queue)
	e.byKeyText("WebhookID", parts[3], webhook)
	e.byKeyNumber("Generation", parts[4], generation)
}

func (e entity) byKeyText(name, part string, value *string) {
	if id, ok := decodeID(part); ok && id != *value {
		e.note(name)
		*value = id
	}
}

func (e entity) byKeyNumber(name, part string, value *int) {
	if n, err := strconv.Atoi(part); err == nil && n != *value {
		e.note(name)
		*value = n
	}
}

func attemptColumns(a tables.Attempt) columns {
	c := columns{}
	c.attempt(a)
	c.flag("Charged", a.Charged)
	return c
}

// attempt adds all of an attempt but whether it was charged, which a delivery counts in a
// column of that name.
func (c *columns) attempt(a tables.Attempt) {
	c.key(a.MessageKey)
	c.exact("WebhookID", a.WebhookID)
	c.number("Generation", a.Generation)
	c.number("Number", a.Number)
	c.time("StartedAtMs", a.StartedAt)
	c.duration("DurationNs", a.Duration)
	c.number("Status", a.Status)
	c.exact("ErrorClass", string(a.ErrorClass))
	c.text("Error", a.Error, maxText)
	c.text("Snippet", a.Snippet, tables.MaxSnippetUnits)
	c.text("RetryAfter", a.RetryAfter, maxShortText)
	c.text("RedirectHost", a.RedirectHost, maxShortText)
	c.number("Redials", a.Redials)
	c.exact("Action", string(a.Action))
	c.exact("Reason", string(a.Reason))
	c.duration("DelayNs", a.Delay)
	c.time("NextAtMs", a.NextAt)
	c.text("Explanation", a.Explanation, maxLongText)
	c.text("Instance", a.Instance, maxText)
	c.number("DequeueCount", int(a.DequeueCount))
}

// completedColumns are those of a first success: what an attempt has, and what of its delivery does
// not follow from that, with the state and the number of attempts for people and older versions.
// attempt are those that the attempt has where it stands alone; the two share their bytes.
func completedColumns(d tables.Delivery, a tables.Attempt) (c columns, attempt []byte) {
	c.exact("State", string(d.State))
	c.number("Attempts", d.Attempts)
	c.time("UpdatedAtMs", d.UpdatedAt)
	c.time("ExpiresAtMs", d.ExpiresAt)
	c.exact("Encoding", d.Encoding)
	c.number("Size", d.Size)
	c.exact("BodyHash", d.BodyHash)
	start := len(c.json)
	c.attempt(a)
	end := len(c.json)
	c.flag("Charged", a.Charged)
	attempt = c.json[start:]
	c.json = c.json[:end:end]
	return c, attempt
}

// completed is the attempt of a first success.
func (e entity) completed() (a tables.Attempt, ok bool) {
	if !isCompleted(e.rk) {
		return tables.Attempt{}, false
	}
	a = e.attempt()
	a.Charged = true // or it were none
	return a, true
}

func (e entity) attempt() tables.Attempt {
	a := tables.Attempt{
		MessageKey:   e.key(),
		WebhookID:    e.text("WebhookID"),
		Generation:   e.number("Generation"),
		Number:       e.number("Number"),
		StartedAt:    e.time("StartedAtMs"),
		Duration:     e.duration("DurationNs"),
		Status:       e.number("Status"),
		ErrorClass:   policy.ErrorClass(e.text("ErrorClass")),
		Error:        e.text("Error"),
		Snippet:      e.text("Snippet"),
		RetryAfter:   e.text("RetryAfter"),
		RedirectHost: e.text("RedirectHost"),
		Redials:      e.number("Redials"),
		Action:       policy.Action(e.text("Action")),
		Reason:       policy.Reason(e.text("Reason")),
		Charged:      e.flag("Charged"),
		Delay:        e.duration("DelayNs"),
		NextAt:       e.time("NextAtMs"),
		Explanation:  e.text("Explanation"),
		Instance:     e.text("Instance"),

		DequeueCount: int64(e.number("DequeueCount")),
	}
	e.byKey(&a.MessageKey, &a.WebhookID, &a.Generation)
	switch parts := strings.Split(e.rk, separator); {
	case isCompleted(e.rk):
		e.byKeyNumber("Number", "1", &a.Number)
	case len(parts) == 4: // in a Recent table
		e.byKeyNumber("Number", parts[3], &a.Number)
	case len(parts) > 5:
		e.byKeyNumber("Number", parts[5], &a.Number)
	}
	for _, c := range []struct {
		name  string
		empty bool
	}{
		{"Queue", a.Queue == ""}, {"MessageID", a.MessageID == ""}, {"WebhookID", a.WebhookID == ""}, {"StartedAtMs", a.StartedAt.IsZero()}, {"DayMs", a.Day.IsZero()},
	} {
		if c.empty { // as none is
			e.note(c.name)
		}
	}
	a.Damage = tables.NewDamage(*e.wrong, nil)
	return a
}
