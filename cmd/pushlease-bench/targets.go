package main

import "time"

// bounds are the figures that pushlease wants to reach, as far as they are about what was
// measured. docs/performance.md lists them. Rates are judged with a receiver that answers with 200, small bodies, and storage without
// limits, which level them.
func bounds(o options) []bound {
	all := []bound{
		{"start.answer", "", false, 100, "start to first answer: at most 100 ms"},
		{"start.binary", "", false, 40, "binary: at most 40 MB"},
		{"memory.rss", "", false, 60, "memory with 1,000 in flight: at most 60 MB"},
		{"recovery.drained", "lease", false, 1.1, "kill -9 to all delivered: at most one lease (and a tenth for the rest of the backlog)"},
	}
	if o.Storage == sqliteStorage {
		all = append(all,
			bound{"latency.idle.p50", "round trip + commit", false, 3, "publish to POST: p50 at most 3 × (bare round trip + one commit), all of them one at a time"},
			bound{"depth.slowdown", "", false, 1.1, "deepest queue: at most 10 % slower than 1,000"},
			bound{"webhooks.slowdown", "", false, 1.1, "10,000 webhooks: at most 10 % slower than 1"},
			bound{"history.slowdown", "", false, 1.1, "most attempts stored: at most 10 % slower than none"},
		)
	} else {
		all = append(all,
			bound{"drain.wire", "", false, 1100, "transactions on the wire under backlog: at most 1,100 for 1,000 delivered messages"},
			bound{"trickle.stored", "", false, 3.1, "transactions at a trickle, empty polls apart: at most 3.1 for a message"},
			bound{"idle.queue receive", "", false, 13, "idle: at most 13 receives a minute and queue at the longest interval"},
		)
	}
	switch {
	case o.Answers != "" || o.Size > 2048 || o.Limits == publishedLimits:
		return all
	case o.Delay > 0:
		return append(all, bound{"drain.server", "its slots", true, slotShare(o.Concurrency), "slots are full while there is a backlog: at least 0.97 of 64, 0.9 of 256, 0.8 of 1,000"})
	}
	if o.Storage == sqliteStorage {
		all = append(all, bound{"drain.server", "raw", true, 0.4, "drain: at least 0.40 of the raw HTTP ceiling"})
	}
	return append(all,
		bound{"drain.server", "ideal", true, idealShare(o), "drain: at least 0.75 of the ideal consumer on SQLite, 0.80, 0.85 and 0.90 on storage of 0, 5 and 10 ms"},
		bound{"drain.cpu.server", "ideal", false, 1.4, "CPU for a message: at most 1.4 × the ideal consumer's"},
		bound{"drain.fan3", "3 × server", true, 0.7, "fan-out to 3: at least 0.70 of three times the POSTs"},
		bound{"latency.load50.p99", "its p50", false, 10, "latency at 50 % load: p99 at most 10 × p50"},
	)
}

func slotShare(slots int) float64 {
	switch {
	case slots > 256:
		return 0.8
	case slots > 64:
		return 0.9
	}
	return 0.97
}

func idealShare(o options) float64 {
	switch {
	case o.Storage == sqliteStorage:
		return 0.75
	case o.Latency >= 10*time.Millisecond:
		return 0.9
	case o.Latency >= 5*time.Millisecond:
		return 0.85
	}
	return 0.8
}
