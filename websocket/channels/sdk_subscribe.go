package channels

import (
	"errors"
	"time"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/hub"
)

// subscribeSDK asks the hub. A second subscription to a channel is an error, as SDKs
// know it.
func (c *Channels) subscribeSDK(k *sdkClient, id uint32, req *centrifuge.SubscribeRequest) error {
	channel := req.Channel
	if sub := k.find(channel); sub != nil {
		if !c.hub.Over(sub) {
			return centrifuge.Fail(centrifuge.AlreadyThere, "")
		}
		c.drop(&k.session, channel) // the client knows of the reset already
	}
	c.forgetSub(k, channel)
	own, err := c.maySubscribe(k, req)
	if err != nil {
		return err
	}
	if f := c.mayHaveMore(&k.session, channel); f != nil {
		return errorOf(f)
	}
	said := &sdkAnswers{k: k, id: id}
	if own != nil {
		sub := &sdkSub{slot: noSlot, info: own.Info, token: true}
		k.remember(channel, sub)
		said.own = sub
		said.ttl, said.expires = own.TTL(time.Now())
		c.expireSub(k, channel, sub, own.Expires)
	}
	j := &joining{c: c, s: &k.session, later: k.port.Later(), channel: channel}
	if req.Recover {
		j.since = &bus.Position{Epoch: req.Epoch, Offset: req.Offset}
	}
	j.answers, said.j = said, j
	r := hub.Request{Subscriber: k, UntilReset: true, Joins: req.JoinLeave && c.maySee(k.grant, channel) == nil}
	if c.presence {
		r.Member = k.who(channel)
	}
	if f := c.join(j, r); f != nil {
		c.forgetSub(k, channel)
		return errorOf(f)
	}
	return nil
}

// maySubscribe says whether a client may subscribe, and by which token of the
// subscription; nil: by what the client may do anyway.
func (c *Channels) maySubscribe(k *sdkClient, req *centrifuge.SubscribeRequest) (*auth.Subscription, error) {
	if req.Token == "" {
		if !k.grant.MaySubscribe(req.Channel) {
			return nil, centrifuge.Fail(centrifuge.PermissionDenied, notAllowed(req.Channel).text)
		}
		return nil, nil
	}
	return c.subscriptionToken(k, req.Channel, req.Token)
}

// subscriptionToken reads a token for one subscription of this client. What is wrong
// with it does not end the connection.
func (c *Channels) subscriptionToken(k *sdkClient, channel, t string) (*auth.Subscription, error) {
	own, err := c.auth.Subscription(t)
	switch {
	case err != nil:
		err := tokenError(err)
		if over, ok := errors.AsType[*sdkClose](err); ok {
			err = centrifuge.Fail(centrifuge.PermissionDenied, over.reason)
		}
		return nil, err
	case own.Channel != channel:
		return nil, centrifuge.Fail(centrifuge.PermissionDenied, "the token is for another channel")
	case own.User != k.grant.User:
		return nil, centrifuge.Fail(centrifuge.PermissionDenied, "the token is another user's")
	}
	return own, nil
}

// expireSub has a subscription end with its token.
func (c *Channels) expireSub(k *sdkClient, channel string, sub *sdkSub, at time.Time) {
	if at.IsZero() {
		c.expiry.remove(&sub.slot)
		return
	}
	later := k.port.Later()
	c.expiry.set(&sub.slot, at, func() {
		later(func() {
			if k.others().subs[channel] == sub {
				c.endSub(k, channel, centrifuge.UnsubscribeExpired, "subscription expired")
			}
		})
	})
}

// forgetSub forgets what there is to know of a subscription.
func (c *Channels) forgetSub(k *sdkClient, channel string) {
	if subs := k.others().subs; subs[channel] != nil {
		c.expiry.remove(&subs[channel].slot)
		delete(subs, channel)
		k.cleanUp()
	}
}

// dropSDK is drop.
func (c *Channels) dropSDK(k *sdkClient, channel string) {
	c.drop(&k.session, channel)
	c.forgetSub(k, channel)
}

// refreshSub takes a new token for a subscription.
func (c *Channels) refreshSub(k *sdkClient, id uint32, req *centrifuge.TokenChannelRequest) error {
	sub := k.others().subs[req.Channel]
	if sub == nil || !sub.token {
		return centrifuge.Fail(centrifuge.PermissionDenied, "there is no subscription with a token to this channel")
	}
	own, err := c.subscriptionToken(k, req.Channel, req.Token)
	if err != nil {
		return err
	}
	c.expireSub(k, req.Channel, sub, own.Expires)
	r := &centrifuge.ExpiryResult{}
	r.TTL, r.Expires = own.TTL(time.Now())
	if !r.Expires {
		r.TTL = 0
	}
	k.write(&centrifuge.Reply{ID: id, SubRefresh: r})
	return nil
}

// sdkAnswers answer subscribe.
type sdkAnswers struct {
	j       *joining
	k       *sdkClient
	id      uint32
	own     *sdkSub // nil: there is nothing of its own
	ttl     uint32
	expires bool
}

func (a *sdkAnswers) began(h hub.Answer) {
	r := a.j.c.resultOf(h, a.j.since, a.k.form)
	if a.expires {
		r.Expires, r.TTL = true, a.ttl
	}
	a.k.writeNow(&centrifuge.Reply{ID: a.id, Subscribe: r}, a.j.c.compressFrom)
}

func (a *sdkAnswers) failed(f *fault) {
	a.k.writeNow(&centrifuge.Reply{ID: a.id, Error: errorOf(f)}, 0)
	a.j.later(func() {
		if a.own != nil && a.k.others().subs[a.j.channel] == a.own {
			a.j.c.forgetSub(a.k, a.j.channel)
		}
	})
}

func (*sdkAnswers) awaited() bool { return true }

// resultOf is where a subscription begins. Every one can be recovered where there is a
// history. While the other machines cannot be reached, one that goes on somewhere stands
// where it stood: what is missing comes after the reset that is to come.
func (c *Channels) resultOf(a hub.Answer, since *bus.Position, form centrifuge.Form) *centrifuge.SubscribeResult {
	r := &centrifuge.SubscribeResult{
		Positioned: true, Recoverable: c.keeps, WasRecovering: since != nil,
		Epoch: a.Top.Epoch, Offset: a.Top.Offset,
	}
	switch {
	case since == nil:
	case a.Down:
		r.Epoch, r.Offset, r.Recovered = since.Epoch, since.Offset, true
	case a.Recovered:
		r.Offset, r.Recovered = since.Offset, true
		for _, m := range a.Missed {
			r.Publications = append(r.Publications, c.publicationOf(m, form))
		}
	}
	return r
}
