package delivery

import "time"

const (
	// postsAtOnce is how many POSTs of one message are under way at most. A message with more
	// webhooks goes to the next ones as these answer: each POST is a socket and its buffers.
	postsAtOnce = 64
	// postsOfOwn is how many each message may always make at once; those beyond are taken from the
	// places that all messages share, of which there are Options.MorePosts.
	postsOfOwn = 8
)

// places are shared by all messages, for POSTs beyond those that each may make at once.
type places chan struct{}

// take takes up to n of those that are free now, and no more than a message may have. Nobody waits for
// one: a message goes on with what it has.
func (p places) take(n int) (taken int) {
	for n = min(n, postsAtOnce-postsOfOwn); taken < n; taken++ {
		select {
		case p <- struct{}{}:
		default:
			return taken
		}
	}
	return taken
}

func (p places) give(n int) {
	for range n {
		<-p
	}
}

// dueNow counts the webhooks that may be POSTed to now.
func dueNow(targets []target) (n int) {
	if len(targets) <= postsOfOwn {
		return len(targets)
	}
	now := time.Now()
	for i := range targets {
		if targets[i].due(now) {
			n++
		}
	}
	return n
}
