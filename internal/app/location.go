package app

import (
	"path/filepath"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/config"
)

// StorageLocation says where the storage of cfg is, in the same words for all who have
// the same one however they name it: the file's whole path, or the address of the account.
// It holds no secret.
func StorageLocation(cfg config.Config) string {
	if cfg.Storage.Kind() == config.StorageSQLite {
		path, err := filepath.Abs(cfg.Storage.Path())
		if err != nil {
			return cfg.Storage.String()
		}
		if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			path = filepath.Join(folder, filepath.Base(path))
		}
		return "sqlite:" + path
	}
	conn, err := azureconn.Parse(storageSource(cfg))
	if err != nil {
		return cfg.Storage.String()
	}
	if conn.QueueURL == "" {
		return conn.TableURL
	}
	return conn.QueueURL
}

// storageSource is what azureconn reads.
func storageSource(cfg config.Config) string {
	if cfg.Storage.Kind() == config.StorageAzure {
		return "azure:" + cfg.Storage.Account()
	}
	return cfg.Storage.ConnectionString()
}
