package azuretable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables"
)

// client makes the requests to the table service, each of which is about one table. It has two ways there, the
// SDK's, and one for transactions, whose requests are made here. They share the transport and the credential.
type client struct {
	service  *aztables.ServiceClient
	pipeline runtime.Pipeline
	batches  batchFormat
	// seen is told after a request whether its table was missing, and when it began.
	seen func(table string, began time.Time, missing bool)
	// made is told when a table was made, or is there all the same.
	made func()
	// base has the connections.
	base http.RoundTripper
}

// newClient returns a client of the table service of cfg, which tells nobody yet of tables. It makes no network call.
func newClient(cfg azureconn.Config, managedIdentityClientID string, t *transport) (*client, error) {
	c := &client{batches: newBatchFormat(cfg), base: t.base}
	if cfg.TableURL == "" {
		return nil, errors.New("the connection string names no table service: add TableEndpoint, or AccountName to derive it from")
	}
	switch cfg.Credential {
	case azureconn.SharedKey:
		key, err := aztables.NewSharedKeyCredential(cfg.Account, cfg.Key())
		if err != nil {
			return nil, errors.New("the account key is not base64") // err may quote it
		}
		signing, err := newSharedKeyPolicy(cfg.Account, cfg.Key())
		if err != nil {
			return nil, err
		}
		c.pipeline = newPipeline(t, signing)
		c.service, err = aztables.NewServiceClientWithSharedKey(cfg.TableURL, key, clientOptions(t))
		return c, err
	case azureconn.SAS:
		service, err := aztables.NewServiceClientWithNoCredential(cfg.TableURL+"/?"+cfg.SAS(), clientOptions(t))
		if err != nil {
			return nil, errors.New("the table service's address is not valid") // err may quote the SAS
		}
		c.service, c.pipeline = service, newPipeline(t)
		return c, nil
	case azureconn.Identity:
		identity, err := newIdentity(managedIdentityClientID)
		if err != nil {
			return nil, fmt.Errorf("no Entra credential can be used: %w", err)
		}
		c.pipeline = newPipeline(t, newTokenPolicy(identity))
		c.service, err = aztables.NewServiceClient(cfg.TableURL, identity, clientOptions(t))
		return c, err
	}
	return nil, fmt.Errorf("credential %q can't be used for tables", cfg.Credential)
}

// close lets go of connections that are not in use.
func (c *client) close() { (&http.Client{Transport: c.base}).CloseIdleConnections() }

// twice calls f, and once more after a short pause when it failed in a way that
// may pass. Only for requests that may be repeated.
func twice(ctx context.Context, f func() error) error {
	err := f()
	if err == nil || !passing(err) || !sleep(ctx, 50*time.Millisecond+rand.N(50*time.Millisecond)) {
		return err
	}
	return f()
}

// sleep waits for d and reports whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// saw takes in what a request about a table ended with, and when it began.
func (c *client) saw(table string, began time.Time, err error) {
	if missing := tableMissing(err); missing || err == nil {
		c.seen(table, began, missing)
	}
}

// withTable calls f, which writes to table, and when the table is missing creates
// it and calls f again.
func (c *client) withTable(ctx context.Context, table string, f func() error) error {
	began := time.Now()
	err := f()
	c.saw(table, began, err)
	for try := 0; tableMissing(err) && try < 3; try++ {
		if err := c.createTable(ctx, table); err != nil {
			return err
		}
		began = time.Now()
		err = f()
		c.saw(table, began, err)
	}
	return err
}

// The pause between two tries to create a table that is being deleted, which
// takes the service 40 seconds or more.
const (
	firstCreatePause = 200 * time.Millisecond
	maxCreatePause   = 5 * time.Second
)

// createTable makes sure that table exists. It waits for a deletion under way as
// long as ctx lasts.
func (c *client) createTable(ctx context.Context, table string) error {
	const operation = "create table"
	for pause := firstCreatePause; ; pause = min(2*pause, maxCreatePause) {
		err := twice(ctx, func() error {
			_, err := c.service.CreateTable(ctx, table, nil)
			return storageErr(ctx, operation, err)
		})
		switch {
		case err == nil || hasCode(err, string(aztables.TableAlreadyExists)):
			c.made()
			return nil
		case !hasCode(err, string(aztables.TableBeingDeleted)):
			return err
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("table %s can't be created: storage is still deleting the one of that name, which takes about a minute: %w", table, ctx.Err())
		}
	}
}

// tableNames returns the names of the tables from one name up to another, which is
// not included.
func (c *client) tableNames(ctx context.Context, from, to string) ([]string, error) {
	names := filter{}.where("TableName", "ge", from).where("TableName", "lt", to).String()
	opts := &aztables.ListTablesOptions{Filter: &names}
	var found []string
	for {
		var page aztables.ListTablesResponse
		err := twice(ctx, func() (err error) {
			page, err = c.service.NewListTablesPager(opts).NextPage(ctx)
			return storageErr(ctx, "list tables", err)
		})
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tables {
			found = append(found, deref(t.Name))
		}
		if deref(page.NextTableName) == "" {
			return found, nil
		}
		opts.NextTableName = page.NextTableName
	}
}

// deleteTable reports whether it was this call that deleted the table, as far as that is known.
func (c *client) deleteTable(ctx context.Context, table string) (dropped bool, err error) {
	err = rowErr(twice(ctx, func() error {
		_, err := c.service.DeleteTable(ctx, table, nil)
		return storageErr(ctx, "delete table", err)
	}))
	if errors.Is(err, tables.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
