// Package auth says what a client of the channels may do: from a signed token
// (package token), from the answer of a URL that is asked with
// the client's own credentials, or the same for everybody.
//
// # Tokens
//
// A token is looked for in the query (token=…), in Authorization: Bearer …, in
// the cookie that the options name, and in Sec-WebSocket-Protocol, as what
// follows "bearer" (new WebSocket(url, ["bearer", token]): a browser needs
// "bearer" among the route's subprotocols then). The first that is there
// decides; that it is wrong is not mended by a later one.
//
// Package token says which tokens are good.
//
// The claims: sub is the user, exp and nbf are times (30 seconds are allowed for
// clocks that differ), expire_at is when the grant ends if that is not exp (0: never),
// iss and aud are compared if the options say with what, info is any JSON that others
// see beside the user, subscribe, publish and presence are lists of patterns, and
// channels and subs name subscriptions that the server makes ([Given]). A token without
// exp never ends: who wants that its user can be locked out gives it one.
//
// A token for one subscription has channel besides ([Subscription]).
//
// # Patterns
//
// In a pattern * stands for any characters, none too; everything else stands
// for itself. "news", "chat:*", "*". In the options {sub} stands for the user:
// "user:{sub}:*". See [Options.Subscribe] for what a user's name may not do.
package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"millrace/internal/access/token"
	"millrace/internal/wire/field"
)

// ErrForbidden is a [token.ErrUnauthorized] of which more is known: whoever was
// asked knows the client, and does not want it.
var ErrForbidden = fmt.Errorf("%w: forbidden", token.ErrUnauthorized)

// Grant is what a client may do. It is immutable, and may be shared by clients.
type Grant struct {
	// User is the client's name, "" if it has none; at most 256 bytes, UTF-8.
	User string
	// Info is JSON in one line, in UTF-8, at most 4 KiB; nil if there is none.
	Info []byte
	// Expires is when the grant ends; zero: never. For a token it is the end of
	// the leeway behind exp: the moment from which on it would be refused.
	Expires time.Time
	// Given are the subscriptions that the server makes for the client, in the order
	// of their names. The client may subscribe to those channels.
	Given []Given

	renewable bool // it comes from a token

	subscribe patterns
	publish   patterns
	presence  patterns
}

// MaySubscribe reports whether the client may subscribe to a channel and read
// its history.
func (g *Grant) MaySubscribe(channel string) bool {
	return g.subscribe.match(channel) || slices.ContainsFunc(g.Given, func(s Given) bool { return s.Channel == channel })
}

// MayPublish reports whether it may publish to it.
func (g *Grant) MayPublish(channel string) bool { return g.publish.match(channel) }

// MaySeePresence reports whether it may see who else is there.
func (g *Grant) MaySeePresence(channel string) bool { return g.presence.match(channel) }

// Checker checks. It is safe for concurrent use, and must be closed.
type Checker struct {
	anyone rights
	open   *Grant         // of who has no name and no token; nil: that is refused
	tokens *token.Checker // nil: none are taken
	cookie string
	url    *asker
}

// New returns a checker. Keys are read at once, a key set as soon as it can be:
// until then tokens are token.ErrUnavailable. errorLog may be nil: slog.Default().
func New(o Options, errorLog *slog.Logger) (*Checker, error) {
	for key, fault := range o.Check() { // any of them
		return nil, fmt.Errorf("auth: %s: %w", key, fault)
	}
	if errorLog == nil {
		errorLog = slog.Default()
	}
	c := &Checker{anyone: o.rights()}
	if (o.JWT == nil && o.URL == "") || c.anyone.some() {
		c.open = c.anyone.grant("", claimed{})
	}
	if o.URL != "" {
		c.url = newAsker(o.URL, o.timeout())
	}
	if o.JWT == nil {
		return c, nil
	}
	c.cookie = o.JWT.Cookie
	var err error
	if c.tokens, err = token.New(*o.JWT, errorLog); err != nil {
		return nil, fmt.Errorf("auth: jwt.%w", err)
	}
	return c, nil
}

// Connect is the grant of a client that connects. It may wait: for URL, or for
// a key that has to be fetched; at most until ctx ends or the time that is set
// for either is over.
//
// Who brings no token where tokens are taken has what anyone may do, and is
// token.ErrUnauthorized if that is nothing.
func (c *Checker) Connect(ctx context.Context, r *http.Request) (*Grant, error) {
	switch {
	case c.url != nil:
		answer, err := c.url.ask(ctx, r)
		if err != nil {
			return nil, err
		}
		return c.anyone.grant(answer.user, answer), nil
	case c.tokens == nil:
		return c.open, nil
	}
	t := tokenOf(r, c.cookie)
	if t == "" {
		if c.open == nil {
			return nil, fmt.Errorf("%w: there is no token: send ?token=…, or Authorization: Bearer …", token.ErrUnauthorized)
		}
		return c.open, nil
	}
	return c.grant(c.tokens.Wait(ctx, t))
}

// tokenOf looks for a token where a client may have put it, in the order that
// the package's comment gives.
func tokenOf(r *http.Request, cookie string) string {
	if r.URL.RawQuery != "" {
		if t := r.URL.Query().Get("token"); t != "" {
			return t
		}
	}
	if t, ok := token.Bearer(r); ok {
		return t
	}
	if t := token.InCookie(r, cookie); t != "" {
		return t
	}
	bearer := false
	for offer := range field.Members(r.Header["Sec-Websocket-Protocol"]) {
		if bearer {
			return offer
		}
		bearer = offer == "bearer"
	}
	return ""
}

// Handshake is Connect for a client that may bring its token later: then grant is nil,
// and no error.
func (c *Checker) Handshake(ctx context.Context, r *http.Request) (*Grant, error) {
	if c.url == nil && c.tokens != nil && tokenOf(r, c.cookie) == "" {
		return nil, nil
	}
	return c.Connect(ctx, r)
}

// Anyone is the grant of who has no token; nil: without one nobody may do anything.
func (c *Checker) Anyone() *Grant { return c.open }

// Token returns the grant of a token that a client sends later, before its first one
// ends. It does not block: for a key that has to be fetched first it returns
// token.ErrUnavailable. The caller checks that the user is still the same.
func (c *Checker) Token(t string) (*Grant, error) {
	if c.tokens == nil {
		return nil, fmt.Errorf("%w: tokens are not used here", token.ErrUnauthorized)
	}
	return c.grant(c.tokens.Check(t))
}

// grant is that of a token that was checked.
func (c *Checker) grant(t token.Claims, err error) (*Grant, error) {
	if err != nil {
		return nil, err
	}
	claims, err := claimsOfToken(t)
	if err != nil {
		return nil, err
	}
	return c.anyone.grant(claims.user, claims), nil
}

// Close ends fetching, and returns when it has ended. Clients that are being
// asked about are not waited for.
func (c *Checker) Close() error {
	if c.url != nil {
		c.url.client.CloseIdleConnections()
	}
	if c.tokens != nil {
		return c.tokens.Close()
	}
	return nil
}
