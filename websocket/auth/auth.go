// Package auth says what a client of the channels may do: from a signed token
// (JWT: RFC 7519, JWKS: RFC 7517), from the answer of a URL that is asked with
// the client's own credentials, or the same for everybody.
package auth

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

var (
	// ErrUnauthorized: a token is missing, wrong or expired.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrUnavailable: whoever has to be asked cannot be.
	ErrUnavailable = errors.New("the permission cannot be checked now")
)

// Options say how clients are told apart. At most one of JWT and URL; neither: everybody has Anyone's grant.
type Options struct {
	// JWT takes signed tokens: from the query (token=…), a header (Authorization: Bearer …), a cookie, or a command of the protocol.
	JWT *JWT `yaml:"jwt"`
	// URL is asked for every new connection, with the client's Cookie, Authorization, Origin and query, and its address in X-Forwarded-For. 200 with
	// {"user": "…", "subscribe": ["news", "user:7:*"], "publish": […], "presence": […], "info": {…}, "expires": seconds since 1970}
	// is a grant, 401 and 403 are refusals.
	URL string `yaml:"url"`
	// Timeout of URL. Default 5s.
	Timeout time.Duration `yaml:"timeout"`
	// Subscribe are patterns of the channels that anyone may subscribe to, without a token: * stands for any characters. Default: all, if there is neither jwt nor url; else none.
	Subscribe []string `yaml:"subscribe"`
	// Publish are those that anyone may publish to from a browser. Default none.
	Publish []string `yaml:"publish"`
	// Presence are those whose presence anyone may see. Default none.
	Presence []string `yaml:"presence"`
}

// JWT says which tokens are good. One of Secret, PublicKey and JWKS.
type JWT struct {
	// Secret is for HS256, at least 32 bytes.
	Secret string `yaml:"secret"`
	// PublicKey is a PEM file, for RS256 or ES256.
	PublicKey string `yaml:"public_key"`
	// JWKS is the URL of a key set, fetched again when a key is unknown (at most once in ten seconds) and every hour.
	JWKS string `yaml:"jwks"`
	// Issuer and Audience must be in the token if they are given.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// Cookie is the name of a cookie with the token. Default none.
	Cookie string `yaml:"cookie"`
}

// Check returns what is wrong with the options, by key.
func (o Options) Check() map[string]error { return nil } // not built

// Grant is what a client may do. Immutable.
type Grant struct {
	User      string
	Info      []byte    // JSON
	Expires   time.Time // zero: never
	subscribe patterns
	publish   patterns
	presence  patterns
}

type patterns []string

// MaySubscribe reports whether the client may subscribe to a channel and read its history.
func (g *Grant) MaySubscribe(channel string) bool { panic("not built") }

// MayPublish reports whether it may publish to it.
func (g *Grant) MayPublish(channel string) bool { panic("not built") }

// MaySeePresence reports whether it may see who else is there.
func (g *Grant) MaySeePresence(channel string) bool { panic("not built") }

// Checker checks. It must be closed.
type Checker struct{}

// New returns a checker. Keys are read at once, a key set as soon as it can be: until then tokens are ErrUnavailable.
func New(o Options, errorLog *slog.Logger) (*Checker, error) { panic("not built") }

// Connect is the grant of a client that connects. It may wait for URL. The claims of a token: sub, exp, nbf, iss, aud, info, and subscribe, publish, presence: lists of patterns.
func (c *Checker) Connect(ctx context.Context, r *http.Request) (*Grant, error) { panic("not built") }

// Token is the grant of a token that comes later, to go on behind the first one's end. It does not block.
func (c *Checker) Token(token string) (*Grant, error) { panic("not built") }

// Close ends fetching.
func (c *Checker) Close() error { panic("not built") }
