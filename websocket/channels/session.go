package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"millrace/internal/access/token"
	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// session is one client with a WebSocket. There are very many: it has 72
// bytes (80 where it lies), and a subscription has none here but its pointer.
//
// It is used in its connection's turn only, but for Deliver, which touches
// nothing but port.
type session struct {
	port   port
	grant  *auth.Grant
	member *bus.Member // nil until it is needed

	// Most clients have one channel: it needs no map.
	first  *hub.Subscription
	extras *extras // nil: there is nothing else

	spent  time.Duration // until when commands are paid for, since Channels.started
	slot   int32         // in the expiry's heap, which owns it
	asking uint8         // answers of the bus that are waited for
	stage  stage         // of an SDK's client, with
	form   centrifuge.Form
	end    func() // called when the connection is over; nil: nobody asks
}

// extras is what few clients have.
type extras struct {
	more    map[string]*hub.Subscription
	pending map[string]*joining // those of all subscriptions that were not answered yet
	subs    map[string]*sdkSub  // of an SDK's client: those about which there is more to know
}

// others is rest, to be read and deleted from.
func (s *session) others() extras {
	if s.extras == nil {
		return extras{}
	}
	return *s.extras
}

// room is rest, to be written to.
func (s *session) room() *extras {
	if s.extras == nil {
		s.extras = &extras{}
	}
	return s.extras
}

// cleanUp lets go what is empty.
func (s *session) cleanUp() {
	if r := s.extras; r != nil && len(r.more) == 0 && len(r.pending) == 0 && len(r.subs) == 0 {
		s.extras = nil
	}
}

// End implements [conn.Ender].
func (s *session) End() {
	if s.end != nil {
		s.end()
	}
}

const (
	// window is the time over which commands are averaged.
	window = 10 * time.Second
	// brokenCost is what a message that is not a command counts as: no program
	// sends such by chance.
	brokenCost = 10
	// askCost is what a history or a presence counts as: each may be half a queue
	// long, and ask other machines.
	askCost = 5
	// maxAsking is how many histories and presences one client may wait for:
	// each can be large while it waits.
	maxAsking = 4
	// shareOfQueue is the part of a client's queue that one answer may take.
	shareOfQueue = 2
)

// open begins a session.
func (c *Channels) open(s *session, p port) {
	s.port = p
	if !s.grant.Expires.IsZero() {
		c.expiry.set(&s.slot, s.grant.Expires, c.ender(s))
	}
}

// ender ends a session whose grant has ended, from anywhere.
func (c *Channels) ender(s *session) func() {
	later := s.port.Later()
	return func() {
		later(func() {
			if s.expired() { // not, if a new token came meanwhile
				s.port.Close(frame.Unauthorized, "the token has expired")
			}
		})
	}
}

func (s *session) expired() bool {
	return !s.grant.Expires.IsZero() && !time.Now().Before(s.grant.Expires)
}

// closed ends a session.
func (c *Channels) closed(s *session) {
	c.expiry.remove(&s.slot)
	s.each(c.hub.Unsubscribe)
	for _, j := range s.others().pending {
		j.cancel()
	}
	s.first, s.extras = nil, nil
}

// Deliver implements [hub.Subscriber]. A reset is not dropped for a slow client,
// which would take what comes behind it for something it has.
func (s *session) Deliver(p *hub.Publication) {
	if p.Note != nil && p.Note.Kind == hub.Reset {
		s.port.Answer(p.Frame(formText))
		return
	}
	s.port.Deliver(p.Frame(formText))
}

// message handles a client's message.
func (c *Channels) message(s *session, op frame.Opcode, data []byte) {
	if op != frame.Text {
		s.port.Close(frame.Unsupported, "the channels speak JSON in text messages")
		return
	}
	cmd, f := parseCommand(data)
	cost := 1
	if f != nil {
		cost = brokenCost
	} else if cmd.History != nil || cmd.Presence != nil {
		cost = askCost
	}
	switch over := c.spend(s, cost); {
	case over > window:
		s.port.Close(frame.PolicyViolation, fmt.Sprintf("too many commands: at most %d a second", c.commands))
		return
	case f != nil:
	case over > 0:
		f = &fault{rate, fmt.Sprintf("too many commands: at most %d a second", c.commands), cmd.channel()}
	case cmd.Token == nil && s.expired():
		s.port.Close(frame.Unauthorized, "the token has expired")
		return
	default:
		f = c.obey(s, &cmd)
	}
	if f != nil {
		s.port.Send(frame.Text, failure(f, cmd.ID))
	}
}

// spend counts a command against the client's rate, and returns by how much the client
// has exceeded it. A client that goes on in spite of errors exceeds it more and more.
// (This is GCRA: a token bucket in one number.)
func (c *Channels) spend(s *session, cost int) (over time.Duration) {
	now := time.Since(c.started)
	s.spent = max(s.spent, now) + time.Duration(cost)*c.interval
	return s.spent - now - window
}

// obey executes a command. The client is sent the fault that it returns.
func (c *Channels) obey(s *session, cmd *command) *fault {
	switch {
	case cmd.Subscribe != nil:
		return c.subscribe(s, cmd)
	case cmd.Unsubscribe != nil:
		return c.unsubscribe(s, cmd)
	case cmd.Publish != nil:
		return c.publish(s, cmd)
	case cmd.Presence != nil:
		return c.askPresence(s, cmd)
	case cmd.History != nil:
		return c.askHistory(s, cmd)
	case cmd.Token != nil:
		return c.renew(s, cmd)
	}
	s.port.Send(frame.Text, append(appendID([]byte(`{"pong":true`), cmd.ID), '}'))
	return nil
}

// publish hands a publication to the publisher.
func (c *Channels) publish(s *session, cmd *command) *fault {
	channel := *cmd.Publish
	if !s.grant.MayPublish(channel) {
		return &fault{forbidden, "you may not publish to this channel", channel}
	}
	if len(cmd.Data) > c.maxPublish {
		return &fault{tooBig, fmt.Sprintf("a publication has at most %d bytes, this one %d", c.maxPublish, len(cmd.Data)), channel}
	}
	later, id := s.port.Later(), cmd.ID
	j := s.others().pending[channel]
	if !j.await() {
		j = nil
	}
	err := c.publisher.add(s, job{
		message: bus.Message{Channel: channel, Data: cmd.Data},
		after:   j,
		done: func(m bus.Message, err error) {
			said := c.published(m, err, channel, id)
			later(func() { s.port.Send(frame.Text, said) })
		},
	})
	if err != nil {
		return &fault{unavailable, err.Error(), channel}
	}
	return nil
}

// published is the answer to publish.
func (c *Channels) published(m bus.Message, err error, channel string, id json.RawMessage) []byte {
	if err != nil {
		return failure(c.unpublished(err, channel), id)
	}
	b := answer("published", channel, id)
	if m.Offset == 0 { // "id" is the command's
		return append(appendQuoted(append(b, `,"message_id":`...), m.ID), '}')
	}
	return append(appendPlace(append(b, ','), m, false), '}')
}

// unpublished says to the client why a publication failed; the log has the details.
func (c *Channels) unpublished(err error, channel string) *fault {
	switch {
	case errors.Is(err, bus.ErrTooBig):
		return &fault{tooBig, err.Error(), channel}
	case errors.Is(err, bus.ErrClosed):
		return &fault{unavailable, "the channels are being closed: come back and try again", channel}
	}
	c.errorLog.Error("a publication failed", "channel", channel, "error", err)
	return &fault{unavailable, "the publication could not be sent: try again", channel}
}

// askHistory asks the bus.
func (c *Channels) askHistory(s *session, cmd *command) *fault {
	channel := *cmd.History
	if !s.grant.MaySubscribe(channel) {
		return notAllowed(channel)
	}
	if s.asking >= maxAsking {
		return &fault{tooMany, "too many questions at once: wait for the answers", channel}
	}
	s.asking++
	later, id := s.port.Later(), cmd.ID
	c.hub.History(channel, cmd.since(), cmd.Limit, func(h bus.History, err error) {
		said := c.history(channel, id, h, err)
		later(func() {
			s.asking--
			s.port.Send(frame.Text, said)
		})
	})
	return nil
}

// history is the answer: the latest messages that fit into it.
func (c *Channels) history(channel string, id json.RawMessage, h bus.History, err error) []byte {
	if err != nil {
		return failure(&fault{unavailable, "the history cannot be read now", channel}, id)
	}
	most, first := c.queue/shareOfQueue, len(h.Messages)
	for size := 0; first > 0; first-- {
		m := &h.Messages[first-1]
		if size += len(m.Data) + len(m.ID) + len(`{"offset":,"data":,"time":},`) + 34; size > most && first < len(h.Messages) {
			h.Complete = false
			break
		}
	}
	b := appendPosition(answer("history", channel, id), h.Top)
	b = strconv.AppendBool(append(b, `,"complete":`...), h.Complete)
	b = append(b, `,"messages":[`...)
	for i, m := range h.Messages[first:] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendData(appendPlace(append(b, '{'), m, c.shared), m), `,"time":`...)
		b = append(strconv.AppendInt(b, m.Time.UnixMilli(), 10), '}')
	}
	return append(b, `]}`...)
}

// askPresence asks the bus.
func (c *Channels) askPresence(s *session, cmd *command) *fault {
	channel := *cmd.Presence
	if f := c.maySee(s.grant, channel); f != nil {
		return f
	}
	if s.asking >= maxAsking {
		return &fault{tooMany, "too many questions at once: wait for the answers", channel}
	}
	s.asking++
	later, id := s.port.Later(), cmd.ID
	c.hub.Presence(channel, func(members []bus.Member, err error) {
		said := c.members(channel, id, members, err)
		later(func() {
			s.asking--
			s.port.Send(frame.Text, said)
		})
	})
	return nil
}

func (c *Channels) maySee(g *auth.Grant, channel string) *fault {
	switch {
	case !c.presence:
		return &fault{notFound, "presence is not kept here", channel}
	case !g.MaySeePresence(channel):
		return &fault{forbidden, "you may not see who is in this channel", channel}
	}
	return nil
}

// members is the answer: as many as fit into it, and how many more there are.
func (c *Channels) members(channel string, id json.RawMessage, members []bus.Member, err error) []byte {
	if err != nil {
		return failure(&fault{unavailable, "who is in this channel cannot be known now", channel}, id)
	}
	b := append(answer("presence", channel, id), `,"members":[`...)
	for i, m := range members {
		end := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		if b = appendMember(b, m); i > 0 && len(b) > c.queue/shareOfQueue {
			b = append(b[:end], `],"more":`...)
			return append(strconv.AppendInt(b, int64(len(members)-i), 10), '}')
		}
	}
	return append(b, `]}`...)
}

// renew replaces the client's grant by that of a new token.
func (c *Channels) renew(s *session, cmd *command) *fault {
	g, err := c.auth.Token(*cmd.Token)
	switch {
	case errors.Is(err, token.ErrUnauthorized):
		return &fault{code: unauthorized, text: err.Error()}
	case err != nil:
		return &fault{code: unavailable, text: token.ErrUnavailable.Error()}
	case s.grant.User != "" && g.User != s.grant.User:
		return &fault{code: forbidden, text: "the token is another user's: connect anew"}
	}
	s.grant = g
	if s.member != nil {
		s.member = newMember(g, s.member.Client)
	}
	if g.Expires.IsZero() {
		c.expiry.remove(&s.slot)
	} else {
		c.expiry.set(&s.slot, g.Expires, c.ender(s))
	}
	b := append(appendID([]byte(`{"token":"ok"`), cmd.ID), `,"expires":`...)
	if g.Expires.IsZero() {
		b = append(b, `null`...)
	} else {
		b = strconv.AppendInt(b, g.Expires.Unix(), 10)
	}
	s.port.Send(frame.Text, append(b, '}'))
	c.revoke(s)
	return nil
}
