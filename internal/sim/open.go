package sim

// Open is a fault that a seed found and nobody has mended yet. A run of its profile may
// break its rule; whoever mends it takes it off the list, and moves its seed to the named
// ones in the tests.
type Open struct {
	Name, Profile, Rule string
	Seed                uint64
}

// StillOpen shrinks as faults are mended.
var StillOpen = []Open{}

// New are the findings that are not among the open ones.
func (r *Result) New() (found []Finding) {
next:
	for _, f := range r.Findings {
		for _, o := range StillOpen {
			if o.Profile == r.Plan.Profile && o.Rule == f.Rule {
				continue next
			}
		}
		found = append(found, f)
	}
	return found
}
