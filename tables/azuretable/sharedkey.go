package azuretable

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// sharedKeyPolicy signs requests with the account's key, in the scheme "Shared Key
// Lite" for tables. The SDK has the same policy but keeps it to itself. Source: Microsoft
// Learn, "Authorize with Shared Key".
type sharedKeyPolicy struct {
	account string
	key     []byte
}

const dateHeader = "x-ms-date"

// newSharedKeyPolicy takes the key in base64.
func newSharedKeyPolicy(account, key string) (policy.Policy, error) {
	b, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, errors.New("the account key is not base64") // err may quote it
	}
	return &sharedKeyPolicy{account: account, key: b}, nil
}

// Do implements policy.Policy. The signature is about the date and the path only. A query
// would have to be signed when it names a comp, which is for properties of the service.
func (p *sharedKeyPolicy) Do(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	date := raw.Header.Get(dateHeader)
	if date == "" {
		date = time.Now().UTC().Format(http.TimeFormat)
		raw.Header.Set(dateHeader, date)
	}
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(date + "\n/" + p.account + raw.URL.EscapedPath()))
	raw.Header.Set("Authorization", "SharedKeyLite "+p.account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return req.Next()
}
