package azuretable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pushlease/pushlease/tables"
)

// instancesPartition of the table of webhooks has a row for each instance.
const instancesPartition = "instances"

// instanceColumn holds the instance as JSON.
const instanceColumn = "About"

// PutInstance implements tables.Instances.
func (s *Store) PutInstance(ctx context.Context, i tables.Instance) error {
	b, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("put instance: %w", err)
	}
	c := columns{}
	c.binary(instanceColumn, b)
	if err := s.client.put(ctx, s.webhooksTable(), instancesPartition, encodeID(i.Name), c); err != nil {
		return fmt.Errorf("put instance: %w", err)
	}
	return nil
}

// ListInstances implements tables.Instances.
func (s *Store) ListInstances(ctx context.Context) ([]tables.Instance, error) {
	rows, err := s.client.all(ctx, query{table: s.webhooksTable(), filter: filter{}.partition(instancesPartition)})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var list []tables.Instance
	for _, e := range rows {
		var i tables.Instance
		if json.Unmarshal(e.binary(instanceColumn), &i) != nil || encodeID(i.Name) != e.rk {
			name, ok := decodeID(e.rk)
			if !ok {
				continue // another program's row is no instance
			}
			i = tables.DamagedInstance(name)
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b tables.Instance) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// DropInstance implements tables.Instances.
func (s *Store) DropInstance(ctx context.Context, name string) error {
	err := s.client.remove(ctx, s.webhooksTable(), instancesPartition, encodeID(name), "")
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		return fmt.Errorf("drop instance: %w", err)
	}
	return nil
}
