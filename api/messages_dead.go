package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// searchTime is how long dead letters are looked through for those of one message: no store finds
// them by its id.
const searchTime = 5 * time.Second

// clocksApart is how far this machine's clock may be behind that of storage.
const clocksApart = time.Hour

// wasDeadLettered is false for most messages, which saves looking through the dead
// letters for them.
func wasDeadLettered(d tables.Delivery) bool {
	return d.DeadLetterID != "" || d.Generation > 0
}

// deadLettersOf are those of a message of which there are records. What they name is read by its id: in the
// list it can stand behind thousands of others. What they don't name, such as what a replay was
// made of whose record has ended, is looked for on the first page.
func (a *API) deadLettersOf(ctx context.Context, deliveries []tables.Delivery) ([]tables.DeadLetter, error) {
	of := deliveries[0].MessageKey
	dead, _, err := a.DeadLetters.ListDeadLetters(ctx,
		tables.DeadLetterFilter{Queue: of.Queue, MessageID: of.MessageID, From: of.Day.Add(-clocksApart)}, tables.Page{Limit: tables.MaxPage})
	if err != nil {
		return nil, web.StorageFault("read the message's dead letters", err)
	}
	for _, d := range deliveries {
		if d.DeadLetterID == "" || isAmong(dead, d.DeadLetterID) {
			continue
		}
		if dead, err = a.alsoDead(ctx, dead, d.DeadLetterID); err != nil {
			return nil, err
		}
	}
	return dead, nil
}

// lettersInList is how many dead letters are looked for, each by its id, for one page of a list.
const lettersInList = 20

// lettersBeingMade are those dead letters that are there, of the few deliveries in a list that are being dead-lettered. Of more than
// lettersInList, and where one can't be read, the list tells what is on record.
func (a *API) lettersBeingMade(ctx context.Context, deliveries []tables.Delivery) (dead []tables.DeadLetter) {
	asked := 0
	for _, d := range deliveries {
		if d.State != tables.DeadLettering || d.DeadLetterID == "" {
			continue
		}
		found, err := a.alsoDead(ctx, dead, d.DeadLetterID)
		if err != nil {
			break
		}
		dead = found
		if asked++; asked == lettersInList {
			break
		}
	}
	return dead
}

// alsoDead adds the dead letter of this id, if it is there.
func (a *API) alsoDead(ctx context.Context, dead []tables.DeadLetter, id string) ([]tables.DeadLetter, error) {
	switch letter, err := a.DeadLetters.GetDeadLetter(ctx, id); {
	case err == nil:
		dead = append(dead, letter)
	case !errors.Is(err, tables.ErrNotFound):
		return nil, web.StorageFault("read the message's dead letter", err)
	}
	return dead, nil
}

func isAmong(dead []tables.DeadLetter, id string) bool {
	return slices.ContainsFunc(dead, func(d tables.DeadLetter) bool { return d.ID == id })
}

// searchDeadLetters finds those of a message of which there are no records, and answers 404 where there are none. It
// never says so of a list of which it has not seen the end.
func (a *API) searchDeadLetters(ctx context.Context, name, id string) ([]tables.DeadLetter, error) {
	var found []tables.DeadLetter
	filter, page := tables.DeadLetterFilter{Queue: name, MessageID: id}, tables.Page{Limit: tables.MaxPage}
	for began := time.Now(); ; {
		rows, next, err := a.DeadLetters.ListDeadLetters(ctx, filter, page)
		if err != nil {
			return nil, web.StorageFault("read the message's dead letters", err)
		}
		if found = append(found, rows...); len(found) > 0 {
			filter.From = found[0].Day.Add(-clocksApart) // none is older than the message
		}
		late := time.Since(began) > searchTime
		switch {
		case len(found) > 0 && (next == "" || late):
			return found, nil
		case next == "":
			return nil, noMessage
		case late:
			return nil, notSearchedToTheEnd
		}
		page.After = next
	}
}

var notSearchedToTheEnd = web.Missing(
	fmt.Sprintf("No records of that message are left. Its dead letter may be there all the same: the newest ones were looked through for %s, and older ones were not looked at.", searchTime),
	"id", "read GET /api/v1/dead-letters?message=ID to its last next_cursor, with the parameter queue where you know the queue: that is quicker, here too")
