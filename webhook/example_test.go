package webhook_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// A receiver verifies the raw body before it reads anything into it.
func ExampleVerify() {
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receive := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || webhook.Verify([]string{secret}, r.Header, body, time.Now(), 5*time.Minute) != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}

	now := time.Now()
	signature, err := webhook.Sign(secret, "msg-1", now, []byte(`{"a":1}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{`{"a":1}`, `{"a": 1}`} {
		r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
		r.Header.Set("webhook-id", "msg-1")
		r.Header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
		r.Header.Set("webhook-signature", signature)
		answer := httptest.NewRecorder()
		receive(answer, r)
		fmt.Println(answer.Code)
	}
	// Output:
	// 200
	// 401
}
