// Package token checks signed tokens (JWT: RFC 7519, JWKS: RFC 7517), and asks the
// URLs of the operator that know the keys, or know who a client is.
//
// What a key is says what it signs, never the token: a secret HS256, and HS384 and HS512
// if it is long enough; an RSA key RS256, PS256 and the same with SHA-384 and SHA-512; an
// elliptic key ES256, ES384 or ES512, by its curve; an Ed25519 key EdDSA. So nobody can sign with a public key as if it were a
// secret, nor with nothing ("none"; RFC 8725, 3.1).
//
// exp and nbf are times (30 seconds are allowed for clocks that differ), iss and
// aud are compared if the options say with what. A token without exp never ends:
// who wants that its user can be locked out gives it one.
package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

var (
	// ErrUnauthorized is a token that is missing, wrong or expired. What is
	// wrapped around it may be told to the client.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrExpired is an ErrUnauthorized that a new token of the same kind mends.
	ErrExpired = errors.New("the token has expired")
	// ErrUnavailable says that a key has to be fetched, and cannot be. What is
	// wrapped around it is for the log.
	ErrUnavailable = errors.New("the permission cannot be checked now")
)

// minSecret is the size of what HS256 hashes to: a shorter secret would be the
// weakest part (RFC 7518, 3.2).
const minSecret = 32

// Options say which tokens are good. One of Secret, PublicKey and JWKS.
type Options struct {
	// Secret is for HS256, at least 32 bytes; with 48 bytes for HS384 too, and with 64
	// for HS512.
	Secret string `yaml:"secret"`
	// PublicKey is a PEM file, for RS256 to RS512, PS256 to PS512, ES256 to ES512 or EdDSA,
	// by what it holds: a public key or a certificate, or up to four while one
	// takes over from another.
	PublicKey string `yaml:"public_key"`
	// JWKS is the URL of a key set, fetched again when a key is unknown (at most
	// once in ten seconds) and every hour. While that fails the keys of before
	// are good.
	JWKS string `yaml:"jwks"`
	// Issuer and Audience must be in the token if they are given.
	Issuer   string `yaml:"issuer"`
	Audience string `yaml:"audience"`
	// Cookie is the name of a cookie with the token. Default none.
	Cookie string `yaml:"cookie"`
}

// Check returns what is wrong with the options, by key; "" is all of them.
func (j Options) Check() map[string]error {
	faults := map[string]error{}
	given := 0
	for _, way := range []string{j.Secret, j.PublicKey, j.JWKS} {
		if way != "" {
			given++
		}
	}
	switch {
	case given == 0:
		faults[""] = errors.New("nothing says which tokens are good: write secret: (32 bytes or more, the same as who signs them), public_key: key.pem, or jwks: https://…")
	case given > 1:
		faults[""] = errors.New("only one of secret, public_key and jwks can say which tokens are good: leave the others out")
	}
	if strings.HasPrefix(strings.TrimSpace(j.Secret), "-----BEGIN") {
		// As a secret it would let everybody who has the public key sign.
		faults["secret"] = errors.New("this is a key, not a secret: put it into a file, and write public_key: FILE")
	} else if n := len(j.Secret); n > 0 && n < minSecret {
		faults["secret"] = fmt.Errorf("a secret of %d bytes can be guessed: at least %d, such as openssl rand -base64 32 makes", n, minSecret)
	}
	if j.JWKS != "" {
		if err := CheckURL(j.JWKS); err != nil {
			faults["jwks"] = err
		}
	}
	if strings.ContainsAny(j.Cookie, " \t\r\n\"(),/:;<=>?@[\\]{}") {
		faults["cookie"] = fmt.Errorf("%q cannot be the name of a cookie: write one like session", j.Cookie)
	}
	return faults
}

// Claims are what a good token says.
type Claims struct {
	Subject string    // sub: "" if it has none
	Expires time.Time // the end of the leeway behind exp: from then on it is refused; zero: never
	// Members are all claims, by their names as they are written.
	Members map[string]json.RawMessage
}

// Checker checks tokens. It is safe for concurrent use, and must be closed.
type Checker struct {
	tokens *verifier
	end    context.CancelFunc
	done   sync.WaitGroup // the key set's goroutine, for which Close waits
}

// New returns a checker. A key is read at once, a key set as soon as it can be:
// until then tokens are ErrUnavailable. The options have been checked.
func New(o Options, errorLog *slog.Logger) (*Checker, error) {
	ks, set, err := o.keys(errorLog)
	if err != nil {
		return nil, err
	}
	c := &Checker{tokens: newVerifier(o, ks), end: func() {}}
	if set != nil {
		c.run(set)
	}
	return c, nil
}

func (c *Checker) run(set *keySet) {
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	c.done.Go(func() { set.run(ctx) })
}

// Check returns what a token says. It does not block: for a key that has to be
// fetched first it returns ErrUnavailable.
func (c *Checker) Check(token string) (Claims, error) { return c.tokens.verify(token) }

// Wait is Check, but waits for a key that has to be fetched, until ctx ends.
func (c *Checker) Wait(ctx context.Context, token string) (Claims, error) {
	claims, err := c.Check(token)
	unknown, ok := errors.AsType[*keyUnknown](err)
	if !ok || !unknown.wait(ctx) {
		return claims, err
	}
	return c.Check(token)
}

// Close ends fetching, and returns when it has ended.
func (c *Checker) Close() error {
	c.end()
	c.done.Wait()
	return nil
}

// Bearer is the token in a request's Authorization field (RFC 6750, 2.1). has is
// false where there is none of that scheme. The scheme's case does not matter (RFC
// 9110, 11.1), and whatever space is behind it is read as one.
func Bearer(r *http.Request) (token string, has bool) {
	const scheme = "bearer"
	s := strings.Trim(r.Header.Get("Authorization"), " \t")
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		return "", false
	}
	rest := strings.TrimLeft(s[len(scheme):], " \t")
	return rest, rest != "" && len(scheme)+len(rest) < len(s)
}

// InCookie is the token in the cookie of that name, "" for none or no name.
func InCookie(r *http.Request, name string) string {
	if name == "" {
		return ""
	}
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}
