package main

// bounds are the figures that pushlease wants to reach, as far as they are about what was
// measured: a receiver that takes everything at once, and storage without limits. docs/performance.md lists them.
func bounds(o options) []bound {
	if o.Answers != "" || o.Delay != 0 || o.Size > 2048 || o.Limits == publishedLimits { // limits level rates
		return nil
	}
	all := []bound{
		{"drain.server", "ideal", true, 0.9, "drain: at least 0.90 of the ideal consumer"},
		{"drain.fan3", "3 × server", true, 0.7, "fan-out to 3: at least 0.70 of three times the POSTs"},
		{"latency.load50.p99", "its p50", false, 10, "latency at 50 % load: p99 at most 10 × p50"},
		{"start.answer", "", false, 100, "start to first answer: at most 100 ms"},
		{"start.binary", "", false, 40, "binary: at most 40 MB"},
		{"memory.rss", "", false, 60, "memory with 1,000 in flight: at most 60 MB"},
		{"recovery.drained", "lease", false, 1.1, "kill -9 to all delivered: at most one lease (and a tenth for the rest of the backlog)"},
	}
	if o.Storage == sqliteStorage {
		return append(all,
			bound{"drain.server", "raw", true, 0.6, "drain: at least 0.60 of the raw HTTP ceiling"},
			bound{"latency.idle.p50", "round trip + commit", false, 3, "publish to POST: p50 at most 3 × (bare round trip + one commit), all of them one at a time"},
			bound{"depth.slowdown", "", false, 1.1, "deepest queue: at most 10 % slower than 1,000"},
			bound{"webhooks.slowdown", "", false, 1.1, "10,000 webhooks: at most 10 % slower than 1"},
			bound{"history.slowdown", "", false, 1.1, "most attempts stored: at most 10 % slower than none"},
		)
	}
	return append(all,
		bound{"drain.wire", "", false, 1100, "transactions on the wire under backlog: at most 1,100 for 1,000 delivered messages"},
		bound{"trickle.stored", "", false, 3.1, "transactions at a trickle, empty polls apart: at most 3.1 for a message"},
		bound{"idle.queue receive", "", false, 2, "idle: at most 2 receives a minute and queue at the longest interval"},
	)
}
