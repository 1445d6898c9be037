package app

import (
	"context"
	"errors"
	"fmt"
)

// cleanups undo what was set up, last first. Each is registered in the line after
// its resource exists, so that a start that fails half-way leaves nothing behind.
type cleanups struct {
	steps []cleanup
}

type cleanup struct {
	name string
	run  func(context.Context) error
}

func (c *cleanups) add(name string, run func(context.Context) error) {
	c.steps = append(c.steps, cleanup{name, run})
}

// run runs every step, whatever the others return, and joins their errors.
func (c *cleanups) run(ctx context.Context) error {
	var errs []error
	for len(c.steps) > 0 {
		last := c.steps[len(c.steps)-1]
		c.steps = c.steps[:len(c.steps)-1]
		if err := last.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}
