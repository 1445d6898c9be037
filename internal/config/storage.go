package config

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// StorageKind says which adapter a Storage needs.
type StorageKind string

// The kinds of storage.
const (
	// StorageSQLite is one embedded database file.
	StorageSQLite StorageKind = "sqlite"
	// StorageConnection is an Azure Storage account by connection string.
	StorageConnection StorageKind = "connection-string"
	// StorageAzure is an Azure Storage account by name, with Entra identity.
	StorageAzure StorageKind = "azure"
)

// Storage is a parsed storage setting. It prints without keys.
type Storage struct {
	kind  StorageKind
	value string // path, connection string or account name
}

// Kind says which of the accessors holds the value.
func (s Storage) Kind() StorageKind { return s.kind }

// Path is the database file; empty unless Kind is StorageSQLite.
func (s Storage) Path() string { return s.only(StorageSQLite) }

// ConnectionString is secret; empty unless Kind is StorageConnection.
func (s Storage) ConnectionString() string { return s.only(StorageConnection) }

// Account is the account's name; empty unless Kind is StorageAzure.
func (s Storage) Account() string { return s.only(StorageAzure) }

func (s Storage) only(kind StorageKind) string {
	if s.kind != kind {
		return ""
	}
	return s.value
}

// String names the storage without any key.
func (s Storage) String() string {
	switch s.kind {
	case StorageSQLite:
		return "sqlite:" + s.value
	case StorageAzure:
		return "azure:" + s.value
	case StorageConnection:
		if strings.EqualFold(strings.TrimRight(s.value, "; "), "UseDevelopmentStorage=true") {
			return "UseDevelopmentStorage=true"
		}
		if name := connectionPart(s.value, "AccountName"); validAccount(name) {
			return "connection string of " + name + " [redacted]"
		}
		return "connection string [redacted]"
	}
	return ""
}

// Format makes every verb print what String says.
func (s Storage) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText writes what String says.
func (s Storage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const storageForms = "use sqlite:<file>, azure:<account>, or an Azure Storage connection string"

// parseStorage never quotes v in an error: it may hold an account key.
func parseStorage(v string) (Storage, error) {
	v = strings.TrimSpace(v)
	if path, ok := strings.CutPrefix(v, "sqlite:"); ok {
		switch {
		case path == "":
			return Storage{}, errors.New("sqlite: names no file; write sqlite:pushlease.db")
		case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"):
			return Storage{}, errors.New("sqlite: takes the path of a file, no SQLite URI and no :memory: (nothing would survive a restart); write sqlite:pushlease.db")
		}
		return Storage{StorageSQLite, path}, nil
	}
	if account, ok := strings.CutPrefix(v, "azure:"); ok {
		if !validAccount(account) {
			return Storage{}, errors.New("azure: takes the name of a storage account: 3 to 24 lower-case letters and digits, no URL and no key")
		}
		return Storage{StorageAzure, account}, nil
	}
	if strings.EqualFold(strings.TrimRight(v, "; "), "UseDevelopmentStorage=true") {
		return Storage{StorageConnection, v}, nil
	}
	if !strings.Contains(v, "=") {
		return Storage{}, errors.New("this is no form of storage; " + storageForms)
	}
	if err := checkConnectionString(v); err != nil {
		return Storage{}, err
	}
	return Storage{StorageConnection, v}, nil
}

func checkConnectionString(v string) error {
	has := func(key string) bool { return connectionPart(v, key) != "" }
	switch {
	case has("SharedAccessSignature"):
		if !has("QueueEndpoint") || !has("TableEndpoint") {
			return errors.New("a connection string with a SharedAccessSignature needs QueueEndpoint and TableEndpoint; copy the whole string from the portal")
		}
	case !has("AccountName"):
		return errors.New("the connection string has no AccountName; copy the whole string from the portal, or " + storageForms)
	case !has("AccountKey"):
		return errors.New("the connection string has neither AccountKey nor SharedAccessSignature; add one, or use azure:<account> to sign in with an Entra identity")
	}
	return nil
}

// connectionPart returns the value of one key of a connection string.
func connectionPart(v, key string) string {
	for part := range strings.SplitSeq(v, ";") {
		if k, val, ok := strings.Cut(part, "="); ok && strings.EqualFold(strings.TrimSpace(k), key) {
			return strings.TrimSpace(val)
		}
	}
	return ""
}

func validAccount(name string) bool {
	return len(name) >= 3 && len(name) <= 24 && only(name, "abcdefghijklmnopqrstuvwxyz0123456789")
}

func only(s, chars string) bool { return strings.Trim(s, chars) == "" }
