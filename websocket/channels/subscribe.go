package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"millrace/bus"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// joining is a subscription that was asked for and not answered yet. The
// answer comes on the runner, not always in the turn, and the client may have
// changed its mind by then.
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
	settled atomic.Bool // answered, or not wanted any more
	kept    atomic.Bool // in session.pending
}

// settle reports whether the caller is the one who decides.
func (j *joining) settle() bool { return j.settled.CompareAndSwap(false, true) }

// subscribe asks the hub. A second subscription to a channel replaces the first.
func (c *Channels) subscribe(s *session, cmd *command) *fault {
	channel := *cmd.Subscribe
	if !s.grant.MaySubscribe(channel) {
		return &fault{forbidden, "you may not subscribe to this channel", channel}
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
		j.settle()
		return unsubscribable(err, channel)
	}
	s.put(channel, sub)
	j.keep(sub)
	return nil
}

// unsubscribable says why the hub refused.
func unsubscribable(err error, channel string) *fault {
	if errors.Is(err, bus.ErrClosed) {
		return &fault{unavailable, "the channels are being closed: come back and try again", channel}
	}
	return &fault{tooMany, err.Error(), channel}
}

// keep remembers a subscription that was not answered at once.
func (j *joining) keep(sub *hub.Subscription) {
	j.sub = sub
	j.kept.Store(true)
	if j.settled.Load() {
		return
	}
	if j.s.pending == nil {
		j.s.pending = map[string]*joining{}
	}
	j.s.pending[j.channel] = j
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

// done takes the hub's answer. It is on the runner: Deliver is all that it may
// call, and what was missed goes out before anything newer can come.
func (j *joining) done(a hub.Answer, err error) {
	if !j.settle() {
		return
	}
	if err != nil {
		j.deliver(failure(&fault{unavailable, "this channel cannot be subscribed to now: try again", j.channel}, j.id))
		j.later(j.failed)
		return
	}
	if a.Down && j.since != nil {
		a.Top = *j.since // where it will ask again after the reset that is to come
	}
	b := appendPosition(answer("subscribed", j.channel, j.id), a.Top)
	if j.since != nil {
		b = strconv.AppendBool(append(b, `,"recovered":`...), a.Recovered)
	}
	if j.client != "" {
		b = appendQuoted(append(b, `,"client":`...), j.client)
	}
	j.deliver(append(b, '}'))
	for _, m := range a.Missed {
		j.deliver(text(m))
	}
	if j.kept.Load() {
		j.later(j.forget)
	}
}

// failed takes back what was put into the session, if it still is there.
func (j *joining) failed() {
	j.forget()
	if j.sub != nil && (j.s.first == j.sub || j.s.more[j.channel] == j.sub) {
		j.c.drop(j.s, j.channel)
	}
}

func (j *joining) deliver(text []byte) {
	j.port.Deliver(frame.Prepare(frame.Text, text, j.c.compressFrom))
}

// unsubscribe ends a subscription, also one that has not begun.
func (c *Channels) unsubscribe(s *session, cmd *command) *fault {
	channel := *cmd.Unsubscribe
	found, answering := c.drop(s, channel)
	if !found {
		return &fault{notFound, "you are not subscribed to this channel", channel}
	}
	// Deliver, as "subscribed" does: in the order in which they are said.
	p, said := s.port, frame.Prepare(frame.Text, append(answer("unsubscribed", channel, cmd.ID), '}'), 0)
	if answering {
		c.post(p.Runner(), func() { p.Deliver(said) }) // behind what the runner is sending right now
	} else {
		p.Deliver(said)
	}
	return nil
}

// drop ends a subscription if there is one. answering: the runner is just about
// to answer it.
func (c *Channels) drop(s *session, channel string) (found, answering bool) {
	if j := s.pending[channel]; j != nil {
		answering = !j.settle()
		j.forget()
	}
	sub := s.take(channel)
	if sub == nil {
		return false, false
	}
	c.hub.Unsubscribe(sub)
	return true, answering
}

// revoke ends the subscriptions that a new grant does not allow.
func (c *Channels) revoke(s *session) {
	var gone []string
	if s.first != nil && !s.grant.MaySubscribe(s.first.Channel()) {
		gone = append(gone, s.first.Channel())
	}
	for channel := range s.more {
		if !s.grant.MaySubscribe(channel) {
			gone = append(gone, channel)
		}
	}
	for _, channel := range gone {
		c.drop(s, channel)
		s.port.Deliver(frame.Prepare(frame.Text, append(answer("unsubscribed", channel, nil), '}'), 0))
	}
}

func (s *session) count() int {
	if s.first == nil {
		return len(s.more)
	}
	return 1 + len(s.more)
}

func (s *session) put(channel string, sub *hub.Subscription) {
	if s.first == nil {
		s.first = sub
		return
	}
	if s.more == nil {
		s.more = map[string]*hub.Subscription{}
	}
	s.more[channel] = sub
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
