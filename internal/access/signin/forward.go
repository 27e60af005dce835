package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millrace/internal/access/token"
	"millrace/internal/wire/field"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/urlpath"
)

// maxPage bounds the body of a refusal that is given to the client, in bytes.
const maxPage = 64 << 10

// notAsked are the fields of the client's request that the other server does not get: those
// about its connection or body, and those that would change the answer, such as Range.
// Names are canonical.
func notAsked() []string {
	return []string{
		"Connection", "Keep-Alive", "Proxy", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Content-Length", "Content-Type", "Content-Encoding", "Content-Range",
		"Expect", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Accept-Encoding",
		"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Forwarded",
	}
}

// forward asks another server whether to let a client in.
type forward struct {
	url     *url.URL
	name    string // without secrets, for logs
	client  *http.Client
	timeout time.Duration
	queue   *checkQueue
	copy    []string
	clients *netset.Finder
	errors  *slog.Logger
}

func newForward(o Options, clients *netset.Finder, errorLog *slog.Logger) *forward {
	u, err := url.Parse(o.URL)
	if err != nil { // Check has parsed it
		panic(err)
	}
	f := &forward{
		url: u, name: token.Name(o.URL), timeout: cmp.Or(o.Timeout, defaultTimeout), queue: newCheckQueue(token.MaxConns),
		clients: clients, errors: errorLog,
	}
	f.client = token.NewClient(f.timeout)
	for _, name := range o.Copy {
		f.copy = append(f.copy, http.CanonicalHeaderKey(name))
	}
	return f
}

// Close implements [io.Closer].
func (f *forward) Close() error {
	f.client.CloseIdleConnections()
	return nil
}

// admit implements way.
func (f *forward) admit(r *http.Request) (visitor, *refusal) {
	oneOfEach(r.Header)
	ctx, cancel := context.WithTimeout(r.Context(), f.timeout)
	defer cancel()
	client := clientOf(f.clients.Of(r))
	if !f.queue.acquire(ctx, client) {
		if f.queue.shouldWarn(r) {
			f.errors.Warn("more requests come than the one who has to be asked answers; some are not let in", "url", f.name, "client", f.clients.Of(r).String())
		}
		return visitor{}, &refusal{status: http.StatusServiceUnavailable, fields: http.Header{"Retry-After": {"10"}}}
	}
	defer f.queue.release(client, true)
	resp, err := f.client.Do(f.authRequest(r).WithContext(ctx))
	if err != nil {
		return visitor{}, f.down(r, token.Bare(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode < http.StatusOK, resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusNotModified: // the request had no condition
		return visitor{}, f.down(r, fmt.Errorf("its answer is %d", resp.StatusCode))
	case resp.StatusCode/100 == 2:
		who := visitor{fields: http.Header{}, proof: Proof{Asked: true}}
		for _, name := range f.copy {
			if v := resp.Header[name]; len(v) > 0 {
				who.fields[name] = v
			}
		}
		_, _ = io.CopyN(io.Discard, resp.Body, maxPage) // read to its end, the connection can be used again
		return who, nil
	}
	no := &refusal{status: resp.StatusCode, fields: http.Header{}}
	for name, values := range resp.Header {
		switch name {
		case "Location", "Set-Cookie", "Www-Authenticate", "Content-Type", "Content-Language", "Retry-After":
			no.fields[name] = values
		}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return visitor{}, f.down(r, token.Bare(err))
	}
	if len(body) <= maxPage && (len(body) > 0 || no.fields["Content-Type"] != nil) {
		no.body = body
	}
	return visitor{}, no
}

// down is the answer while the other server cannot be asked.
func (f *forward) down(r *http.Request, err error) *refusal {
	if r.Context().Err() == nil { // else the client has gone
		f.errors.Warn("nobody is let in, since who has to be asked does not answer", "url", f.name, "err", err)
	}
	return &refusal{status: http.StatusServiceUnavailable}
}

// authRequest returns the request that asks the other server about r.
func (f *forward) authRequest(r *http.Request) *http.Request {
	q := &http.Request{Method: http.MethodGet, URL: f.url, Host: f.url.Host, Header: r.Header.Clone()}
	for name := range field.Members(r.Header["Connection"]) {
		q.Header.Del(name)
	}
	for _, name := range notAsked() {
		delete(q.Header, name)
	}
	trusted := f.clients.Trusts(netset.Peer(r.RemoteAddr))
	for name := range q.Header {
		if untrue(name, trusted) {
			delete(q.Header, name)
		}
	}
	if _, ok := q.Header["User-Agent"]; !ok {
		q.Header.Set("User-Agent", "") // none, instead of net/http's own
	}
	q.Header.Set("X-Forwarded-Method", r.Method)
	scheme := f.scheme(r)
	q.Header.Set("X-Forwarded-Proto", scheme)
	q.Header.Set("X-Forwarded-Host", field.NormalAuthority(scheme, r.Host)) // in the spelling that sites and upstreams go by
	q.Header.Set("X-Forwarded-Uri", urlpath.AsSent(r))
	q.Header.Set("X-Original-Uri", urlpath.AsSent(r))
	if a := f.clients.Of(r); a.IsValid() {
		q.Header.Set("X-Forwarded-For", a.String())
	}
	return q
}

// untrue reports whether a field is to be dropped because only the gate may send it: it
// names the target or the client of the request. Servers read many such names (Authelia
// prefers X-Original-URL to X-Forwarded-Uri). A trusted proxy may send further ones about
// its client, in the usual spelling only.
func untrue(name string, trusted bool) bool {
	folded := field.Fold(name)
	switch {
	case strings.HasPrefix(folded, "x-forwarded-"), strings.HasPrefix(folded, "x-original-"), field.Override(name):
		return true
	case trusted && field.Plain(name):
		return false
	}
	return field.Claim(name)
}

// scheme returns the scheme of the client's request: from a trusted proxy's
// X-Forwarded-Proto, or of the connection.
func (f *forward) scheme(r *http.Request) string {
	// Of several, the first is what the client has sent through a proxy that adds its own.
	if p := r.Header["X-Forwarded-Proto"]; len(p) == 1 && (p[0] == "http" || p[0] == "https") && f.clients.Trusts(netset.Peer(r.RemoteAddr)) {
		return p[0]
	}
	return urlpath.Scheme(r)
}

// errNoTarget is for an address without a path.
var errNoTarget = errors.New("there is no path to sign: write /files/a.zip or https://example.org/files/a.zip")
