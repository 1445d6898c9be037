package app

import (
	"context"
	"log/slog"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/internal/sqlite"
)

// storageCheck is about storage as a whole: whether what was written last was kept.
func storageCheck(ctx context.Context, fault func(context.Context) error) api.Check {
	c := api.Check{Name: "storage", OK: true}
	if err := fault(ctx); err != nil {
		c.OK, c.Detail = false, err.Error()
	}
	return c
}

// tellFaults logs what is wrong with an embedded file, and that it is well again.
func tellFaults(log *slog.Logger) func(error) {
	return func(err error) {
		if err == nil {
			log.Info("storage can be written again")
			return
		}
		log.Error("storage can't be used", "error", err)
	}
}

// tellRescued names the copies that an earlier process made of a file that was taken away.
func tellRescued(log *slog.Logger, path string) {
	if saved := sqlite.Rescued(path); len(saved) > 0 {
		log.Warn("beside the database lie copies that were made when its file was taken away: they may hold messages that it lacks; when they are not needed any more, move them elsewhere",
			"database", path, "copies", saved)
	}
}
