package azurequeue

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// queuesVersion is the version of the REST API, the same that the SDK asks for.
const queuesVersion = "2024-08-04"

// receiptParameter is the one parameter of a delete, beside those of a SAS.
const receiptParameter = "popreceipt"

// sharedKey signs deletes with the account's key, in the scheme "Shared Key". The SDK has
// the same but keeps it to itself. Source: Microsoft Learn, "Authorize with Shared Key".
// Safe for concurrent use.
type sharedKey struct {
	account string
	macs    sync.Pool // of hash.Hash: making one hashes the key twice
}

// newSharedKey takes the key in base64.
func newSharedKey(account, key string) (*sharedKey, error) {
	b, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, errors.New("AccountKey is not base64") // err may quote it
	}
	return &sharedKey{account: account, macs: sync.Pool{New: func() any { return hmac.New(sha256.New, b) }}}, nil
}

// emptyHeaders are those between the method and the headers of x-ms-, none of which a delete
// has: Content-Encoding, -Language, -Length, -MD5 and -Type, Date, If-Modified-Since,
// If-Match, If-None-Match, If-Unmodified-Since and Range.
var emptyHeaders = strings.Repeat("\n", 11)

// sign dates and authorises a request without a body that has no headers of x-ms- but the
// version, and no parameter but the receipt.
func (k *sharedKey) sign(h http.Header, method string, u *url.URL, receipt string) {
	date := time.Now().UTC().Format(http.TimeFormat)
	h["X-Ms-Date"] = []string{date}
	h["Authorization"] = []string{k.authorization(method, u, date, receipt)}
}

func (k *sharedKey) authorization(method string, u *url.URL, date, receipt string) string {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	mac.Write([]byte(method + emptyHeaders +
		"\nx-ms-date:" + date + "\nx-ms-version:" + queuesVersion +
		"\n/" + k.account + u.EscapedPath() + "\n" + receiptParameter + ":" + receipt))
	var sum [sha256.Size]byte
	return "SharedKey " + k.account + ":" + base64.StdEncoding.EncodeToString(mac.Sum(sum[:0]))
}
