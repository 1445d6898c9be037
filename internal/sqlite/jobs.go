package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pushlease/pushlease/tables"
)

// PutJob implements tables.Jobs.
func (db *DB) PutJob(ctx context.Context, j tables.Job) (tables.Job, error) {
	stored, err := json.Marshal(j)
	if err != nil {
		return tables.Job{}, fmt.Errorf("put job: %w", err)
	}
	expected := j.ETag
	err = db.write(ctx, serviceTable, "put_job", func(tx *tx) error {
		j.ETag = newETag()
		if expected == "" {
			n, err := tx.exec("INSERT INTO jobs (id, etag, job) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", j.ID, j.ETag, string(stored))
			if err == nil && n == 0 {
				err = tables.ErrExists
			}
			return err
		}
		n, err := tx.exec("UPDATE jobs SET etag = ?, job = ? WHERE id = ? AND etag = ?", j.ETag, string(stored), j.ID, expected)
		if err == nil && n == 0 {
			err = tx.whyUnchanged("SELECT 1 FROM jobs WHERE id = ?", j.ID)
		}
		return err
	})
	if err != nil {
		return tables.Job{}, fmt.Errorf("put job: %w", err)
	}
	return j, nil
}

// ListJobs implements tables.Jobs.
func (db *DB) ListJobs(ctx context.Context) (list []tables.Job, err error) {
	q := query{text: "SELECT id, etag, job FROM jobs ORDER BY id"}
	err = db.read(ctx, serviceTable, "list_jobs", q, func(scan func(...any) error) (bool, error) {
		var id, etag, stored string
		if err := scan(&id, &etag, &stored); err != nil {
			return false, err
		}
		var j tables.Job
		if json.Unmarshal([]byte(stored), &j) != nil || j.ID != id {
			j = tables.DamagedJob(id)
		}
		j.ETag = etag
		list = append(list, j)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return list, nil
}

// DropJob implements tables.Jobs.
func (db *DB) DropJob(ctx context.Context, id string) error {
	err := db.write(ctx, serviceTable, "drop_job", func(tx *tx) error {
		_, err := tx.exec("DELETE FROM jobs WHERE id = ?", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop job: %w", err)
	}
	return nil
}
