package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pushlease/pushlease/tables"
)

// PutInstance implements tables.Instances.
func (db *DB) PutInstance(ctx context.Context, i tables.Instance) error {
	stored, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("put instance: %w", err)
	}
	err = db.write(ctx, serviceTable, "put_instance", func(tx *tx) error {
		_, err := tx.exec("INSERT INTO instances (name, instance) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET instance = excluded.instance", i.Name, string(stored))
		return err
	})
	if err != nil {
		return fmt.Errorf("put instance: %w", err)
	}
	return nil
}

// ListInstances implements tables.Instances.
func (db *DB) ListInstances(ctx context.Context) (list []tables.Instance, err error) {
	q := query{text: "SELECT name, instance FROM instances ORDER BY name"}
	err = db.read(ctx, serviceTable, "list_instances", q, func(scan func(...any) error) (bool, error) {
		var name, stored string
		if err := scan(&name, &stored); err != nil {
			return false, err
		}
		var i tables.Instance
		if json.Unmarshal([]byte(stored), &i) != nil || i.Name != name {
			i = tables.DamagedInstance(name)
		}
		list = append(list, i)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return list, nil
}

// DropInstance implements tables.Instances.
func (db *DB) DropInstance(ctx context.Context, name string) error {
	err := db.write(ctx, serviceTable, "drop_instance", func(tx *tx) error {
		_, err := tx.exec("DELETE FROM instances WHERE name = ?", name)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop instance: %w", err)
	}
	return nil
}
