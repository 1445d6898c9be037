package policy

// WindowStart is how many POSTs may be in flight at first.
const WindowStart = 4

// Window is how many POSTs a webhook is trusted with at once: what TCP does for
// segments. It doubles with each windowful of successes until the first sign of
// overload (slow start), and grows by one with each windowful after that. Each sign of
// overload takes one place, and those of one round trip half of the places at most: so one
// failure in 20, as an unsteady connection has it, leaves about 20 places, and a receiver
// that answers nothing loses half of them at a time. It stays within [1, limit]. The zero
// Window is ready.
//
// Each POST keeps the Generation of its start and hands it back to Report. limit is
// Flow.Concurrency, an argument everywhere, so it may change at any time.
type Window struct {
	size       int32 // 0 is WindowStart
	grown      int32 // successes towards the next step
	generation uint32
	cut        bool   // slow start is over
	least      int32  // what the failures of this round leave
	began      uint32 // the first generation since Reset
	// A round is as many successes as the window had places at its beginning: left are to
	// come, and used is the most that were in flight in it so far.
	round, left, used int32
}

// Size is how many POSTs may be in flight.
func (w *Window) Size(limit int) int {
	if w.size == 0 {
		w.size = WindowStart
	}
	w.size = max(min(w.size, int32(min(limit, MaxConcurrency))), 1)
	return int(w.size)
}

// SlowStart tells whether there was no overload yet.
func (w *Window) SlowStart() bool { return !w.cut }

// Generation is what a POST that begins now hands to Report.
func (w *Window) Generation() uint32 { return w.generation }

// Reset begins anew: the webhook was enabled, or has another URL.
func (w *Window) Reset() { *w = Window{generation: w.generation + 1, began: w.generation + 1} }

// Report takes in the sign of a POST. inFlight is how many were in flight, this one
// included: a window of which less than half was used in a round says nothing about a
// larger one, and does not grow. What counts is the most of a round, since of POSTs that
// are answered together the last ones find nothing else in flight. What is refused for good is no success: of a
// webhook that refuses everything few are to be refused until that is known. A POST that began
// before the last cut does not make the window grow, and belongs to the round of that cut.
func (w *Window) Report(s Sign, generation uint32, inFlight, limit int) {
	size := w.Size(limit)
	if int32(generation-w.began) < 0 { // before Reset
		return
	}
	if s.Overloaded {
		if generation == w.generation { // a new round
			w.least = int32(max(size/2, 1))
			w.generation++
		}
		w.size, w.grown, w.left, w.cut = max(w.size-1, w.least, 1), 0, 0, true
		return
	}
	if generation != w.generation {
		return
	}
	if !s.Answered || s.Failed || s.Refused != 0 || size >= limit || !w.halfUsed(int32(inFlight)) {
		return
	}
	w.grown++
	if !w.cut || int(w.grown) >= size {
		w.size, w.grown = w.size+1, 0
	}
}

// halfUsed takes in one success, and reports whether half of the window was used in its round.
func (w *Window) halfUsed(inFlight int32) bool {
	if w.left == 0 {
		w.round, w.left, w.used = w.size, w.size, 0
	}
	w.left--
	w.used = max(w.used, inFlight)
	return 2*w.used >= w.round
}
