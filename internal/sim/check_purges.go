package sim

import (
	"slices"
	"time"
)

// purged is whether an operator deleted a dead letter of a delivery. What was being replayed then
// is not what was purged; what came back or went just then may be.
func (k *checker) purged(d delivery) bool {
	const just = 2 * time.Second
	for _, p := range k.purges {
		if slices.ContainsFunc(p.listed, func(l deadLetter) bool {
			m := k.byID[l.MessageID]
			return m != nil && m.n == d.n && k.names[l.WebhookID] == d.webhook && l.Status != "replaying"
		}) {
			return true
		}
		if slices.ContainsFunc(k.posts[d], func(post *post) bool {
			return post.answer == "final" && post.at >= p.from-just && post.at <= p.until
		}) {
			return true
		}
	}
	return false
}
