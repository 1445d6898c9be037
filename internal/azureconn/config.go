// Package azureconn reads Azure Storage connection strings. Each Azure SDK
// understands another subset of them (a SAS without its question mark, an
// emulator, a custom host, only one service), so pushlease has one parser of
// its own for both services.
package azureconn

import (
	"fmt"
	"log/slog"
	"net/url"
	"time"
)

// Credential is how requests are authorised.
type Credential int

// The kinds of credentials.
const (
	// SharedKey signs with the account's key.
	SharedKey Credential = iota + 1
	// SAS sends a shared access signature.
	SAS
	// Identity gets tokens from Microsoft Entra ID.
	Identity
)

// String names the kind for people.
func (c Credential) String() string {
	switch c {
	case SharedKey:
		return "shared key"
	case SAS:
		return "SAS"
	case Identity:
		return "Entra identity"
	}
	return "none"
}

// Config says where an account's services are and how to be let in. It prints
// without its secret.
type Config struct {
	// QueueURL and TableURL are the service addresses, without a slash or a
	// query at the end. One of them is empty when only the other was given.
	QueueURL, TableURL string
	// Account is the account's name; it may be empty with a SAS.
	Account string
	// Credential says which of Key and SAS there is; with Identity neither.
	Credential Credential

	// secret is a pointer because fmt prints what a pointer in a nested struct
	// points to only by its address.
	secret *string
}

// Key is the account's key in base64, for Credential SharedKey.
func (c Config) Key() string { return c.secretOf(SharedKey) }

// SAS is the shared access signature without a question mark, for Credential
// SAS.
func (c Config) SAS() string { return c.secretOf(SAS) }

func (c Config) secretOf(kind Credential) string {
	if c.Credential != kind || c.secret == nil {
		return ""
	}
	return *c.secret
}

// SASExpiry is when the signature ends. ok is false when there is none, or
// when the end is kept by a stored access policy.
func (c Config) SASExpiry() (end time.Time, ok bool) {
	q, err := url.ParseQuery(c.SAS())
	if err != nil {
		return time.Time{}, false
	}
	return sasTime(q.Get("se"))
}

// String is the configuration without its secret.
func (c Config) String() string {
	return fmt.Sprintf("account %q, queues %q, tables %q, %s", c.Account, c.QueueURL, c.TableURL, c.Credential)
}

// GoString keeps the secret out of %#v.
func (c Config) GoString() string { return "azureconn.Config{" + c.String() + "}" }

// LogValue keeps the secret out of logs.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("account", c.Account),
		slog.String("queues", c.QueueURL),
		slog.String("tables", c.TableURL),
		slog.String("credential", c.Credential.String()))
}
