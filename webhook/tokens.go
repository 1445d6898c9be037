package webhook

import (
	"context"
	"fmt"
	"net/http"
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
	// often at once. One that brings a token which is taken is worth it every provenEvery.
	doubtEvery   = 10 * time.Second
	doubtsAtOnce = 5
	provenEvery  = time.Second
	// renewable is how old a token is at least that is asked for anew because of a 403, and askedAnew one that
	// a test of the webhook does not show.
	renewable = time.Minute
	askedAnew = 5 * time.Second
)

// token is what a receiver is shown.
type token struct {
	// header is the value of Authorization.
	header Hidden
	// number counts the tokens, from 1.
	number int
	// came is when it came, renew from when on the next one is asked for, and end from when on this one is used no more.
	came, renew, end time.Time
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
		came:   came,
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
//
// A token is good until its end, or until the receiver answers 401 to it; then it is shown to nobody any more. The one
// that is asked for because of that is on trial until the receiver takes it: a 401 to it is the receiver's word.
type tokens struct {
	ask   func(ctx context.Context) (token, *failure)
	lacks func(text string) // this machine lacked what a request needed
	life  context.Context   // of the sender
	work  *sync.WaitGroup   // of the sender

	mu      sync.Mutex
	last    token
	refused int           // the number of the last token that was answered 401, and that is not the receiver's word
	trial   int           // the number of the last one that was asked for because of that
	taken   int           // the number of the last one that had another answer
	asking  chan struct{} // closed at the end of the request that is under way; nil without one
	failed  *failure      // why the last request gave none; nil where it did
	fails   int
	again   time.Time // when the next request may be made
	doubts  bool      // the request under way is made because of a 401
	spent   time.Time // until when refusals have spent their fresh tokens
	blamed  int       // the number of the last token that was answered 401 as a fresh one
	others  time.Time // when such a one was last answered otherwise: the 401 was about the message
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
			return token{}, t.late()
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
	if t.last.number > max(after, t.refused) && now.Before(t.last.end) {
		if !now.Before(t.last.renew) {
			t.begin(now, false)
		}
		return t.last, nil, nil
	}
	mine := false
	if t.failed == nil || !waited { // otherwise it has just been tried
		mine = t.begin(now, t.refused > 0 && t.refused == t.last.number)
	}
	if t.asking == nil || t.failed != nil && !mine { // while it fails, one alone waits for what comes next
		return token{}, nil, t.failed
	}
	return token{}, t.asking, nil
}

// begin asks for the next token, unless that is under way or failed just now, and says whether it does. Because of a 401 only so many are
// asked for. The lock is held.
func (t *tokens) begin(now time.Time, doubts bool) bool {
	if t.asking != nil || now.Before(t.again) {
		return false
	}
	if free := t.spent.Add(-(doubtsAtOnce - 1) * doubtEvery); doubts && free.After(now) {
		t.failed, t.again = &failure{class: classToken, text: "as many fresh ones as may be were asked for", tokenAt: free}, free
		return false
	}
	t.doubts = doubts
	done := make(chan struct{})
	t.asking = done
	t.work.Go(func() {
		ctx, stop := context.WithTimeout(t.life, tokenTime)
		defer stop()
		next, failed := t.survive(ctx)
		if failed != nil && failed.short {
			t.lacks(failed.text)
			failed = tokenFailure(failed.text)
		}
		t.mu.Lock()
		if t.failed = failed; failed == nil {
			t.comes(next)
		} else {
			t.again = latest(t.next(), failed.tokenAt)
			t.fails++
			if failed.class == classToken {
				failed.tokenAt = t.again
			}
		}
		t.asking = nil
		t.mu.Unlock()
		close(done)
	})
	return true
}

// next is when another request may be made after one that fails now. The lock is held.
func (t *tokens) next() time.Time {
	return time.Now().Add(min(askAgainMin<<min(t.fails, 10), askAgainMax))
}

// late is about a request that takes longer than a POST may wait.
func (t *tokens) late() *failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &failure{class: classToken, text: "the token endpoint had not answered in time", tokenAt: t.next()}
}

// survive asks for a token. The goroutine is nobody's who would survive a panic of the libraries, and the process would not.
func (t *tokens) survive(ctx context.Context) (next token, failed *failure) {
	defer func() {
		if r := recover(); r != nil {
			failed = tokenFailure(fmt.Sprintf("asking for a token ended with a panic (%T): register auth.oauth2 anew, and report it", r))
		} else if t.life.Err() != nil && failed != nil {
			failed = &failure{class: classCanceled, text: "the exchange was cut short by pushlease"}
		}
	}()
	return t.ask(ctx)
}

// comes takes in the next token. The lock is held.
func (t *tokens) comes(next token) {
	before := t.last.number
	next.number = before + 1
	if before > 0 && (before == t.refused || before == t.trial && before > t.taken) {
		t.trial = next.number
	}
	if t.doubts {
		t.spent = latest(t.spent, time.Now()).Add(doubtEvery)
	}
	t.last, t.fails, t.again = next, 0, time.Time{}
}

// refuse takes in that the receiver answered 401 to the token of the number, and tells whether that may be the token's fault: then it is
// shown no more, and the POST is to be made with a later one. With meant it is the receiver's word in any case, as it is where the token is fresh, because
// of a 401 to the same message, or on trial. A fresh one is asked for all the same, but a receiver that answers 401 to whatever it is sent has few asked
// for; where these are spent and it takes other messages, what it refuses it means.
func (t *tokens) refuse(number int, meant, fresh bool) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if fresh {
		if t.blamed = number; number <= t.taken {
			t.others = now
		}
	}
	spent := t.spent.Add(-(doubtsAtOnce - 1) * doubtEvery).After(now)
	meant = meant || fresh || number == t.trial && number > t.taken || number <= t.taken && spent && now.Sub(t.others) < time.Minute
	if t.last.number == number && (!meant || !spent) { // otherwise one of those that were sent with it has asked
		t.begin(now, true)
	}
	if !meant && number == t.last.number {
		t.refused = number
	}
	return !meant
}

// answered takes in that the receiver answered something else than 401 to the token of the number: what was asked for because of a 401 has
// served. What it has no rights for (403) may have been granted since an old token was made: the next one is asked for.
func (t *tokens) answered(number, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number > t.taken {
		if t.taken = number; number == t.trial {
			t.spent = t.spent.Add(provenEvery - doubtEvery)
		}
	}
	now := time.Now()
	if number == t.blamed {
		t.others = now
	}
	if status == http.StatusForbidden && number == t.last.number && now.Sub(t.last.came) > renewable {
		t.begin(now, false)
	}
}

// anew is the number of the token at hand where that is not of this moment.
func (t *tokens) anew() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last.came) < askedAnew {
		return 0
	}
	return t.last.number
}
