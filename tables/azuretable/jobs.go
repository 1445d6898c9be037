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

// jobsPartition of the table of webhooks has a row for each job.
const jobsPartition = "jobs"

// jobColumn holds the job as JSON.
const jobColumn = "Job"

// PutJob implements tables.Jobs.
func (s *Store) PutJob(ctx context.Context, j tables.Job) (tables.Job, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return tables.Job{}, fmt.Errorf("put job: %w", err)
	}
	c := columns{}
	c.binary(jobColumn, b)
	if j.ETag == "" {
		j.ETag, err = s.client.insert(ctx, s.webhooksTable(), jobsPartition, encodeID(j.ID), c)
	} else {
		j.ETag, err = s.client.replace(ctx, s.webhooksTable(), jobsPartition, encodeID(j.ID), c, j.ETag)
	}
	if err != nil {
		return tables.Job{}, fmt.Errorf("put job: %w", err)
	}
	return j, nil
}

// ListJobs implements tables.Jobs.
func (s *Store) ListJobs(ctx context.Context) ([]tables.Job, error) {
	rows, err := s.client.all(ctx, query{table: s.webhooksTable(), filter: filter{}.partition(jobsPartition), etags: true})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var list []tables.Job
	for _, e := range rows {
		var j tables.Job
		if json.Unmarshal(e.binary(jobColumn), &j) != nil || encodeID(j.ID) != e.rk {
			id, ok := decodeID(e.rk)
			if !ok {
				continue // another program's row is no job
			}
			j = tables.DamagedJob(id)
		}
		j.ETag = e.etag
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b tables.Job) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// DropJob implements tables.Jobs.
func (s *Store) DropJob(ctx context.Context, id string) error {
	err := s.client.remove(ctx, s.webhooksTable(), jobsPartition, encodeID(id), "")
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		return fmt.Errorf("drop job: %w", err)
	}
	return nil
}
