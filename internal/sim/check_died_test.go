package sim

import (
	"testing"
	"time"
)

// A message that nobody could see at the end of its life, since its holder died, is excused; what its holder had the time to end is not.
func TestADeathExcusesALossOnlyWhileTheMessageWasHeld(t *testing.T) {
	const sent, expires = 10 * time.Second, 130 * time.Second
	holder, other := &instance{}, &instance{}
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	received := messageEvent{at: at(40), what: "receive", inst: holder, visible: at(90)}
	renewed := messageEvent{at: at(110), what: "update", inst: holder, visible: expires}
	posted := post{webhook: "w", inst: holder, attempt: 1, at: at(41), answered: at(105), taken: at(105)}
	for name, tt := range map[string]struct {
		events   []messageEvent
		posts    []post
		recorded time.Duration // of the first POST
		died     time.Duration
		excused  bool
	}{
		"it died while it held the message":           {events: []messageEvent{received, renewed}, died: at(120), excused: true},
		"it died when the message was gone":           {events: []messageEvent{received, renewed}, died: at(131)},
		"it died later, in its POST":                  {events: []messageEvent{received, renewed}, posts: []post{{webhook: "w", inst: holder, at: at(125)}}, died: at(131), excused: true},
		"it died long after":                          {events: []messageEvent{received, renewed}, died: at(300)},
		"it lives":                                    {events: []messageEvent{received, renewed}},
		"another one died":                            {events: []messageEvent{received, {at: at(110), what: "update", inst: other, visible: expires}}, died: at(120)},
		"it held the message, others see it in time":  {events: []messageEvent{received}, died: at(50)},
		"it died when its hold was over":              {events: []messageEvent{received, {at: at(110), what: "update", inst: holder, visible: at(120)}}, died: at(121)},
		"it hid the message to its end and died":      {events: []messageEvent{{at: at(40), what: "receive", inst: holder, visible: expires}}, died: at(40.5), excused: true},
		"it hid the message, and did not renew it":    {events: []messageEvent{{at: at(40), what: "receive", inst: holder, visible: expires}}, died: at(60)},
		"it gave the message back":                    {events: []messageEvent{received, renewed}, posts: []post{posted}, recorded: at(106), died: at(120)},
		"it had the answer on record later":           {events: []messageEvent{received, renewed}, posts: []post{posted}, recorded: at(112), died: at(120), excused: true},
		"it had the answer, and no record":            {events: []messageEvent{received, renewed}, posts: []post{posted}, died: at(120), excused: true},
		"it gave back what it received before":        {events: []messageEvent{received, {at: at(107), what: "receive", inst: holder, visible: at(129)}, renewed}, posts: []post{posted}, recorded: at(106), died: at(120), excused: true},
		"it gave the message back, and another POSTs": {events: []messageEvent{received, renewed}, posts: []post{posted, {webhook: "w", inst: other, at: at(111)}}, recorded: at(106), died: at(120)},
	} {
		t.Run(name, func(t *testing.T) {
			holder.died = tt.died
			m := &message{n: 1, id: "m", sent: sent, expires: expires, events: append(tt.events, messageEvent{at: expires, what: "expire"})}
			m.same = m
			d := delivery{1, "w"}
			k := &checker{
				world: &world{plan: &Plan{Webhooks: []Webhook{{Name: "w"}}}, byID: map[string]*message{"m": m}},
				posts: map[delivery][]*post{}, names: map[string]string{"id": "w"}, about: map[*message][]*call{},
			}
			for i := range tt.posts {
				k.posts[d] = append(k.posts[d], &tt.posts[i])
			}
			if tt.recorded > 0 {
				k.about[m] = []*call{{inst: holder, applied: tt.recorded, ok: true, attempts: []written{{message: "m", webhook: "id", number: 1}}}}
			}
			if got := k.diedHidingIt(m); got != tt.excused {
				t.Errorf("excused: %t, want %t", got, tt.excused)
			}
		})
	}
}
