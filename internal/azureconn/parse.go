package azureconn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// The emulator's account, key and ports are public. Source: Microsoft Learn,
// "Connect to Azurite".
const (
	EmulatorAccount = "devstoreaccount1"
	emulatorKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	emulatorQueue   = "10001"
	emulatorTable   = "10002"
)

// identityPrefix begins the short form for Entra identities.
const identityPrefix = "azure:"

const defaultSuffix = "core.windows.net"

// The keys of a connection string, in lower case.
const (
	keyProtocol = "defaultendpointsprotocol"
	keyAccount  = "accountname"
	keyKey      = "accountkey"
	keySAS      = "sharedaccesssignature"
	keySuffix   = "endpointsuffix"
	keyQueue    = "queueendpoint"
	keyTable    = "tableendpoint"
	keyDev      = "usedevelopmentstorage"
	keyDevProxy = "developmentstorageproxyuri"
)

// spelling is how a key is written, for messages. Keys with true are read;
// the others belong to services that pushlease doesn't use.
var spelling = map[string]struct {
	name string
	used bool
}{
	keyProtocol: {"DefaultEndpointsProtocol", true},
	keyAccount:  {"AccountName", true},
	keyKey:      {"AccountKey", true},
	keySAS:      {"SharedAccessSignature", true},
	keySuffix:   {"EndpointSuffix", true},
	keyQueue:    {"QueueEndpoint", true},
	keyTable:    {"TableEndpoint", true},
	keyDev:      {"UseDevelopmentStorage", true},
	keyDevProxy: {"DevelopmentStorageProxyUri", true},

	"blobendpoint":           {"BlobEndpoint", false},
	"fileendpoint":           {"FileEndpoint", false},
	"blobsecondaryendpoint":  {"BlobSecondaryEndpoint", false},
	"filesecondaryendpoint":  {"FileSecondaryEndpoint", false},
	"queuesecondaryendpoint": {"QueueSecondaryEndpoint", false},
	"tablesecondaryendpoint": {"TableSecondaryEndpoint", false},
}

// Parse reads one of
//
//   - an Azure Storage connection string, with an account key or a SAS. Keys
//     are matched without regard to case; blanks around keys and values and
//     empty segments are ignored. QueueEndpoint and TableEndpoint name services
//     at their own addresses. When one of them is given, the other is derived
//     from the account only if DefaultEndpointsProtocol or EndpointSuffix asks
//     for that. The emulator's account needs no key;
//   - UseDevelopmentStorage=true, optionally with DevelopmentStorageProxyUri;
//   - azure:<account>, optionally followed by ;EndpointSuffix=<suffix>, for an
//     Entra identity.
//
// Its errors name the key and the cure, and never hold a value.
func Parse(s string) (Config, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Config{}, errors.New("the connection string is empty; copy it from the storage account's \"Access keys\" page, or use azure:<account>")
	}
	if strings.HasPrefix(strings.ToLower(s), identityPrefix) {
		return parseIdentity(s[len(identityPrefix):])
	}
	if strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") {
		return Config{}, errors.New("this is a URL and no connection string; write QueueEndpoint=<url>;TableEndpoint=<url>;SharedAccessSignature=<what follows the ?>")
	}
	values, err := split(s)
	if err != nil {
		return Config{}, err
	}
	if _, ok := values[keyDev]; ok {
		return parseEmulator(values)
	}
	if _, ok := values[keyDevProxy]; ok {
		return Config{}, errors.New("DevelopmentStorageProxyUri needs UseDevelopmentStorage=true")
	}
	return parseAccount(values)
}

var keyLike = regexp.MustCompile(`^[A-Za-z]{1,32}$`)

// split returns the values by lower-case key. A piece that does not look like
// a key is named by its position only: it may be a piece of a secret.
func split(s string) (map[string]string, error) {
	values := make(map[string]string)
	for i, segment := range strings.Split(s, ";") {
		segment = strings.TrimSpace(segment)
		if segment == "" {
			continue
		}
		name, value, found := strings.Cut(segment, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		known, ok := spelling[strings.ToLower(name)]
		switch {
		case !found:
			return nil, fmt.Errorf("segment %d of the connection string has no '='; segments are Key=value, separated by ';'", i+1)
		case !ok && keyLike.MatchString(name):
			return nil, fmt.Errorf("%s is no key of a storage connection string; check the spelling, or remove it", name)
		case !ok:
			return nil, fmt.Errorf("segment %d of the connection string begins with no known key; copy the string again, whole and without quotes", i+1)
		case !known.used:
			continue
		case value == "":
			return nil, fmt.Errorf("%s is empty; give it a value, or remove it", known.name)
		}
		if _, again := values[strings.ToLower(name)]; again {
			return nil, fmt.Errorf("%s is there twice; remove one", known.name)
		}
		values[strings.ToLower(name)] = value
	}
	return values, nil
}

var accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

func parseIdentity(s string) (Config, error) {
	account, rest, _ := strings.Cut(s, ";")
	account = strings.TrimSpace(account)
	if !accountName.MatchString(account) {
		return Config{}, errors.New("azure: is followed by the account's name, 3 to 24 lower-case letters and digits, as in azure:mystorage")
	}
	values, err := split(rest)
	if err != nil {
		return Config{}, err
	}
	for key := range values {
		if key != keySuffix {
			return Config{}, fmt.Errorf("%s does not go with azure:<account>; remove it", spelling[key].name)
		}
	}
	values[keyAccount] = account
	cfg := Config{Account: account, Credential: Identity}
	if err := setEndpoints(&cfg, values); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

func parseEmulator(values map[string]string) (Config, error) {
	if !strings.EqualFold(values[keyDev], "true") {
		return Config{}, errors.New("write UseDevelopmentStorage=true for the emulator, or leave it out")
	}
	scheme, host := "http", "127.0.0.1"
	for key, value := range values {
		switch key {
		case keyDev:
		case keyDevProxy:
			u, err := endpoint("DevelopmentStorageProxyUri", value)
			if err != nil {
				return Config{}, err
			}
			scheme, host = u.Scheme, u.Hostname()
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
		default:
			return Config{}, fmt.Errorf("UseDevelopmentStorage=true and %s contradict each other; remove one", spelling[key].name)
		}
	}
	secret := emulatorKey
	return Config{
		QueueURL:   scheme + "://" + host + ":" + emulatorQueue + "/" + EmulatorAccount,
		TableURL:   scheme + "://" + host + ":" + emulatorTable + "/" + EmulatorAccount,
		Account:    EmulatorAccount,
		Credential: SharedKey,
		secret:     &secret,
	}, nil
}

func parseAccount(values map[string]string) (Config, error) {
	cfg := Config{Account: values[keyAccount]}
	if err := setEndpoints(&cfg, values); err != nil {
		return Config{}, err
	}
	key, sas := values[keyKey], values[keySAS]
	if key == "" && sas == "" && isEmulator(cfg) {
		cfg.Account, key = EmulatorAccount, emulatorKey
	}
	switch {
	case key != "" && sas != "":
		return Config{}, errors.New("AccountKey and SharedAccessSignature contradict each other; remove one")
	case key != "":
		if cfg.Account == "" {
			return Config{}, errors.New("AccountKey needs AccountName; add it")
		}
		if raw, err := base64.StdEncoding.DecodeString(key); err != nil || len(raw) == 0 {
			return Config{}, errors.New("AccountKey is not base64; copy it again, whole, with the '=' at its end")
		}
		cfg.Credential, cfg.secret = SharedKey, &key
	case sas != "":
		sas = strings.TrimPrefix(sas, "?")
		if q, err := url.ParseQuery(sas); err != nil || q.Get("sig") == "" {
			return Config{}, errors.New("SharedAccessSignature has no sig=; copy it again, whole")
		}
		cfg.Credential, cfg.secret = SAS, &sas
	default:
		return Config{}, errors.New("the connection string has no credential; add AccountKey or SharedAccessSignature, or use azure:<account> for an Entra identity")
	}
	return cfg, nil
}

// isEmulator is true for the account whose key everybody knows.
func isEmulator(cfg Config) bool {
	if cfg.Account != "" {
		return cfg.Account == EmulatorAccount
	}
	return strings.HasSuffix(cfg.QueueURL+cfg.TableURL, "/"+EmulatorAccount)
}

// setEndpoints fills in the addresses, given or derived.
func setEndpoints(cfg *Config, values map[string]string) error {
	for key, to := range map[string]*string{keyQueue: &cfg.QueueURL, keyTable: &cfg.TableURL} {
		if value, ok := values[key]; ok {
			u, err := endpoint(spelling[key].name, value)
			if err != nil {
				return err
			}
			*to = strings.TrimRight(u.String(), "/")
		}
	}
	protocol, asked := values[keyProtocol]
	if protocol = strings.ToLower(protocol); !asked {
		protocol = "https"
	}
	if protocol != "https" && protocol != "http" {
		return errors.New("DefaultEndpointsProtocol is https or http; correct it")
	}
	suffix, given := values[keySuffix]
	if !given {
		suffix = defaultSuffix
	}
	some := cfg.QueueURL != "" || cfg.TableURL != ""
	if some && (cfg.QueueURL != "" && cfg.TableURL != "" || !asked && !given || cfg.Account == "") {
		return nil
	}
	return derive(cfg, protocol, suffix)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// derive builds the addresses that were not given from the account's name.
func derive(cfg *Config, protocol, suffix string) error {
	if cfg.Account == "" {
		return errors.New("the connection string names no account; add AccountName, or QueueEndpoint and TableEndpoint")
	}
	if !accountName.MatchString(cfg.Account) {
		return errors.New("AccountName has 3 to 24 lower-case letters and digits; correct it, or add QueueEndpoint and TableEndpoint")
	}
	if !hostName.MatchString(suffix) {
		return errors.New("EndpointSuffix is a host name such as core.windows.net; correct it")
	}
	if cfg.QueueURL == "" {
		cfg.QueueURL = protocol + "://" + cfg.Account + ".queue." + suffix
	}
	if cfg.TableURL == "" {
		cfg.TableURL = protocol + "://" + cfg.Account + ".table." + suffix
	}
	return nil
}

// endpoint reads a service address. What is wrong is said without the address,
// because it may hold a signature or a password.
func endpoint(name, value string) (*url.URL, error) {
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, fmt.Errorf("%s is no URL; write it as https://host or http://host:port/account", name)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%s begins with https:// or http://; correct it", name)
	case u.User != nil:
		return nil, fmt.Errorf("%s has a user name; remove it, storage has other credentials", name)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%s has a query; write the signature as SharedAccessSignature=<what follows the ?>", name)
	}
	return u, nil
}
