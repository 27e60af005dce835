package channels

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/conn"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// orders is the channel by which all servers that share channels hear what is to be done
// with a user's clients. No client gets at it: see checkChannel.
const orders = "millrace/orders"

var errReserved = errors.New("not a channel's name: it is reserved")

// checkChannel is bus.CheckChannel, without the one for ourselves.
func checkChannel(name string) error {
	if name == orders {
		return errReserved
	}
	return bus.CheckChannel(name)
}

// order is what is to be done with a user's clients, on all servers: subscribe,
// unsubscribe, disconnect or refresh.
type order struct {
	Do         string          `json:"do"`
	User       string          `json:"user"`
	Client     string          `json:"client,omitempty"`  // only this one
	Session    string          `json:"session,omitempty"` // likewise
	Whitelist  []string        `json:"whitelist,omitempty"`
	Disconnect *endingOrder    `json:"disconnect,omitempty"`
	Channel    string          `json:"channel,omitempty"`
	Info       json.RawMessage `json:"info,omitempty"`
	B64Info    string          `json:"b64info,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	B64Data    string          `json:"b64data,omitempty"`

	RecoverSince *centrifuge.Position `json:"recover_since,omitempty"`
	Expired      bool                 `json:"expired,omitempty"`
	ExpireAt     int64                `json:"expire_at,omitempty"`
}

// endingOrder says how a connection ends.
type endingOrder struct {
	Code   uint16 `json:"code"`
	Reason string `json:"reason"`
}

// check says what is wrong with an order.
func (o *order) check() error {
	for _, raw := range []struct {
		text string
		to   *json.RawMessage
	}{{o.B64Info, &o.Info}, {o.B64Data, &o.Data}} {
		if raw.text == "" {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(raw.text)
		if err != nil || !json.Valid(data) {
			return centrifuge.Fail(centrifuge.BadRequest, "info and data are JSON, in base64 too")
		}
		*raw.to = data
	}
	o.B64Info, o.B64Data = "", ""
	switch {
	case o.User == "":
		return centrifuge.Fail(centrifuge.BadRequest, "there is no user")
	case o.Do == "subscribe" || o.Do == "unsubscribe" && o.Channel != "":
		if err := checkChannel(o.Channel); err != nil {
			return centrifuge.Fail(centrifuge.BadRequest, err.Error())
		}
	case o.Disconnect != nil && (o.Disconnect.Code < 3000 || o.Disconnect.Code > 4999):
		return centrifuge.Fail(centrifuge.BadRequest, "the code of a disconnect is one from 3000 to 4999")
	}
	return nil
}

// order has all servers do something.
func (c *Channels) order(ctx context.Context, o order) error {
	if err := o.check(); err != nil {
		return err
	}
	data, err := json.Marshal(o)
	if err != nil {
		return centrifuge.Fail(centrifuge.BadRequest, err.Error())
	}
	if _, err := c.hub.Publish(ctx, bus.Message{Channel: orders, Data: data}); err != nil {
		return errorOf(c.unpublished(err, "orders"))
	}
	return nil
}

// orderTaker hears the orders of all servers.
type orderTaker struct{ c *Channels }

// Deliver implements [hub.Subscriber]. Old orders do not come: nothing is recovered.
func (t *orderTaker) Deliver(p *hub.Publication) {
	var o order
	if p.Note != nil || json.Unmarshal(p.Data, &o) != nil {
		return
	}
	t.c.each(func(s *session, k *sdkClient) { t.c.obeyOrder(s, k, &o) })
}

// takeOrders begins to hear orders.
func (c *Channels) takeOrders() error {
	_, err := c.hub.Subscribe(hub.Request{Shard: c.last, Subscriber: &orderTaker{c}, Channel: orders, Done: func(_ hub.Answer, err error) {
		if err != nil {
			c.errorLog.Error("orders of other servers are not heard", "error", err)
		}
	}})
	return err
}

// each calls f in the turn of every client, soon. k is nil for one of our own protocol.
func (c *Channels) each(f func(s *session, k *sdkClient)) {
	if c.walk != nil {
		c.walk(func(k *conn.Conn) {
			switch s := k.State().(type) {
			case *session:
				f(s, nil)
			case *sdkClient:
				f(&s.session, s)
			}
		})
	}
	for _, o := range c.streams.all() {
		o.s.task(func() { f(&o.k.session, o.k) })
	}
}

// isFor reports whether an order is for a client.
func (o *order) isFor(s *session, k *sdkClient) bool {
	if s.grant == nil || s.grant.User != o.User || k != nil && k.stage != connected {
		return false
	}
	name, key := "", ""
	switch {
	case k != nil:
		name = k.name()
		if stream, ok := k.port.(*sdkStream); ok {
			key = stream.session
		}
	case s.member != nil:
		name = s.member.Client
	}
	return (o.Client == "" || o.Client == name) && (o.Session == "" || o.Session == key) && !slices.Contains(o.Whitelist, name)
}

// obeyOrder does with one client what is ordered, in its turn.
func (c *Channels) obeyOrder(s *session, k *sdkClient, o *order) {
	if !o.isFor(s, k) {
		return
	}
	switch o.Do {
	case "disconnect":
		end := endingOrder{Code: centrifuge.CloseForced, Reason: "force disconnect"}
		if o.Disconnect != nil {
			end = *o.Disconnect
		}
		s.port.Close(frame.Code(end.Code), end.Reason)
	case "unsubscribe":
		s.each(func(sub *hub.Subscription) {
			if channel := sub.Channel(); o.Channel == "" || channel == o.Channel {
				s.port.Later()(func() { c.orderedOff(s, k, channel) })
			}
		})
	case "refresh":
		c.orderedEnd(s, k, o)
	case "subscribe":
		if k != nil {
			c.orderedOn(k, o)
		}
	}
}

// orderedOff ends a subscription.
func (c *Channels) orderedOff(s *session, k *sdkClient, channel string) {
	switch {
	case s.find(channel) == nil:
	case k != nil:
		c.endSub(k, channel, centrifuge.UnsubscribeServer, "server unsubscribe")
	default:
		c.drop(s, channel)
		s.unsubscribed(channel, nil)
	}
}

// orderedEnd changes when a client's grant ends; one that has ended ends the connection.
func (c *Channels) orderedEnd(s *session, k *sdkClient, o *order) {
	g := *s.grant
	g.Expires = time.Time{}
	if o.ExpireAt > 0 {
		g.Expires = time.Unix(o.ExpireAt, 0)
	}
	s.grant = &g
	switch {
	case o.Expired || s.expired():
		s.port.Close(centrifuge.CloseExpired, "connection expired")
	case k == nil && g.Expires.IsZero():
		c.expiry.remove(&s.slot)
	case k == nil:
		c.expiry.set(&s.slot, g.Expires, c.ender(s))
	default:
		c.expire(k)
		r := &centrifuge.ExpiryResult{}
		if !g.Expires.IsZero() {
			r.Expires, r.TTL = true, uint32(max(1, time.Until(g.Expires)/time.Second))
		}
		k.write(&centrifuge.Reply{Push: &centrifuge.Push{Refresh: r}})
	}
}

// orderedOn subscribes a client, as if its token had named the channel.
func (c *Channels) orderedOn(k *sdkClient, o *order) {
	if k.find(o.Channel) != nil || c.mayHaveMore(&k.session, o.Channel) != nil {
		return
	}
	given := auth.Given{Channel: o.Channel, Info: o.Info, Data: o.Data}
	c.forgetSub(k, o.Channel)
	g := &greeting{k: k, compressFrom: c.compressFrom, later: k.port.Later()}
	g.sent.Store(true)
	if f := c.give(k, g, given, o.RecoverSince, func(j *joining) notified { return &pushAnswers{j, k, given.Data} }); f != nil {
		c.forgetSub(k, o.Channel)
	}
}
