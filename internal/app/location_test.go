package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pushlease/pushlease/internal/config"
)

func TestOneStorageHasOneLocation(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	const account = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=c2VzYW1l;EndpointSuffix=core.windows.net"
	for storage, want := range map[string]string{
		"sqlite:a.db":                "sqlite:" + filepath.Join(folder, "a.db"),
		"sqlite:./x/../a.db":         "sqlite:" + filepath.Join(folder, "a.db"),
		"sqlite:" + link + "/a.db":   "sqlite:" + filepath.Join(folder, "a.db"),
		"sqlite:nowhere/a.db":        "sqlite:" + filepath.Join(folder, "nowhere", "a.db"),
		"azure:shop":                 "https://shop.queue.core.windows.net",
		account:                      "https://shop.queue.core.windows.net",
		"UseDevelopmentStorage=true": "http://127.0.0.1:10001/devstoreaccount1",
	} {
		cfg, err := config.Load(nil, []string{"PUSHLEASE_STORAGE=" + storage})
		if err != nil {
			t.Fatal(err)
		}
		if got := StorageLocation(cfg); got != want {
			t.Errorf("%s is at %s, want %s", cfg.Storage, got, want)
		}
	}
}
