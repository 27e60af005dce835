package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
	"unicode/utf8"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// sdkClient is a client that speaks Centrifugo's protocol: a session with other words,
// of 80 bytes. What it publishes, asks and gets takes the same ways.
type sdkClient struct {
	session
	id uint64
}

// sdkSub is what a subscription has of its own.
type sdkSub struct {
	slot  int32  // in the expiry's heap, which owns it
	info  []byte // of the client in this channel
	given bool   // the server has made it
	token bool   // a token of its own allows it
}

// stage is how far an SDK's client has come.
type stage uint8

const (
	unconnected stage = iota
	connected
	refused // its connect was answered with an error: nothing else is obeyed
)

// staleAfter is how long a client may take to send its connect.
const staleAfter = 15 * time.Second

func newSDKClient(form centrifuge.Form, g *auth.Grant, end func()) *sdkClient {
	return &sdkClient{session: session{grant: g, slot: noSlot, form: form, end: end}, id: rand.Uint64()}
}

// name is the client's id as others see it.
func (k *sdkClient) name() string { return strconv.FormatUint(k.id, 36) }

// who is the client as others see it, in a channel.
func (k *sdkClient) who(channel string) *bus.Member {
	if k.member == nil {
		k.member = newMember(k.grant, k.name())
	}
	if sub := k.others().subs[channel]; sub != nil && len(sub.info) > 0 {
		m := *k.member
		m.InChannel = sub.info
		return &m
	}
	return k.member
}

func (c *Channels) openSDK(k *sdkClient, p port) {
	k.port = p
	later := p.Later()
	c.expiry.set(&k.slot, time.Now().Add(staleAfter), func() {
		later(func() {
			if k.stage != connected {
				k.port.Close(centrifuge.CloseStale, "stale")
			}
		})
	})
}

func (c *Channels) closedSDK(k *sdkClient) {
	for _, sub := range k.others().subs {
		c.expiry.remove(&sub.slot)
	}
	c.closed(&k.session)
}

// Opcode is that of the frames of a form.
func Opcode(f centrifuge.Form) frame.Opcode {
	if f == centrifuge.Protobuf {
		return frame.Binary
	}
	return frame.Text
}

// Deliver implements [hub.Subscriber]. A reset ends a subscription that the client has
// made; the client is told so in a way that makes it subscribe anew, and go on where it
// was.
func (k *sdkClient) Deliver(p *hub.Publication) {
	f := p.Frame(formSDK + int(k.form))
	switch {
	case f == nil:
	case p.Note != nil && p.Note.Kind == hub.Reset: // not dropped for a slow client, see session.Deliver
		k.port.Answer(f)
	default:
		k.port.Deliver(f)
	}
}

// write answers a command, at the end of the turn.
func (k *sdkClient) write(r *centrifuge.Reply) { k.port.Send(Opcode(k.form), k.form.Append(nil, r)) }

// writeNow answers at once, see session.unsubscribed.
func (k *sdkClient) writeNow(r *centrifuge.Reply, compressFrom int) {
	k.port.Answer(frame.Prepare(Opcode(k.form), k.form.Append(nil, r), compressFrom))
}

// frame handles a message of a client: one command or several.
func (c *Channels) frame(k *sdkClient, op frame.Opcode, data []byte) {
	if op == frame.Binary && k.form != centrifuge.Protobuf && !utf8.Valid(data) { // of a text frame it is known
		k.port.Close(centrifuge.CloseBadRequest, "bad request: this is not UTF-8")
		return
	}
	if k.form == centrifuge.Uni {
		c.uni(k, data)
		return
	}
	if err := k.form.Commands(data, func(cmd *centrifuge.Command) bool { return c.command(k, cmd) }); err != nil {
		k.port.Close(centrifuge.CloseBadRequest, "bad request: "+err.Error())
	}
}

// sdkClose is an error that ends the connection.
type sdkClose struct {
	code   frame.Code
	reason string
}

// Error implements error.
func (e *sdkClose) Error() string { return e.reason }

func malformed(detail string) error {
	return &sdkClose{centrifuge.CloseBadRequest, "bad request: " + detail}
}

// command obeys a command. It returns false if the connection is over.
func (c *Channels) command(k *sdkClient, cmd *centrifuge.Command) bool {
	err := c.admitCommand(k, cmd)
	if err == nil {
		return true
	}
	if over, ok := errors.AsType[*sdkClose](err); ok {
		k.port.Close(over.code, over.reason)
		return false
	}
	if cmd.Connect != nil {
		k.stage = refused
	}
	k.write(&centrifuge.Reply{ID: cmd.ID, Error: replyError(err)})
	return true
}

// replyError is an error as a reply has it.
func replyError(err error) *centrifuge.Error {
	if e, ok := errors.AsType[*centrifuge.Error](err); ok {
		return e
	}
	return centrifuge.Fail(centrifuge.Internal, "") // cannot be: there is no other
}

// admitCommand obeys a command, if it comes in time and not too often. The error is an
// sdkClose or a centrifuge.Error.
func (c *Channels) admitCommand(k *sdkClient, cmd *centrifuge.Command) error {
	cost := 1
	if cmd.History != nil || cmd.Presence != nil || cmd.PresenceStats != nil {
		cost = askCost
	}
	over := c.spend(&k.session, cost)
	switch {
	case over > window:
		return &sdkClose{centrifuge.CloseTooMany, fmt.Sprintf("too many requests: at most %d a second", c.commands)}
	case (cmd.Connect != nil) != (k.stage == unconnected):
		return malformed("connect comes first, and once")
	case k.stage == refused:
		return malformed("connect was refused")
	case cmd.Send != nil:
		return &sdkClose{centrifuge.CloseUnavailable, "not available: nothing here takes messages"}
	case cmd.ID == 0 && cmd.Connect == nil:
		return nil // it answers a ping
	case cmd.ID == 0:
		return malformed("a command has an id, from 1 on")
	case k.stage == connected && k.expired() && cmd.Refresh == nil:
		return &sdkClose{centrifuge.CloseExpired, "connection expired"}
	case over > 0:
		return centrifuge.Fail(centrifuge.TooManyRequests, fmt.Sprintf("at most %d a second", c.commands))
	}
	return c.obeySDK(k, cmd)
}

// obeySDK obeys a command.
func (c *Channels) obeySDK(k *sdkClient, cmd *centrifuge.Command) error {
	if channel, about := channelOf(cmd); about {
		if channel == "" {
			return malformed("the command names no channel")
		}
		if err := checkChannel(channel); err != nil {
			return centrifuge.Fail(centrifuge.BadRequest, err.Error())
		}
	}
	switch {
	case cmd.Connect != nil:
		return c.connect(k, cmd.ID, cmd.Connect)
	case cmd.Ping != nil:
		k.write(&centrifuge.Reply{ID: cmd.ID, Ping: &centrifuge.Empty{}})
		return nil
	case cmd.Subscribe != nil:
		return c.subscribeSDK(k, cmd.ID, cmd.Subscribe)
	case cmd.Unsubscribe != nil:
		c.dropSDK(k, cmd.Unsubscribe.Channel)
		k.writeNow(&centrifuge.Reply{ID: cmd.ID, Unsubscribe: &centrifuge.Empty{}}, 0)
		return nil
	case cmd.Publish != nil:
		return c.publishSDK(k, cmd.ID, cmd.Publish)
	case cmd.Presence != nil:
		return c.presenceSDK(k, cmd.ID, cmd.Presence.Channel, c.presenceOf)
	case cmd.PresenceStats != nil:
		return c.presenceSDK(k, cmd.ID, cmd.PresenceStats.Channel, statsOf)
	case cmd.History != nil:
		return c.historySDK(k, cmd.ID, cmd.History)
	case cmd.RPC != nil:
		return centrifuge.Fail(centrifuge.NotAvailable, "nothing here answers calls")
	case cmd.Refresh != nil:
		return c.refresh(k, cmd.ID, cmd.Refresh)
	case cmd.SubRefresh != nil:
		return c.refreshSub(k, cmd.ID, cmd.SubRefresh)
	}
	return malformed("no command")
}

// channelOf is what a command is about, and whether it is about a channel at all.
func channelOf(cmd *centrifuge.Command) (channel string, about bool) {
	switch {
	case cmd.Connect != nil, cmd.Ping != nil:
		return "", false
	case cmd.Subscribe != nil:
		return cmd.Subscribe.Channel, true
	case cmd.Unsubscribe != nil:
		return cmd.Unsubscribe.Channel, true
	case cmd.Publish != nil:
		return cmd.Publish.Channel, true
	case cmd.Presence != nil:
		return cmd.Presence.Channel, true
	case cmd.PresenceStats != nil:
		return cmd.PresenceStats.Channel, true
	case cmd.History != nil:
		return cmd.History.Channel, true
	case cmd.RPC == nil && cmd.Refresh == nil && cmd.SubRefresh != nil:
		return cmd.SubRefresh.Channel, true
	}
	return "", false
}

// errorOf is a fault as an SDK's client is told of it.
func errorOf(f *fault) *centrifuge.Error {
	number := centrifuge.Internal
	switch f.code {
	case forbidden:
		number = centrifuge.PermissionDenied
	case unauthorized:
		number = centrifuge.Unauthorized
	case notFound:
		number = centrifuge.NotAvailable
	case tooMany:
		number = centrifuge.LimitExceeded
	case badRequest, tooBig, replaced:
		number = centrifuge.BadRequest
	case rate:
		number = centrifuge.TooManyRequests
	}
	return centrifuge.Fail(number, f.text)
}

// pushOf is a publication of a channel as a push.
func (c *Channels) pushOf(m bus.Message, form centrifuge.Form) *centrifuge.Push {
	return &centrifuge.Push{Channel: m.Channel, Pub: c.publicationOf(m, form)}
}

func (c *Channels) publicationOf(m bus.Message, form centrifuge.Form) *centrifuge.Publication {
	p := &centrifuge.Publication{Data: m.Data, Offset: m.Offset, Tags: m.Tags}
	if m.From != nil {
		p.Info = infoOf(m.From)
	}
	if form != centrifuge.Protobuf && (len(m.Data) == 0 || c.shared && !json.Valid(m.Data)) { // of another program on the bus
		p.Data = appendQuoted(nil, string(m.Data))
	}
	return p
}

func infoOf(m *bus.Member) *centrifuge.ClientInfo {
	return &centrifuge.ClientInfo{User: m.User, Client: m.Client, ConnInfo: known(m.Info), ChanInfo: known(m.InChannel)}
}

// pushOfNote is a channel's news as a push; nil: clients are not told. A reset asks them
// to subscribe anew, which they do behind the last publication that they have.
func pushOfNote(n hub.Note) *centrifuge.Push {
	p := &centrifuge.Push{Channel: n.Channel}
	switch {
	case n.Kind == hub.Reset:
		p.Unsubscribe = &centrifuge.Unsubscribe{Code: centrifuge.UnsubscribeMissed, Reason: "insufficient state"}
	case n.Member == nil: // Placed: an SDK has no use for it
		return nil
	case n.Kind == hub.Join:
		p.Join = &centrifuge.Presence{Info: infoOf(n.Member)}
	default:
		p.Leave = &centrifuge.Presence{Info: infoOf(n.Member)}
	}
	return p
}
