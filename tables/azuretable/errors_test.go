package azuretable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables"
)

func TestErrorsWithoutAnAnswerSayWhyAndNothingElse(t *testing.T) {
	wrapped := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://account/?sig=s3cret", Err: err}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{wrapped(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), "dial: connection refused"},
		{wrapped(&net.DNSError{Err: "no such host", Name: "account"}), "lookup account: no such host"},
		{wrapped(io.ErrUnexpectedEOF), "unexpected EOF"},
		{wrapped(context.DeadlineExceeded), "none within 10s"},
		{wrapped(errors.New("s3cret")), "*errors.errorString"},
		{fmt.Errorf("s3cret: %w", &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 400}}), "the token service answered status 400"},
		{&azidentity.AuthenticationFailedError{}, "the token service can't be reached"},
		{azidentity.NewCredentialUnavailableError("s3cret"), "no Entra credential is available"},
	} {
		got := storageErr(t.Context(), "get row", tt.err)
		if !strings.Contains(got.Error(), tt.want) || strings.Contains(got.Error(), "s3cret") {
			t.Errorf("%T became %q, want %q and no secret", tt.err, got, tt.want)
		}
		// Storage's own time-outs are no end of the caller's context.
		if errors.Is(got, context.DeadlineExceeded) || !passing(got) {
			t.Errorf("%q is the caller's deadline, or not worth a repetition", got)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var refused *azureconn.TokenRefusedError
	if err := storageErr(t.Context(), "get row", &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 403}}); !errors.As(err, &refused) || refused.Status != 403 || errors.Is(err, tables.ErrDenied) {
		t.Errorf("error of a refused token = %#v, want one of the token service, and none of storage", err)
	}
	if err := storageErr(ended, "get row", wrapped(io.EOF)); !errors.Is(err, context.Canceled) {
		t.Errorf("error after the caller hung up = %v, want context.Canceled", err)
	}
}

func TestAnswersBecomeTheErrorsOfTheContract(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   error
	}{
		{404, "ResourceNotFound", tables.ErrNotFound}, {404, "TableNotFound", tables.ErrNotFound}, {409, "TableBeingDeleted", tables.ErrNotFound},
		{409, "EntityAlreadyExists", tables.ErrExists}, {412, "UpdateConditionNotSatisfied", tables.ErrConflict}, {412, "ConditionNotMet", tables.ErrConflict},
		{404, "AccountNotFound", nil}, {403, "AuthenticationFailed", tables.ErrDenied}, {401, "InvalidAuthenticationInfo", tables.ErrDenied}, {503, "ServerBusy", nil}, {500, "OperationTimedOut", nil},
	} {
		err := rowErr(storageErr(t.Context(), "get row", &azcore.ResponseError{StatusCode: tt.status, ErrorCode: tt.code}))
		for _, sentinel := range []error{tables.ErrNotFound, tables.ErrExists, tables.ErrConflict, tables.ErrDenied} {
			if errors.Is(err, sentinel) != (sentinel == tt.want) {
				t.Errorf("%d %s is %v: %t", tt.status, tt.code, sentinel, errors.Is(err, sentinel))
			}
		}
		if want := fmt.Sprintf("status %d %s", tt.status, tt.code); !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
