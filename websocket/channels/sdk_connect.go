package channels

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/access/token"
	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

// connect makes a client one that may do something.
func (c *Channels) connect(k *sdkClient, id uint32, req *centrifuge.ConnectRequest) error {
	grant, err := c.connectGrant(k, req.Token)
	if err != nil {
		return err
	}
	return c.begin(k, id, grant, req.Subs)
}

// begin subscribes a client to what its token names, and answers connect when all these
// subscriptions have begun: their publications follow the answer. since says where to go
// on.
func (c *Channels) begin(k *sdkClient, id uint32, grant *auth.Grant, since map[string]*centrifuge.SubscribeRequest) error {
	if len(grant.Given) > c.perClient {
		return &sdkClose{centrifuge.CloseChannels, "channel limit"}
	}
	k.grant, k.stage = grant, connected
	c.expire(k)
	g := &greeting{k: k, compressFrom: c.compressFrom, most: c.queue, later: k.port.Later(), reply: centrifuge.Reply{ID: id, Connect: c.welcome(k)}}
	g.waiting.Store(1)
	for _, given := range grant.Given {
		g.waiting.Add(1)
		f := c.give(k, g, given, placeOf(since[given.Channel]), func(j *joining) notified { return &givenAnswers{j: j, g: g, data: given.Data} })
		if f != nil {
			return &sdkClose{centrifuge.CloseServerError, "internal server error: " + f.text}
		}
	}
	g.one()
	return nil
}

// placeOf is where a subscription is to go on; nil: nowhere.
func placeOf(req *centrifuge.SubscribeRequest) *centrifuge.Position {
	if req == nil || !req.Recover {
		return nil
	}
	return &centrifuge.Position{Offset: req.Offset, Epoch: req.Epoch}
}

// beginUni is connect for a client that only listens, of which data is all that it says.
// Besides what its token names it gets the subscriptions of the request that it may have:
// it cannot ask for them later.
func (c *Channels) beginUni(k *sdkClient, data []byte) error {
	req := new(centrifuge.ConnectRequest)
	if len(data) > 0 && json.Unmarshal(data, req) != nil {
		return malformed("this is no connect request: send an object like {\"token\":\"…\"}")
	}
	grant, err := c.connectGrant(k, req.Token)
	if err != nil {
		return err
	}
	more := *grant
	for _, channel := range slices.Sorted(maps.Keys(req.Subs)) {
		switch err := checkChannel(channel); {
		case err != nil:
			return malformed(err.Error())
		case slices.ContainsFunc(grant.Given, func(g auth.Given) bool { return g.Channel == channel }):
		case !grant.MaySubscribe(channel):
			return &sdkClose{centrifuge.CloseDenied, "permission denied: you may not subscribe to " + strconv.Quote(channel)}
		default:
			more.Given = append(slices.Clip(more.Given), auth.Given{Channel: channel})
		}
	}
	return c.begin(k, 0, &more, req.Subs)
}

// uni is frame for a client that only listens. An error ends its connection, since no
// reply could bring it.
func (c *Channels) uni(k *sdkClient, data []byte) {
	err := malformed("connect comes once, and nothing after it")
	if k.stage == unconnected {
		err = c.beginUni(k, data)
	}
	if err == nil {
		return
	}
	if over, ok := errors.AsType[*sdkClose](err); ok {
		k.port.Close(over.code, over.reason)
		return
	}
	e, code := replyError(err), frame.Code(centrifuge.CloseDenied)
	if e.Code == centrifuge.TokenExpired {
		code = centrifuge.CloseExpired
	} else if e.Temporary {
		code = centrifuge.CloseServerError
	}
	k.port.Close(code, e.Message)
}

// connectGrant is what a client may do that connects with this token, or with none.
func (c *Channels) connectGrant(k *sdkClient, t string) (*auth.Grant, error) {
	if t != "" {
		grant, err := c.auth.Token(t)
		return grant, tokenError(err)
	}
	if k.grant != nil { // what came with the handshake said it
		return k.grant, nil
	}
	if grant := c.auth.Anyone(); grant != nil {
		return grant, nil
	}
	return nil, centrifuge.Fail(centrifuge.Unauthorized, "there is no token")
}

// tokenError is what a client is told of a token that is not good. One that has expired
// it can mend, and one that cannot be checked now may be good later.
func tokenError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, token.ErrExpired):
		return centrifuge.Fail(centrifuge.TokenExpired, "")
	case errors.Is(err, token.ErrUnauthorized):
		return &sdkClose{centrifuge.CloseToken, "invalid token: " + err.Error()}
	}
	return centrifuge.Fail(centrifuge.Internal, token.ErrUnavailable.Error())
}

// expire has the connection end with its grant.
func (c *Channels) expire(k *sdkClient) {
	if k.grant.Expires.IsZero() {
		c.expiry.remove(&k.slot)
		return
	}
	later := k.port.Later()
	c.expiry.set(&k.slot, k.grant.Expires, func() {
		later(func() {
			if k.expired() { // not, if a new token came meanwhile
				k.port.Close(centrifuge.CloseExpired, "connection expired")
			}
		})
	})
}

// welcome is the answer to connect, but for the subscriptions.
func (c *Channels) welcome(k *sdkClient) *centrifuge.Connect {
	r := &centrifuge.Connect{Client: k.name()}
	if c.ping > 0 {
		r.Ping, r.Pong = uint32(max(1, c.ping/time.Second)), k.form != centrifuge.Uni
	}
	if ttl, ok := k.grant.TTL(time.Now()); ok && k.form != centrifuge.Uni {
		r.Expires, r.TTL = true, ttl
	}
	if s, ok := k.port.(*sdkStream); ok {
		s.sendConnect(r)
	}
	return r
}

// give makes a subscription for a client. say makes the answers, which go where g does.
func (c *Channels) give(k *sdkClient, g *greeting, given auth.Given, since *centrifuge.Position, say func(j *joining) notified) *fault {
	if err := checkChannel(given.Channel); err != nil {
		return &fault{badRequest, err.Error(), given.Channel}
	}
	k.remember(given.Channel, &sdkSub{slot: noSlot, info: given.Info, given: true})
	j := &joining{c: c, s: &k.session, later: g.later, channel: given.Channel}
	if since != nil {
		j.since = &bus.Position{Epoch: since.Epoch, Offset: since.Offset}
	}
	j.answers = say(j)
	r := hub.Request{Subscriber: &givenSub{k, g}, UntilReset: true}
	if c.presence {
		r.Member = k.who(given.Channel)
	}
	return c.join(j, r)
}

func (k *sdkClient) remember(channel string, sub *sdkSub) {
	r := k.room()
	if r.subs == nil {
		r.subs = map[string]*sdkSub{}
	}
	r.subs[channel] = sub
}

// greeting is the answer to connect, and what comes before it can be sent.
type greeting struct {
	k            *sdkClient
	compressFrom int
	most         int // bytes to hold back
	later        func(f func())
	waiting      atomic.Int32 // subscriptions that have not begun, and one for connect itself
	sent         atomic.Bool  // nothing is held back any more

	mu    sync.Mutex
	reply centrifuge.Reply
	held  []*hub.Publication
	bytes int
	lost  bool // not all could be held, or a subscription has failed
}

// one is called when a subscription has begun or failed; the last one sends the answer.
func (g *greeting) one() {
	if g.waiting.Add(-1) > 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.sent.Store(true)
	if g.lost {
		g.later(func() { g.k.port.Close(centrifuge.CloseServerError, "internal server error") })
		return
	}
	g.k.writeNow(&g.reply, g.compressFrom)
	for _, p := range g.held {
		g.k.deliverGiven(p, g.later)
	}
	g.held = nil
}

// hold keeps a publication until the answer is sent; false: it is.
func (g *greeting) hold(p *hub.Publication) bool {
	if g.sent.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent.Load() {
		return false
	}
	if g.bytes += len(p.Data); g.bytes > g.most {
		g.lost = true
		return true
	}
	g.held = append(g.held, p)
	return true
}

// givenSub is a subscription that the server has made, to the hub.
type givenSub struct {
	k *sdkClient
	g *greeting
}

// Deliver implements [hub.Subscriber].
func (s *givenSub) Deliver(p *hub.Publication) {
	if !s.g.hold(p) {
		s.k.deliverGiven(p, s.g.later)
	}
}

// deliverGiven is Deliver for a subscription that the server has made: the client cannot
// subscribe anew, and has to connect anew.
func (k *sdkClient) deliverGiven(p *hub.Publication, later func(f func())) {
	if p.Note != nil && p.Note.Kind == hub.Reset {
		later(func() { k.port.Close(centrifuge.CloseState, "insufficient state") })
		return
	}
	k.Deliver(p)
}

// givenAnswers are the results of subscriptions that the server makes.
type givenAnswers struct {
	j    *joining
	g    *greeting
	data []byte
}

func (a *givenAnswers) began(h hub.Answer) {
	r := a.j.c.resultOf(h, a.j.since, a.g.k.form)
	r.Data = a.data
	a.g.mu.Lock()
	if a.g.reply.Connect.Subs == nil {
		a.g.reply.Connect.Subs = map[string]*centrifuge.SubscribeResult{}
	}
	a.g.reply.Connect.Subs[a.j.channel] = r
	a.g.mu.Unlock()
	a.g.one()
}

func (a *givenAnswers) failed(*fault) {
	a.g.mu.Lock()
	a.g.lost = true
	a.g.mu.Unlock()
	a.g.one()
}

func (*givenAnswers) awaited() bool { return true }

// pushAnswers tell a connected client of a subscription that the server makes.
type pushAnswers struct {
	j    *joining
	k    *sdkClient
	data []byte
}

func (a *pushAnswers) began(h hub.Answer) {
	r := a.j.c.resultOf(h, a.j.since, a.k.form)
	push := func(p *centrifuge.Push) {
		p.Channel = a.j.channel
		a.k.writeNow(&centrifuge.Reply{Push: p}, a.j.c.compressFrom)
	}
	push(&centrifuge.Push{Subscribe: &centrifuge.Subscribed{
		Recoverable: r.Recoverable, Epoch: r.Epoch, Offset: r.Offset, Positioned: r.Positioned, Data: a.data,
	}})
	for _, p := range r.Publications {
		push(&centrifuge.Push{Pub: p})
	}
}

func (*pushAnswers) failed(*fault) {} // who has ordered it is not there any more
func (*pushAnswers) awaited() bool { return false }

// refresh replaces the client's grant by that of a new token.
func (c *Channels) refresh(k *sdkClient, id uint32, req *centrifuge.RefreshRequest) error {
	grant, err := c.auth.Token(req.Token)
	switch {
	case err != nil:
		return tokenError(err)
	case grant.User != k.grant.User:
		return &sdkClose{centrifuge.CloseToken, "invalid token: it is another user's"}
	}
	k.grant = grant
	if k.member != nil {
		k.member = newMember(grant, k.member.Client)
	}
	c.expire(k)
	r := &centrifuge.RefreshResult{Client: k.name()}
	if ttl, ok := grant.TTL(time.Now()); ok {
		r.Expires, r.TTL = true, ttl
	}
	k.write(&centrifuge.Reply{ID: id, Refresh: r})
	c.revokeSDK(k)
	return nil
}

// revokeSDK ends the subscriptions that a new grant does not allow, and that no token of
// their own does.
func (c *Channels) revokeSDK(k *sdkClient) {
	var gone []string
	k.each(func(sub *hub.Subscription) {
		channel := sub.Channel()
		own := k.others().subs[channel]
		switch {
		case (own == nil || !own.token && !own.given) && !k.grant.MaySubscribe(channel):
			gone = append(gone, channel)
		case !k.grant.MaySeePresence(channel):
			c.hub.StopJoins(sub)
		}
	})
	for _, channel := range gone {
		c.endSub(k, channel, centrifuge.UnsubscribeServer, "server unsubscribe")
	}
}

// endSub ends a subscription, and tells the client.
func (c *Channels) endSub(k *sdkClient, channel string, code uint32, reason string) {
	c.dropSDK(k, channel)
	k.writeNow(&centrifuge.Reply{Push: &centrifuge.Push{Channel: channel, Unsubscribe: &centrifuge.Unsubscribe{Code: code, Reason: reason}}}, 0)
}
