package webhook

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// A panic of the libraries while a token is asked for, on a goroutine of its own, is a token that can't be had now.
func TestAPanicOfWhoAsksForATokenEndsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		asked := 0
		var work sync.WaitGroup
		k := &tokens{life: t.Context(), work: &work, ask: func(context.Context) (token, *failure) {
			if asked++; asked == 1 {
				panic(errors.New("planted-secret"))
			}
			return newToken("Bearer a", time.Now(), time.Hour), nil
		}}
		_, failed := k.get(t.Context(), time.Now().Add(time.Second), 0)
		if failed == nil || failed.class != classToken || !strings.Contains(failed.text, "a panic") || strings.Contains(failed.text, "planted") {
			t.Fatalf("it says %+v", failed)
		}
		time.Sleep(time.Until(failed.tokenAt))
		if got, failed := k.get(t.Context(), time.Now().Add(time.Second), 0); failed != nil || got.header != "Bearer a" {
			t.Errorf("then it says %+v", failed)
		}
		work.Wait()
	})
}

// What is under way when the sender ends says that, and blames no issuer.
func TestATokenAskedForAtTheEndIsCutShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		var work sync.WaitGroup
		k := &tokens{life: life, work: &work, ask: func(ctx context.Context) (token, *failure) {
			<-ctx.Done()
			return token{}, tokenFailure("the token endpoint did not answer")
		}}
		time.AfterFunc(time.Second, end)
		if _, failed := k.get(t.Context(), time.Now().Add(time.Minute), 0); failed == nil || failed.class != classCanceled || !failed.tokenAt.IsZero() {
			t.Errorf("it says %+v", failed)
		}
	})
}

// What of a registration can't be used is read once, and not with each message.
func TestARegistrationThatCanNotBeUsedIsReadOnce(t *testing.T) {
	i := &identities{}
	i.begin(nil, nil, nil, GuardOptions{}, nil)
	defer i.end()
	w := &Webhook{ID: "a", Auth: &Auth{OAuth2: &OAuth2{TokenURL: "http://planted"}}}
	first, wrong := i.of(w, time.Time{})
	again, stillWrong := i.of(w, time.Time{})
	if wrong == nil || first == nil || first != again || stillWrong == nil {
		t.Errorf("%p says %v, %p says %v", first, wrong, again, stillWrong)
	}
}
