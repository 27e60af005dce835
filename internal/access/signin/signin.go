// Package signin protects routes: it lets clients in by a password, a signed token, a
// signed address, or another server's word. Answers behind it are not repeated for
// other clients, by caches or by the fast lane.
package signin

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/internal/access/token"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// Options say how visitors are told apart: by passwords, jwt, url or signed. One
// of them, or off.
type Options struct {
	// Realm is what browsers show above the fields for name and password.
	// Default "restricted".
	Realm string `yaml:"realm"`
	// Passwords are users and the hashes of their passwords, as `millrace
	// hash-password` prints them: bcrypt or argon2id (RFC 7617). A dollar sign
	// in them is itself.
	Passwords map[string]string `yaml:"passwords" expand:"no"`
	// File is a file of lines name:hash, as htpasswd makes it. It is read
	// again when it changes; while it is missing or broken, nobody is let in.
	File string `yaml:"file"`
	// JWT lets in who brings a signed token: in Authorization (Bearer, RFC
	// 6750), or in the cookie that it names. Others get 401.
	JWT *token.Options `yaml:"jwt"`
	// URL is asked for every request (GET), with all fields of the client's
	// request but those about its body and connection, and with
	// X-Forwarded-Method, -Proto, -Host, -Uri and -For. 2xx lets it in. Any other
	// answer below 500 is given to the client, with its Location, its cookies
	// and a body of at most 64 KiB: a redirect to the page for signing in, say.
	// If there is no answer, or it is 500 or more, the client gets 503.
	URL string `yaml:"url"`
	// Timeout of URL. Default 5s, at most 1m.
	Timeout time.Duration `yaml:"timeout"`
	// Copy are fields of URL's answer that the job's request gets, such as
	// Remote-User. What the client sent under these names is dropped.
	Copy []string `yaml:"copy"`
	// UserHeader is a field in which the job's request gets the name of the user
	// of a password, or a token's sub. What the client sent in it is dropped.
	UserHeader string `yaml:"user_header"`
	// Signed lets in whose address carries a signature: `millrace sign` makes
	// such addresses.
	Signed *Signed `yaml:"signed"`
	// Except are addresses and networks that are let in without any of it, as in
	// 10.0.0.0/8; "unix" stands for clients of UNIX sockets. Behind a proxy that
	// limits.trusted_proxies names, the address is that of the client.
	Except []string `yaml:"except"`
	// Off lets everybody in, below a site that asks.
	Off bool `yaml:"off"`
}

const (
	// defaultTimeout is how long a client waits for its answer before the URL
	// counts as down.
	defaultTimeout = 5 * time.Second
	// maxTimeout keeps clients from piling up behind a URL that hangs.
	maxTimeout = time.Minute
	// maxCopied bounds how many fields are copied.
	maxCopied = 32
)

// ways returns the keys of the ways to be let in that are set.
func (o Options) ways() (keys []string) {
	for _, w := range []struct {
		key  string
		used bool
	}{
		{"passwords", len(o.Passwords) > 0 || o.File != ""}, {"jwt", o.JWT != nil}, {"url", o.URL != ""}, {"signed", o.Signed != nil},
	} {
		if w.used {
			keys = append(keys, w.key)
		}
	}
	return keys
}

// Kind describes in words what clients must present.
func (o Options) Kind() string {
	switch {
	case o.JWT != nil:
		return "a signed token"
	case o.URL != "":
		return "the leave of " + token.Name(o.URL)
	case o.Signed != nil:
		return "a signed address"
	}
	return "a password"
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	ways := o.ways()
	switch {
	case o.Off && len(ways) > 0:
		faults["off"] = errors.New("off stands alone")
	case o.Off:
	case len(ways) == 0:
		faults["passwords"] = errors.New("nobody could come in: auth needs passwords, a file, jwt, url or signed")
	case len(ways) > 1:
		faults[ways[1]] = fmt.Errorf("visitors are let in by %s or by %s, not both: leave one of them out", ways[0], ways[1])
	}
	o.checkPasswords(faults)
	if o.JWT != nil {
		for key, fault := range o.JWT.Check() {
			faults[strings.TrimSuffix("jwt."+key, ".")] = fault
		}
	}
	if o.Signed != nil {
		for key, fault := range o.Signed.check() {
			faults["signed."+key] = fault
		}
	}
	if _, err := netset.Parse(o.Except); err != nil {
		faults["except"] = err
	} else if o.Off && len(o.Except) > 0 {
		faults["except"] = errors.New("off lets everybody in already")
	}
	o.checkURL(faults)
	o.checkFields(faults)
	return faults
}

func (o Options) checkURL(faults map[string]error) {
	if o.URL != "" {
		if err := token.CheckURL(o.URL); err != nil {
			faults["url"] = err
		}
	}
	switch {
	case o.Timeout < 0 || o.Timeout > maxTimeout:
		faults["timeout"] = fmt.Errorf("%s is out of range: write at most %s", o.Timeout, maxTimeout)
	case o.Timeout != 0 && o.URL == "":
		faults["timeout"] = errors.New("timeout does nothing without url")
	}
}

func (o Options) checkFields(faults map[string]error) {
	switch {
	case len(o.Copy) > 0 && o.URL == "":
		faults["copy"] = errors.New("copy does nothing without url")
	case len(o.Copy) > maxCopied:
		faults["copy"] = fmt.Errorf("%d fields are too many: at most %d", len(o.Copy), maxCopied)
	}
	for i, name := range o.Copy {
		if err := checkField(name); err != nil {
			faults[fmt.Sprintf("copy[%d]", i)] = err
		}
	}
	switch {
	case o.UserHeader == "":
	case o.URL != "" || o.Signed != nil:
		faults["user_header"] = errors.New("only passwords and jwt know a user's name; with url, write copy: [Remote-User]")
	default:
		if err := checkField(o.UserHeader); err != nil {
			faults["user_header"] = err
		}
	}
}

// checkField refuses names that are none, and those that decide how a request is
// read or where it goes.
func checkField(name string) error {
	if !field.Token(name) {
		return fmt.Errorf("%q is not the name of a header field", name)
	}
	if name = http.CanonicalHeaderKey(name); name == "Host" || slices.Contains(notAsked(), name) {
		return fmt.Errorf("%s belongs to the request itself", name)
	}
	return nil
}

// visitor is a client that was let in.
type visitor struct {
	user   string      // "" for who has no name
	fields http.Header // for the job's request
	proof  Proof
	spent  []string // parameters of the query that the job does not get
}

// refusal is the answer to a client that was not let in.
type refusal struct {
	status    int
	challenge string      // WWW-Authenticate; "" for none
	fields    http.Header // nil: none
	text      string      // what is wrong; "": as the status has it
	body      []byte      // in place of a text; nil: none
}

// A way decides whether a request is let in. It is safe for concurrent use.
type way interface {
	admit(r *http.Request) (visitor, *refusal)
}

// Gate protects a handler. It must be closed.
type Gate struct {
	way    way
	claims []string // fields that say who somebody is: only the gate may
	user   string   // the field for the user's name
	closer io.Closer

	except  netset.Set // who is not asked
	clients *netset.Finder
}

// New reads files and begins to fetch keys. clients finds the client behind a
// proxy that is trusted; nil trusts none.
func New(o Options, clients *netset.Finder, errorLog *slog.Logger) (*Gate, error) {
	g := &Gate{user: http.CanonicalHeaderKey(o.UserHeader), clients: clients}
	var err error
	if g.except, err = netset.Parse(o.Except); err != nil {
		return nil, fmt.Errorf("except: %w", err)
	}
	for _, name := range o.Copy {
		g.claims = append(g.claims, http.CanonicalHeaderKey(name))
	}
	if g.user != "" {
		g.claims = append(g.claims, g.user)
	}
	switch {
	case o.JWT != nil:
		t, err := token.New(*o.JWT, errorLog)
		if err != nil {
			return nil, fmt.Errorf("jwt.%w", err)
		}
		g.way, g.closer = &bearer{tokens: t, cookie: o.JWT.Cookie, errors: errorLog}, t
	case o.URL != "":
		f := newForward(o, clients, errorLog)
		g.way, g.closer = f, f
	case o.Signed != nil:
		g.way = o.Signed
	default:
		p, err := newPasswords(o, clients, errorLog)
		if err != nil {
			return nil, err
		}
		g.way = p
	}
	return g, nil
}

// Close stops fetching keys, and closes connections.
func (g *Gate) Close() error {
	if g.closer == nil {
		return nil
	}
	return g.closer.Close()
}

// Gated is a handler behind a gate: it is called for requests that are let in.
type Gated struct {
	*Gate
	Handler http.Handler
}

// Wrap returns a handler that calls h for requests that are let in, and refuses others.
func (g *Gate) Wrap(h http.Handler) *Gated { return &Gated{g, h} }

// ServeHTTP implements [http.Handler].
func (g *Gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if slices.Contains(admissionOf(r.Context()).by, g.Gate) { // on its way through another route
		g.Handler.ServeHTTP(w, r)
		return
	}
	for _, name := range g.claims {
		drop(r.Header, name)
		drop(r.Trailer, name) // announced ones, which an upstream may take into the header
	}
	if !g.except.Empty() && g.except.Has(g.clients.Of(r)) {
		g.Handler.ServeHTTP(w, r)
		return
	}
	if len(r.Header["Authorization"]) > 1 { // the job might go by another one than the gate (RFC 9110, 5.3)
		(&refusal{status: http.StatusBadRequest}).send(w, r)
		return
	}
	who, no := g.way.admit(r)
	if no != nil {
		no.send(w, r)
		return
	}
	if g.user != "" && who.user != "" {
		who.fields = http.Header{g.user: {who.user}}
	}
	maps.Copy(r.Header, who.fields)
	g.Handler.ServeHTTP(w, who.forJob(r, g.Gate))
}

// A quick way knows of some requests at once that they are let in, from their
// Authorization alone: who may ask was found out before, or needs nobody else.
type quick interface {
	admitNow(q *message.Request) (user string, ok bool)
}

// AdmitNow does the same as the handler for a request on an event loop, whose fields become
// those that the job gets. It reports false where the handler has to decide, for who is not
// let in as well.
func (g *Gate) AdmitNow(q *message.Request) bool {
	q.Fields = slices.DeleteFunc(q.Fields, func(l field.Line) bool {
		return slices.ContainsFunc(g.claims, func(claim string) bool { return passesFor(l.Name, claim) })
	})
	if !g.except.Empty() && g.except.Has(q.Client(g.clients)) {
		return true
	}
	way, ok := g.way.(quick)
	if !ok {
		return false
	}
	user, ok := way.admitNow(q)
	if ok && g.user != "" && user != "" {
		says := field.Line{Name: g.user, Value: user}
		q.Fields, q.Set = append(q.Fields, says), append(q.Set, says)
	}
	return ok
}

// Anonymous returns h for pages that every client may see, such as error pages: what
// identifies the client is removed from the request, since it was not checked. h may
// change the request.
func (g *Gate) Anonymous(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range append([]string{"Authorization", "Cookie"}, g.claims...) {
			drop(r.Header, name)
		}
		h.ServeHTTP(w, r)
	})
}

// drop removes a field in every spelling: to programs behind a gateway interface
// (CGI, WSGI) X_User and X.User are X-User.
func drop(h http.Header, name string) {
	for have := range h {
		if passesFor(have, name) {
			delete(h, have)
		}
	}
}

// passesFor reports whether some program takes a field for the one with a name.
func passesFor(have, name string) bool {
	return have == name || len(have) == len(name) && !field.Plain(have) && field.Fold(have) == field.Fold(name)
}

func (no *refusal) send(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	maps.Copy(header, no.fields)
	if no.challenge != "" {
		header.Set("Www-Authenticate", no.challenge)
	}
	header.Set("Cache-Control", "no-store")
	if no.body == nil {
		pages.Error(w, r, no.status, no.text)
		return
	}
	send.NoGuess(header)
	w.WriteHeader(no.status)
	_, _ = w.Write(no.body) // the client may be gone
}
