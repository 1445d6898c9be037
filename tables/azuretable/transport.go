package azuretable

import (
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
