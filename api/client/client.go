// Package client calls the REST API of a pushlease server. All but NewAPI, Err and Error is made of
// the API's document; each call is described in api/openapi.yaml.
//
// It retries nothing: whether a call is repeated is the caller's to say. An Idempotency-Key makes
// that safe where a call makes something.
package client

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config oapi-codegen.yaml ../openapi.yaml
//go:generate sh -c "cat oapi-codegen.yaml ../openapi.yaml | sha256sum > document.sha256"

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// NewAPI returns a client of the server at a URL such as https://push.example.com. The token of an API
// key goes with each request; empty sends none. Redirects are not followed, since a token could go
// elsewhere with one, and the API has none. Options such as WithHTTPClient go before that.
func NewAPI(server, token string, options ...ClientOption) (*ClientWithResponses, error) {
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	authorized := WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	})
	c, err := NewClientWithResponses(server, append([]ClientOption{WithHTTPClient(plain), authorized}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("make a client of pushlease: %w", err)
	}
	return c, nil
}

// Error is an answer that is no success.
type Error struct {
	Status  int
	Problem Problem // what the server said of it; empty where something else answered
}

// Error says what the server said, with each field that is wrong.
func (e *Error) Error() string {
	text := fmt.Sprintf("the server answered %d", e.Status)
	if e.Problem.Title != "" {
		text += ": " + e.Problem.Title
	}
	if e.Problem.Detail != "" {
		text += ": " + e.Problem.Detail
	}
	if e.Problem.Errors != nil {
		for _, f := range *e.Problem.Errors {
			text += fmt.Sprintf("; %s %s: %s", f.Field, f.Problem, f.Cure)
		}
	}
	return text
}

// Err is nil where an answer is a success, and else an *Error. Its arguments are the members of
// every answer: Err(got.HTTPResponse, got.Body).
func Err(answer *http.Response, body []byte) error {
	if answer.StatusCode/100 == 2 {
		return nil
	}
	e := &Error{Status: answer.StatusCode}
	if json.Unmarshal(body, &e.Problem) != nil {
		e.Problem = Problem{}
	}
	return e
}
