package webhook

import (
	"context"
	"sync"
	"time"
)

const (
	// tokenTime bounds one request for a token. It may be longer than a POST waits: then the next one finds it.
	tokenTime = 10 * time.Second
	// unknownLife is the life of a token whose issuer names none, and leastLife and mostLife bound what
	// issuers say.
	unknownLife = 5 * time.Minute
	leastLife   = 5 * time.Second
	mostLife    = time.Hour
	// leastUse is for how long a token is used that took nearly its whole life to come.
	leastUse = time.Second
	// endMargin is how long before its end a token is used no more, at most: it has to arrive.
	endMargin = 30 * time.Second
	// askAgainMin and askAgainMax are between requests for a token that fail.
	askAgainMin = time.Second
	askAgainMax = time.Minute
	// doubtEvery is how often a refusal is worth a fresh token in the long run, and doubtsAtOnce how
	// often at once.
	doubtEvery   = 10 * time.Second
	doubtsAtOnce = 5
)

// token is what a receiver is shown.
type token struct {
	// header is the value of Authorization.
	header Hidden
	// number counts the tokens, from 1.
	number int
	// renew is from when on the next one is asked for, and end from when on this one is used no more.
	renew, end time.Time
}

// newToken makes one that was asked for at the time, and lives for as long as its issuer says, if it does. However long
// the issuer took to give it, it is used for a moment.
func newToken(header string, asked time.Time, life time.Duration) token {
	if life == 0 {
		life = unknownLife
	}
	life = min(max(life, leastLife), mostLife)
	came := time.Now()
	return token{
		header: Hidden(header),
		renew:  latest(asked.Add(life*3/4), came.Add(leastUse/2)),
		end:    latest(asked.Add(life-min(endMargin, life/10)), came.Add(leastUse)),
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tokenFailure is about a token that could not be had. That is nobody's attempt.
func tokenFailure(text string) *failure { return &failure{class: classToken, text: text} }

// tokens keeps the token of one identity. One request for the next one is under way at a time, for all who
// need it; it is made before the end of the last one, and ends with nobody who waits for it.
type tokens struct {
	ask  func(ctx context.Context) (token, *failure)
	life context.Context // of the sender
	work *sync.WaitGroup // of the sender

	mu     sync.Mutex
	last   token
	asking chan struct{} // closed at the end of the request that is under way; nil without one
	failed *failure      // why the last request gave none; nil where it did
	fails  int
	again  time.Time // when the next request may be made
	spent  time.Time // until when refusals have spent their fresh tokens
}

// get gives a token that is later than the number, and waits for one until then at most.
func (t *tokens) get(ctx context.Context, by time.Time, after int) (token, *failure) {
	last, asking, failed := t.look(after, false)
	if asking == nil {
		return last, failed
	}
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	for asking != nil {
		select {
		case <-asking:
		case <-ctx.Done():
			return token{}, &failure{class: classCanceled, text: "the exchange was cut short by pushlease"}
		case <-timer.C:
			return token{}, tokenFailure("the token endpoint had not answered in time")
		}
		last, asking, failed = t.look(after, true)
	}
	return last, failed
}

// look gives a token, or why there is none, or what to wait for.
func (t *tokens) look(after int, waited bool) (last token, asking chan struct{}, failed *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.last.number > after && now.Before(t.last.end) {
		if !now.Before(t.last.renew) {
			t.begin(now)
		}
		return t.last, nil, nil
	}
	mine := false
	if t.failed == nil || !waited { // otherwise it has just been tried
		mine = t.begin(now)
	}
	if t.asking == nil || t.failed != nil && !mine { // while it fails, one alone waits for what comes next
		return token{}, nil, t.failed
	}
	return token{}, t.asking, nil
}

// begin asks for the next token, unless that is under way or failed just now, and says whether it does. The lock is held.
func (t *tokens) begin(now time.Time) bool {
	if t.asking != nil || now.Before(t.again) {
		return false
	}
	done := make(chan struct{})
	t.asking = done
	t.work.Go(func() {
		ctx, stop := context.WithTimeout(t.life, tokenTime)
		defer stop()
		next, failed := t.ask(ctx)
		t.mu.Lock()
		if t.failed = failed; failed == nil {
			next.number = t.last.number + 1
			t.last, t.fails, t.again = next, 0, time.Time{}
		} else {
			t.again = time.Now().Add(min(askAgainMin<<min(t.fails, 10), askAgainMax))
			t.fails++
		}
		t.asking = nil
		t.mu.Unlock()
		close(done)
	})
	return true
}

// doubt tells whether a fresh token is worth asking for, since the receiver answered 401 to that of the number. A
// receiver that answers 401 to whatever it is sent has few asked for.
func (t *tokens) doubt(number int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.number > number || t.asking != nil { // one of those that were sent with it has asked
		return true
	}
	now := time.Now()
	if t.spent.Sub(now) > (doubtsAtOnce-1)*doubtEvery {
		return false
	}
	if t.spent.Before(now) {
		t.spent = now
	}
	t.spent = t.spent.Add(doubtEvery)
	return true
}

// fault is why no token can be had, while that is so.
func (t *tokens) fault() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil || time.Now().Before(t.last.end) {
		return ""
	}
	return t.failed.text
}
