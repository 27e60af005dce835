package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"millrace/store/bus"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// mostMissed is how many bytes may wait for all clients of a route if one more client
// is to get more of what it has missed than fits into its queue: as much as 20
// histories of 100 large messages.
const mostMissed = 128 << 20

// joining is a subscription that the hub has not answered yet. The answer comes on the
// runner, not always in the turn, and the client may have changed its mind by then.
type joining struct {
	c       *Channels
	s       *session
	port    port
	later   func(f func())
	channel string
	id      json.RawMessage
	since   *bus.Position // it goes on there, and wants to know whether it could
	client  string        // its ID, where presence is kept
	sub     *hub.Subscription

	// mu is held while the answer is sent: who changes something in the turn
	// waits for that, and says so behind it. Sending waits for no turn.
	mu      sync.Mutex
	settled bool // answered, or not wanted any more
	kept    bool // in session.pending
	awaited bool // publications wait for it
	refused bool // answered with an error before Subscribe returned

	over atomic.Bool // settled, and what there is to say is said
}

// cancel prevents the answer, unless it was sent already.
func (j *joining) cancel() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
}

// replace is cancel for a client that has sent a later subscribe or unsubscribe: if it
// waits for an answer to the first command, by its id, it gets an error.
func (j *joining) replace() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.settled && len(j.id) > 0 {
		j.send(failure(&fault{replaced, "another command for this channel came before this one was done", j.channel}, j.id))
	}
	j.settle()
}

// settle marks the subscription as answered; mu is held.
func (j *joining) settle() {
	j.settled = true
	j.over.Store(true)
	if j.awaited {
		j.awaited = false
		j.c.publisher.release(j.s)
	}
}

// await reports whether a publication has to wait for the answer; j may be nil.
func (j *joining) await() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.awaited = !j.settled
	return j.awaited
}

// subscribe asks the hub. A second subscription to a channel replaces the first.
func (c *Channels) subscribe(s *session, cmd *command) *fault {
	channel := *cmd.Subscribe
	if !s.grant.MaySubscribe(channel) {
		return notAllowed(channel)
	}
	if cmd.Joins {
		if f := c.maySee(s.grant, channel); f != nil {
			return f
		}
	}
	c.drop(s, channel)
	if s.count() >= c.perClient {
		return &fault{tooMany, fmt.Sprintf("you are subscribed to %d channels, and more are not allowed: unsubscribe from some", c.perClient), channel}
	}
	r := hub.Request{Shard: s.port.Runner(), Subscriber: s, Channel: channel, Since: cmd.since(), Joins: cmd.Joins}
	j := &joining{c: c, s: s, port: s.port, later: s.port.Later(), channel: channel, id: cmd.ID, since: r.Since}
	if c.presence {
		if s.member == nil {
			s.member = newMember(s.grant, "")
		}
		r.Member, j.client = s.member, s.member.Client
	}
	r.Done = j.done
	sub, err := c.hub.Subscribe(r)
	if err != nil {
		return unsubscribable(err, channel)
	}
	s.put(sub)
	if j.keep(sub) {
		c.drop(s, channel)
	}
	return nil
}

// unsubscribable says why the hub refused.
func unsubscribable(err error, channel string) *fault {
	if errors.Is(err, bus.ErrClosed) {
		return &fault{unavailable, "the channels are being closed: come back and try again", channel}
	}
	return &fault{tooMany, err.Error(), channel}
}

// keep remembers in the session a subscription that was not answered at once. It
// reports whether it was refused already.
func (j *joining) keep(sub *hub.Subscription) (refused bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sub = sub
	if j.settled {
		return j.refused
	}
	j.kept = true
	if j.s.pending == nil {
		j.s.pending = map[string]*joining{}
	}
	j.s.pending[j.channel] = j
	return false
}

// forget is called in the turn, after the answer.
func (j *joining) forget() {
	if j.s.pending[j.channel] != j {
		return
	}
	if delete(j.s.pending, j.channel); len(j.s.pending) == 0 {
		j.s.pending = nil
	}
}

// done receives the hub's answer, on the runner, where Answer is the only method it
// may call. What was missed is sent before anything newer can come.
func (j *joining) done(a hub.Answer, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.settled {
		return
	}
	switch {
	case err != nil:
		j.fail("this channel cannot be subscribed to now: try again")
	case !j.c.hasRoom(a.Missed):
		j.fail("too much waits for clients that have missed something: try again")
		if j.refused = j.sub == nil; !j.refused {
			j.c.hub.Unsubscribe(j.sub)
		}
	default:
		j.sendAnswer(a)
		if j.kept {
			j.later(j.forget)
		}
	}
	j.settle()
}

// sendAnswer sends the answer, and what was missed.
func (j *joining) sendAnswer(a hub.Answer) {
	if a.Down && j.since != nil {
		a.Top = *j.since // where it will ask again after the reset that is to come
	}
	b := appendPosition(answer("subscribed", j.channel, j.id), a.Top)
	if j.since != nil {
		b = strconv.AppendBool(append(b, `,"recovered":`...), a.Recovered)
	}
	if a.Down {
		b = append(b, `,"down":true`...)
	}
	if j.client != "" {
		b = appendQuoted(append(b, `,"client":`...), j.client)
	}
	j.send(append(b, '}'))
	for _, m := range a.Missed {
		j.send(j.c.text(m))
	}
}

// fail answers with an error of the kind that may not come again.
func (j *joining) fail(text string) {
	j.send(failure(&fault{unavailable, text, j.channel}, j.id))
	j.later(j.failed)
}

// failed removes the subscription from the session, if it is still there.
func (j *joining) failed() {
	j.forget()
	if j.sub != nil && (j.s.first == j.sub || j.s.more[j.channel] == j.sub) {
		j.c.drop(j.s, j.channel)
	}
}

func (j *joining) send(text []byte) {
	j.port.Answer(frame.Prepare(frame.Text, text, j.c.compressFrom))
}

// hasRoom reports whether what a client has missed may be queued for it. As much as
// fits into any client's queue always may. More may, unless clients that came back and
// do not read have taken up mostMissed.
func (c *Channels) hasRoom(missed []bus.Message) bool {
	size := 0
	for i := range missed {
		size += len(missed[i].Data)
	}
	return size <= c.queue || c.meters.QueuedBytes.Load()+int64(size) <= mostMissed
}

// unsubscribe ends a subscription, also one that has not begun.
func (c *Channels) unsubscribe(s *session, cmd *command) *fault {
	channel := *cmd.Unsubscribe
	if !c.drop(s, channel) {
		return &fault{notFound, "you are not subscribed to this channel", channel}
	}
	s.unsubscribed(channel, cmd.ID)
	return nil
}

// unsubscribed sends the answer at once, as that to subscribe is sent, and not at the
// end of the turn: so the two keep their order.
func (s *session) unsubscribed(channel string, id json.RawMessage) {
	said := append(answer("unsubscribed", channel, id), '}')
	s.port.Answer(frame.Prepare(frame.Text, said, 0))
}

// drop ends a subscription, if there is one. It unsubscribes from the hub first, so
// that nothing more is delivered to a subscription whose answer is not wanted any
// more.
func (c *Channels) drop(s *session, channel string) (found bool) {
	sub := s.take(channel)
	if sub != nil {
		c.hub.Unsubscribe(sub)
	}
	if j := s.pending[channel]; j != nil {
		j.replace()
		j.forget()
	}
	return sub != nil
}

// revoke ends the subscriptions that a new grant does not allow, and the notes of
// joins and leaves where it does not allow those.
func (c *Channels) revoke(s *session) {
	var gone []string
	look := func(sub *hub.Subscription) {
		switch channel := sub.Channel(); {
		case !s.grant.MaySubscribe(channel):
			gone = append(gone, channel)
		case !s.grant.MaySeePresence(channel):
			c.hub.StopJoins(sub)
		}
	}
	if s.first != nil {
		look(s.first)
	}
	for _, sub := range s.more {
		look(sub)
	}
	for _, channel := range gone {
		c.drop(s, channel)
		s.unsubscribed(channel, nil)
	}
}

func (s *session) count() int {
	if s.first == nil {
		return len(s.more)
	}
	return 1 + len(s.more)
}

func (s *session) put(sub *hub.Subscription) {
	if s.first == nil {
		s.first = sub
		return
	}
	if s.more == nil {
		s.more = map[string]*hub.Subscription{}
	}
	s.more[sub.Channel()] = sub // the hub's name: all have the same
}

// take removes and returns a subscription, nil if there is none.
func (s *session) take(channel string) *hub.Subscription {
	if s.first != nil && s.first.Channel() == channel {
		sub := s.first
		s.first = nil
		return sub
	}
	sub := s.more[channel]
	if delete(s.more, channel); len(s.more) == 0 {
		s.more = nil
	}
	return sub
}
