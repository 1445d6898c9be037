package admission

import (
	"container/list"
	"sync"
	"time"
)

const (
	// maxPutOffs bounds the messages that are remembered to have been put off.
	maxPutOffs = 20_000
	// putOffLogEvery is how often it is logged for a queue that messages are put off.
	putOffLogEvery = time.Minute
)

// PutOffs remembers receives in which nothing was begun with a message and of which no record tells: it got no place, could not be
// taken over or opened, was in doubt, was told to another instance, or is at work with another holder. Its count
// of receives rises by that, and is no sign of a message that kills its process. Safe for concurrent use.
type PutOffs struct {
	mu     sync.Mutex
	first  map[putOffKey]*list.Element
	order  *list.List // of *putOff, oldest first
	queues map[string]*putOffLog
}

type putOffKey struct{ queue, message string }

type putOff struct {
	key         putOffKey
	first, last int64 // receives
	times       int64 // that it was put off
}

type putOffLog struct {
	at       time.Time
	unlogged int
}

// NewPutOffs makes one that remembers nothing.
func NewPutOffs() *PutOffs {
	return &PutOffs{first: map[putOffKey]*list.Element{}, order: list.New(), queues: map[string]*putOffLog{}}
}

// Remember remembers that a message was put off at this one of its receives.
func (p *PutOffs) Remember(queueName, messageID string, receive int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.of(queueName, messageID, receive); receive > one.last {
		one.last = receive
		one.times++
	}
}

// RememberPosted is Remember for a receive in which a POST was made, of which a record will tell.
func (p *PutOffs) RememberPosted(queueName, messageID string, receive int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(queueName, messageID, receive)
}

// of finds what is remembered of a message, from this receive on where nothing was. p.mu is held.
func (p *PutOffs) of(queueName, messageID string, receive int64) *putOff {
	key := putOffKey{queueName, messageID}
	if e := p.first[key]; e != nil {
		return e.Value.(*putOff)
	}
	one := &putOff{key: key, first: receive}
	p.first[key] = p.order.PushBack(one)
	for p.order.Len() > maxPutOffs {
		delete(p.first, p.order.Remove(p.order.Front()).(*putOff).key)
	}
	return one
}

// Unlogged counts a message that was put off for want of a place. log says that it is time to say so,
// for so many messages of the queue.
func (p *PutOffs) Unlogged(queueName string) (messages int, log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[queueName]
	if q == nil {
		q = &putOffLog{}
		p.queues[queueName] = q
	}
	q.unlogged++
	now := time.Now()
	if !q.at.IsZero() && now.Sub(q.at) < putOffLogEvery {
		return 0, false
	}
	messages, q.unlogged, q.at = q.unlogged, 0, now
	return messages, true
}

// Receives is how many of a message's receives before this one prove nothing against it: those
// since it was first put off here. This process has lived through all of them, and where another one
// received the message meanwhile, that counts again from the end of this process.
func (p *PutOffs) Receives(queueName, messageID string, receive int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.first[putOffKey{queueName, messageID}]
	if e == nil {
		return 0
	}
	return max(receive-e.Value.(*putOff).first, 0)
}

// Times is how many receives of a message were put off here.
func (p *PutOffs) Times(queueName, messageID string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.first[putOffKey{queueName, messageID}]
	if e == nil {
		return 0
	}
	return e.Value.(*putOff).times
}

// Ended forgets a message that is no more.
func (p *PutOffs) Ended(queueName, messageID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := putOffKey{queueName, messageID}
	if e := p.first[key]; e != nil {
		p.order.Remove(e)
		delete(p.first, key)
	}
}
