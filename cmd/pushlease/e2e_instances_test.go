package main

import (
	"net/http"
	"testing"
	"time"
)

// Each process tells of all: one that stops is gone from the list, one that is killed stays
// there as it was last seen.
func TestEveryInstanceTellsOfAll(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		first, second, third := s.start(t), s.start(t), s.start(t)
		instances := func(p *process) map[string]bool {
			var list struct {
				Data []struct {
					Name  string
					Alive bool
				}
			}
			p.call(http.MethodGet, "/api/v1/instances", "", http.StatusOK, &list)
			alive := map[string]bool{}
			for _, i := range list.Data {
				alive[i.Name] = i.Alive
			}
			return alive
		}
		for _, p := range []*process{first, second, third} {
			waitUntil(t, 30*time.Second, func() string {
				if n := len(instances(p)); n != 3 {
					return "not all three are told of"
				}
				return ""
			})
		}
		second.terminate()
		second.ended(20 * time.Second)
		third.kill()
		if got := instances(first); len(got) != 2 {
			t.Errorf("%v, want one that works and one that was killed", got)
		}
	})
}
