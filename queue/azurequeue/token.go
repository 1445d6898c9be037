package azurequeue

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// tokens marks errors of a credential, so that they are told apart from those
// of storage.
type tokens struct{ source azcore.TokenCredential }

// newTokens makes no network call.
func newTokens(managedIdentityClientID string) (tokens, error) {
	var source azcore.TokenCredential
	var err error
	if managedIdentityClientID != "" {
		source, err = azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
			ID: azidentity.ClientID(managedIdentityClientID),
		})
	} else {
		source, err = azidentity.NewDefaultAzureCredential(nil)
	}
	if err != nil {
		return tokens{}, fmt.Errorf("no Entra credential can be used: %w", err)
	}
	return tokens{source}, nil
}

// GetToken implements azcore.TokenCredential. The SDK keeps the token and asks
// again ahead of its end, and at once after a 401.
func (t tokens) GetToken(ctx context.Context, opts policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.source.GetToken(ctx, opts)
	if err != nil {
		return token, &tokenError{err}
	}
	return token, nil
}

// tokenError is a failure to get a token. Its own text says nothing, because
// azidentity's may quote the answer of the token service.
type tokenError struct{ err error }

func (*tokenError) Error() string   { return "no token" }
func (e *tokenError) Unwrap() error { return e.err }
