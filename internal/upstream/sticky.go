package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// Sticky keeps a visitor with one server by a cookie, for applications that keep
// sessions in their memory.
type Sticky struct {
	// Cookie is its name. It says nothing about the server but which one it is, and
	// scripts cannot read it. Empty: none.
	Cookie string `yaml:"cookie"`
	// MaxAge is how long browsers keep it. Default until they are closed.
	MaxAge time.Duration `yaml:"max_age"`
}

// UnmarshalText lets a config say "sticky: NAME".
func (s *Sticky) UnmarshalText(text []byte) error {
	*s = Sticky{Cookie: string(text)}
	return nil
}

func (o Options) checkSticky(faults map[string]error) {
	s := o.Sticky
	switch {
	case s == (Sticky{}):
	case !field.Token(s.Cookie):
		faults["sticky.cookie"] = fmt.Errorf("%q is not the name of a cookie", s.Cookie)
	case strings.HasPrefix(s.Cookie, "__"):
		faults["sticky.cookie"] = errors.New("names that begin with __ have rules of their own: choose another one")
	case s.MaxAge > 0 && s.MaxAge < time.Second:
		faults["sticky.max_age"] = fmt.Errorf("%s is less than a second", s.MaxAge)
	}
}

// tokenOf names a server in cookies: the same on every machine and after every
// restart, and nothing to read an address from.
func tokenOf(name string) string {
	sum := sha256.Sum256([]byte("millrace sticky " + name))
	return hex.EncodeToString(sum[:8])
}

// named is the server that the value of a cookie names; nil: none.
func (p *Pool) named(token string) *server {
	for _, s := range p.servers {
		if s.token == token {
			return s
		}
	}
	return nil
}

// stick gives an answer the cookie that names the server which it came from, unless the
// client has it already, or its own server is only busy at the moment.
func (p *Pool) stick(a *Answer, what demand, s *server, secure bool) {
	if p.options.Sticky.Cookie != "" && p.needsCookie(what, s) {
		a.Fields.Add("Set-Cookie", p.cookie(s, secure))
	}
}

// needsCookie reports whether the client is given the cookie of the server that
// answered: it has none of a server that may be asked again.
func (p *Pool) needsCookie(what demand, s *server) bool {
	return len(p.servers) > 1 && what.stuck&(1<<s.index) == 0 && !p.comesBack(what.stuck)
}

// cookie is what names a server to its client.
func (p *Pool) cookie(s *server, secure bool) string {
	o := p.options.Sticky
	c := http.Cookie{Name: o.Cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure, MaxAge: int(o.MaxAge / time.Second)}
	return c.String()
}

// comesBack reports whether a server may be asked, when it has room.
func (p *Pool) comesBack(one set) bool {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		if one&(1<<s.index) != 0 {
			return !s.down && !s.drained && now >= s.ejectedUntil && !s.breaker.isOpen()
		}
	}
	return false
}
