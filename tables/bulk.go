package tables

import (
	"context"
	"errors"
	"sync"
)

// CountDeadLetters counts what f matches, newest first, until it has counted most or
// has asked for calls pages; exact is false when it stopped before the end, and n
// is then a lower bound. visit, when not nil, is called for each.
func CountDeadLetters(ctx context.Context, s DeadLetters, f DeadLetterFilter, most, calls int, visit func(DeadLetter)) (n int, exact bool, err error) {
	page := Page{}
	for range calls {
		page.Limit = min(most-n, MaxPage)
		rows, next, err := s.ListDeadLetters(ctx, f, page)
		if err != nil {
			return n, false, err
		}
		n += len(rows)
		if visit != nil {
			for _, d := range rows {
				visit(d)
			}
		}
		if next == "" || n >= most {
			return n, next == "", nil
		}
		page.After = next
	}
	return n, false, nil
}

// Purged is what became of one page of dead letters.
type Purged struct {
	// Deleted counts the deleted rows by queue.
	Deleted map[string]int
	// NeverReplayed counts those of them that nobody ever replayed.
	NeverReplayed int
	// Copied counts those of them that have a copy on a queue, which stays there.
	Copied int
	// Kept counts rows that were spared, or were changed since they were listed.
	Kept int
	// Next is where the list goes on; empty at its end.
	Next Cursor
}

// NeverReplayed reports whether its message was never sent again: with the dead letter the
// message is gone.
func (d DeadLetter) NeverReplayed() bool { return d.Replays == 0 }

// Total is the number of deleted rows.
func (p Purged) Total() int {
	n := 0
	for _, of := range p.Deleted {
		n += of
	}
	return n
}

// deletesAtOnce bounds the deletes of one page that are under way together: on Azure
// each is a request of its own.
const deletesAtOnce = 8

// PurgeDeadLetters deletes one page of what f matches, but for what spare, which is called for several
// at a time, reports true for. A row that changed since it was listed stays. With an error, what
// is counted as deleted is, and the same page may be asked for again.
func PurgeDeadLetters(ctx context.Context, s DeadLetters, f DeadLetterFilter, page Page, spare func(DeadLetter) bool) (Purged, error) {
	p := Purged{Deleted: map[string]int{}, Next: page.After}
	rows, next, err := s.ListDeadLetters(ctx, f, page)
	if err != nil {
		return p, err
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, deletesAtOnce)
	)
	for _, d := range rows {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := ErrConflict
			if !spare(d) {
				err = s.DeleteDeadLetter(ctx, d.ID, d.ETag)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				p.Deleted[d.Queue]++
				if d.NeverReplayed() {
					p.NeverReplayed++
				}
				if d.CopiedToQueue != "" {
					p.Copied++
				}
			case errors.Is(err, ErrConflict):
				p.Kept++
			case !errors.Is(err, ErrNotFound): // someone else deleted it
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return p, errs[0] // one fault of storage fails them all alike
	}
	p.Next = next
	return p, nil
}
