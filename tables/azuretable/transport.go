package azuretable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
)

const (
	// tryTimeout bounds one request, the reading of its answer included. The SDK
	// has no default: a silent peer would hang it for ever.
	tryTimeout = 10 * time.Second
	// connections is how many idle ones are kept; with the SDK's 10, a burst
	// would dial anew for nearly every request.
	connections = 64
)

// clientOptions returns options for one client. Constructors of the SDK change
// what they are given, so every client gets its own.
func clientOptions(transport policy.Transporter) *aztables.ClientOptions {
	return &aztables.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: transport,
		// The SDK repeats nothing: each operation here knows what its repetition means.
		Retry:     policy.RetryOptions{MaxRetries: -1, TryTimeout: tryTimeout},
		Telemetry: policy.TelemetryOptions{ApplicationID: "pushlease"},
	}}
}

// clients are the two ways to the table service: the SDK's, and one for transactions,
// whose requests are made here. They share the transport and the credential.
type clients struct {
	service  *aztables.ServiceClient
	pipeline runtime.Pipeline
}

// newClients returns clients for the table service of cfg. It makes no network call.
func newClients(cfg azureconn.Config, managedIdentityClientID string, t policy.Transporter) (clients, error) {
	if cfg.TableURL == "" {
		return clients{}, errors.New("the connection string names no table service: add TableEndpoint, or AccountName to derive it from")
	}
	switch cfg.Credential {
	case azureconn.SharedKey:
		key, err := aztables.NewSharedKeyCredential(cfg.Account, cfg.Key())
		if err != nil {
			return clients{}, errors.New("the account key is not base64") // err may quote it
		}
		signing, err := newSharedKeyPolicy(cfg.Account, cfg.Key())
		if err != nil {
			return clients{}, err
		}
		service, err := aztables.NewServiceClientWithSharedKey(cfg.TableURL, key, clientOptions(t))
		return clients{service, newPipeline(t, signing)}, err
	case azureconn.SAS:
		service, err := aztables.NewServiceClientWithNoCredential(cfg.TableURL+"/?"+cfg.SAS(), clientOptions(t))
		if err != nil {
			return clients{}, errors.New("the table service's address is not valid") // err may quote the SAS
		}
		return clients{service, newPipeline(t)}, nil
	case azureconn.Identity:
		identity, err := newIdentity(managedIdentityClientID)
		if err != nil {
			return clients{}, fmt.Errorf("no Entra credential can be used: %w", err)
		}
		service, err := aztables.NewServiceClient(cfg.TableURL, identity, clientOptions(t))
		return clients{service, newPipeline(t, newTokenPolicy(identity))}, err
	}
	return clients{}, fmt.Errorf("credential %q can't be used for tables", cfg.Credential)
}

// newPipeline sends requests as the SDK's clients do; each is authorised by auth.
func newPipeline(t policy.Transporter, auth ...policy.Policy) runtime.Pipeline {
	options := runtime.PipelineOptions{PerRetry: auth}
	return runtime.NewPipeline("tables", tablesVersion, options, &clientOptions(t).ClientOptions)
}

// newTokenPolicy authorises with tokens for storage, which are the same in all clouds.
func newTokenPolicy(identity azcore.TokenCredential) policy.Policy {
	return runtime.NewBearerTokenPolicy(identity, []string{"https://storage.azure.com/.default"}, nil)
}

func newIdentity(managedIdentityClientID string) (azcore.TokenCredential, error) {
	if managedIdentityClientID == "" {
		return azidentity.NewDefaultAzureCredential(nil)
	}
	return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ID: azidentity.ClientID(managedIdentityClientID)})
}

// transport sends the requests and counts each one on the wire.
type transport struct {
	base  http.RoundTripper
	count func(service, operation string, status int, err error)
}

// maxAnswer bounds an answer in memory: 1,000 rows are at most 4 MiB by the
// service's own rule.
const maxAnswer = 16 << 20

func newTransport(base http.RoundTripper, count func(service, operation string, status int, err error)) *transport {
	if base != nil {
		return &transport{base: base, count: count}
	}
	t := azureconn.NewTransport(connections)
	t.ResponseHeaderTimeout = tryTimeout
	// Whole rows in one write: the Azurite emulator corrupts a character that is
	// split over two reads.
	t.WriteBufferSize = 64 << 10
	return &transport{base: t, count: count}
}

// Do implements policy.Transporter. It uses RoundTrip and not a Client: storage
// redirects nowhere, and a signature must not follow a redirect.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	status := 0
	if err != nil {
		err = noAnswer(err)
	} else {
		status = resp.StatusCode
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	if t.count != nil {
		t.count("table", operationOf(req), status, err)
	}
	return resp, err
}

// operationOf names what a request does, as Options.OnTransaction gets it.
func operationOf(req *http.Request) string {
	last := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	onTables := last == "Tables" || strings.HasPrefix(last, "Tables(")
	switch {
	case last == "$batch":
		return "batch"
	case onTables && req.Method == http.MethodPost:
		return "create-table"
	case onTables && req.Method == http.MethodDelete:
		return "delete-table"
	case onTables:
		return "list-tables"
	case req.Method == http.MethodPost:
		return "insert"
	case req.Method == http.MethodDelete:
		return "delete"
	case req.Method == http.MethodPut:
		return "replace"
	case strings.Contains(last, "(PartitionKey="):
		return "get"
	}
	return "query"
}
