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

// notified tells a client in its protocol what became of its subscribe. Of the
// connection they may call Answer only, and they must not call the hub.
type notified interface {
	// began says where the subscription begins, and what was missed.
	began(a hub.Answer)
	// failed says why there is none.
	failed(f *fault)
	// awaited reports whether the client knows by an id what is answered.
	awaited() bool
}

// joining is a subscription that the hub has not answered yet. The answer comes on the
// runner, not always in the turn, and the client may have changed its mind by then.
type joining struct {
	c       *Channels
	s       *session
	later   func(f func())
	channel string
	since   *bus.Position // it goes on there, and wants to know whether it could
	answers notified
	sub     *hub.Subscription

	// mu is held while the answer is sent: who changes something in the turn
	// waits for that, and says so behind it. Sending waits for no turn.
	mu      sync.Mutex
	settled bool // answered, or not wanted any more
	kept    bool // in rest.pending
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
	if !j.settled && j.answers.awaited() {
		j.answers.failed(&fault{replaced, "another command for this channel came before this one was done", j.channel})
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
	if f := c.mayHaveMore(s, channel); f != nil {
		return f
	}
	j := &joining{c: c, s: s, later: s.port.Later(), channel: channel, since: cmd.since()}
	said := &textAnswers{j: j, port: s.port, id: cmd.ID}
	j.answers = said
	r := hub.Request{Subscriber: s, Joins: cmd.Joins}
	if c.presence {
		if s.member == nil {
			s.member = newMember(s.grant, "")
		}
		r.Member, said.client = s.member, s.member.Client
	}
	return c.join(j, r)
}

// mayHaveMore bounds the subscriptions of a client.
func (c *Channels) mayHaveMore(s *session, channel string) *fault {
	if s.count() < c.perClient {
		return nil
	}
	return &fault{tooMany, fmt.Sprintf("you are subscribed to %d channels, and more are not allowed: unsubscribe from some", c.perClient), channel}
}

// join subscribes. r has what the protocols ask for in different ways.
func (c *Channels) join(j *joining, r hub.Request) *fault {
	r.Shard, r.Channel, r.Since, r.Done = j.s.port.Runner(), j.channel, j.since, j.done
	sub, err := c.hub.Subscribe(r)
	if err != nil {
		return unsubscribable(err, j.channel)
	}
	j.s.put(sub)
	if j.keep(sub) {
		c.drop(j.s, j.channel)
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
	r := j.s.room()
	if r.pending == nil {
		r.pending = map[string]*joining{}
	}
	r.pending[j.channel] = j
	return false
}

// forget is called in the turn, after the answer.
func (j *joining) forget() {
	if pending := j.s.others().pending; pending[j.channel] == j {
		delete(pending, j.channel)
		j.s.cleanUp()
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
		j.answers.began(a)
		if j.kept {
			j.later(j.forget)
		}
	}
	j.settle()
}

// fail answers with an error of the kind that may not come again.
func (j *joining) fail(text string) {
	j.answers.failed(&fault{unavailable, text, j.channel})
	j.later(j.failed)
}

// failed removes the subscription from the session, if it is still there.
func (j *joining) failed() {
	j.forget()
	if j.sub != nil && (j.s.find(j.channel) == j.sub) {
		j.c.drop(j.s, j.channel)
	}
}

// textAnswers are those of our own protocol.
type textAnswers struct {
	j      *joining
	port   port
	id     json.RawMessage
	client string // its ID, where presence is kept
}

func (t *textAnswers) began(a hub.Answer) {
	if a.Down && t.j.since != nil {
		a.Top = *t.j.since // where it will ask again after the reset that is to come
	}
	b := appendPosition(answer("subscribed", t.j.channel, t.id), a.Top)
	if t.j.since != nil {
		b = strconv.AppendBool(append(b, `,"recovered":`...), a.Recovered)
	}
	if a.Down {
		b = append(b, `,"down":true`...)
	}
	if t.client != "" {
		b = appendQuoted(append(b, `,"client":`...), t.client)
	}
	t.send(append(b, '}'))
	for _, m := range a.Missed {
		t.send(t.j.c.text(m))
	}
}

func (t *textAnswers) failed(f *fault) { t.send(failure(f, t.id)) }
func (t *textAnswers) awaited() bool   { return len(t.id) > 0 }

func (t *textAnswers) send(text []byte) {
	t.port.Answer(frame.Prepare(frame.Text, text, t.j.c.compressFrom))
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
	if j := s.others().pending[channel]; j != nil {
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
	s.each(look)
	for _, channel := range gone {
		c.drop(s, channel)
		s.unsubscribed(channel, nil)
	}
}

// each calls f for all subscriptions.
func (s *session) each(f func(sub *hub.Subscription)) {
	if s.first != nil {
		f(s.first)
	}
	for _, sub := range s.others().more {
		f(sub)
	}
}

// find returns the subscription to a channel, nil if there is none.
func (s *session) find(channel string) *hub.Subscription {
	if s.first != nil && s.first.Channel() == channel {
		return s.first
	}
	return s.others().more[channel]
}

func (s *session) count() int {
	if s.first == nil {
		return len(s.others().more)
	}
	return 1 + len(s.others().more)
}

func (s *session) put(sub *hub.Subscription) {
	if s.first == nil {
		s.first = sub
		return
	}
	r := s.room()
	if r.more == nil {
		r.more = map[string]*hub.Subscription{}
	}
	r.more[sub.Channel()] = sub // the hub's name: all have the same
}

// take removes and returns a subscription, nil if there is none.
func (s *session) take(channel string) *hub.Subscription {
	sub := s.find(channel)
	if sub == s.first {
		s.first = nil
		return sub
	}
	delete(s.others().more, channel)
	s.cleanUp()
	return sub
}
