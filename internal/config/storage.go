package config

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pushlease/pushlease/internal/azureconn"
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

// Account is what follows azure:, the account's name and its EndpointSuffix if
// that is not the usual one; empty unless Kind is StorageAzure.
func (s Storage) Account() string { return s.only(StorageAzure) }

func (s Storage) only(kind StorageKind) string {
	if s.kind != kind {
		return ""
	}
	return s.value
}

// IsAccount reports whether it is an Azure account that is not the emulator's.
func (s Storage) IsAccount() bool {
	if s.kind == StorageConnection {
		conn, err := azureconn.Parse(s.value)
		return err != nil || conn.Account != azureconn.EmulatorAccount
	}
	return s.kind == StorageAzure
}

// SameAccount reports whether two storages are one Azure account, as far as their names, or else
// the addresses of their queues, tell.
func (s Storage) SameAccount(other Storage) bool {
	a, errA := azureconn.Parse(s.accountText())
	b, errB := azureconn.Parse(other.accountText())
	switch {
	case errA != nil || errB != nil:
		return false
	case a.Account != "" && b.Account != "":
		return strings.EqualFold(a.Account, b.Account)
	}
	return strings.EqualFold(a.QueueURL, b.QueueURL)
}

func (s Storage) accountText() string {
	if s.kind == StorageAzure {
		return azurePrefix + s.value
	}
	return s.ConnectionString()
}

// String names the storage without any key.
func (s Storage) String() string {
	switch s.kind {
	case StorageSQLite:
		return "sqlite:" + s.value
	case StorageAzure:
		return azurePrefix + s.value
	case StorageConnection:
		if conn, err := azureconn.Parse(s.value); err == nil && conn.Account != "" {
			return "connection string of " + conn.Account + " [redacted]"
		}
		return "connection string [redacted]"
	}
	return ""
}

// Format makes every verb print what String says.
func (s Storage) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText writes what String says.
func (s Storage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const azurePrefix = "azure:"

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
	account, identity := strings.CutPrefix(v, azurePrefix)
	if !identity && !strings.Contains(v, "=") {
		return Storage{}, errors.New("this is no form of storage; " + storageForms)
	}
	conn, err := azureconn.Parse(v)
	switch {
	case err != nil:
		return Storage{}, err
	case conn.QueueURL == "" || conn.TableURL == "":
		return Storage{}, errors.New("the connection string names only one of the two services; add QueueEndpoint and TableEndpoint, or copy the whole string from the portal")
	case identity:
		return Storage{StorageAzure, account}, nil
	}
	return Storage{StorageConnection, v}, nil
}

func only(s, chars string) bool { return strings.Trim(s, chars) == "" }
