// Package key makes cache keys: what must be equal for two requests to get the
// same stored response, beyond what Vary says.
//
// A key is readable. It begins with what looks like the URL, and what options
// add follows in lines of their own:
//
//	https://example.org/feed?page=2
//	h:X-Tenant:4:acme
//	c:lang:2:de
//	o:1:0
//
// No two requests that differ in a part that counts have one key, whatever
// their bytes: host and target are free of spaces and control characters (any
// that an http.Request built by hand may have are percent-encoded), and all
// that follows has its length. Keys are compared as a whole, never by a hash
// alone; and as Go seeds the hash of its maps in each process, nobody can
// choose keys that fall into one bucket.
//
// # The target counts as it came
//
// RFC 3986, 6.2.2 makes /~a, /%7Ea and /%7ea equal, and RFC 9110, 4.2.3 lets
// anyone treat them so. This package does not: the upstream gets the target as
// it came, and many compare it as it came (or check its signature). If all
// spellings had one key, the first client would choose which of them the
// upstream sees, and one asking for /%66eed could have its 404 stored for /feed.
// An exact key costs a second entry where clients spell differently, which
// browsers do not. [Normal] is there for purging, which ought to find them all.
//
// # In doubt, a parameter counts
//
// What is left out of a key is not to reach the upstream either (see Query), and
// what stays in may be read there in its own way: with ; as a separator, with
// names percent-encoded, without regard to case, with [] after the name. So a
// listed parameter counts in any
// spelling that some upstream may take for it; one is left out only if it is
// written just as the options have it; and a query with a semicolon, or with
// more than a few hundred parameters, counts as it came.
package key

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
)

// Options say what a key is made of. The zero value is the host and the
// request's target as it came.
type Options struct {
	// SortQuery makes the order of query parameters irrelevant, except among
	// those of one name.
	SortQuery bool `yaml:"sort_query"`
	// DropTracking leaves parameters out that only tell advertisers where a
	// visitor came from (utm_*, gclid, fbclid …). The upstream does not get them.
	DropTracking bool `yaml:"drop_tracking"`
	// Query lists the only parameters that count; empty: all. A name may end in *.
	// Others do not reach the upstream.
	Query []string `yaml:"query"`
	// WithoutQuery lists parameters that do not count and do not reach the
	// upstream. A name may end in *.
	WithoutQuery []string `yaml:"without_query"`
	// NoQuery leaves the whole query out, and out of what the upstream is asked.
	NoQuery bool `yaml:"no_query"`
	// Headers are request headers whose values count.
	Headers []string `yaml:"headers"`
	// Cookies are cookies whose values count.
	Cookies []string `yaml:"cookies"`
	// IgnoreHost makes all hosts share. The upstream is not told which it was.
	IgnoreHost bool `yaml:"ignore_host"`
}

// Maker makes keys. It is immutable.
type Maker struct {
	query      editor
	headers    []string // canonical, sorted
	cookies    []string // sorted
	variesOn   []string
	ignoreHost bool
}

// New prepares o. Its error is one of those that Check finds.
func New(o Options) (*Maker, error) {
	faults := o.Check()
	for _, name := range []string{"no_query", "query", "without_query", "headers", "cookies"} {
		if err := faults[name]; err != nil {
			return nil, err
		}
	}
	m := &Maker{query: newEditor(o), ignoreHost: o.IgnoreHost}
	for _, name := range o.Headers {
		m.headers = append(m.headers, http.CanonicalHeaderKey(name))
	}
	slices.Sort(m.headers)
	m.headers = slices.Compact(m.headers)
	m.cookies = slices.Compact(slices.Sorted(slices.Values(o.Cookies)))
	m.variesOn = slices.Clone(m.headers)
	if len(m.cookies) > 0 && !slices.Contains(m.variesOn, cookieHeader) {
		m.variesOn = append(m.variesOn, cookieHeader)
	}
	return m, nil
}

// Key is KeyOf for what the request itself says: the scheme of its connection,
// and its host.
func (m *Maker) Key(q *message.Request, class string) string {
	return m.KeyOf(q.Scheme(), q.Host, q, class)
}

// KeyOf is the exact key of a request: scheme, host in lower case, target, and
// what the options add, in a form that no client can forge (every part is
// escaped or has its length). The method is not part of it. class is the
// request's class for CORS, "" for none.
//
// Scheme and host are what the client asked for, which behind a proxy is not
// what the connection says. The host counts in its one spelling (see package
// authority), in which the upstream has to get it. A header or cookie that is
// listed but absent adds nothing. The key is no longer
// than what net/http accepts of a request and a few bytes for each part (three
// times that if the request was built by hand out of control characters).
func (m *Maker) KeyOf(scheme, host string, q *message.Request, class string) string {
	front := m.front(scheme, host, rawTarget(q))
	if class == "" && len(m.variesOn) == 0 {
		return front
	}
	var space [512]byte
	b := append(space[:0], front...)
	for _, name := range m.headers {
		if values := q.Fields.Values(name); len(values) > 0 {
			b = append(append(append(b, "\nh:"...), name...), ':')
			b = appendValues(b, values)
		}
	}
	if len(m.cookies) > 0 {
		b = m.appendCookies(b, q.Fields.Values(cookieHeader))
	}
	if class != "" {
		b = appendValue(append(b, "\no:"...), class)
	}
	return string(b)
}

// Query is what counts of a query, which comes without its question mark, and
// whether anything does. The upstream has to be asked for that and nothing more,
// or what does not count would have a say in an answer that others get. Without
// SortQuery the rest is as it came, byte for byte.
func (m *Maker) Query(query string) (counts string, found bool) { return m.query.edit(query) }

// ForURL is the key of a plain GET without cookies and headers of scheme, host and
// target, for purging and explaining; all is false when requests for that URL may
// have other keys as well. Classes of CORS are not counted among those.
func (m *Maker) ForURL(scheme, host, target string) (key string, all bool) {
	return m.front(field.Lower(scheme), host, target), len(m.variesOn) == 0
}

// Plain reports whether the key of this request is nothing but host and the
// raw target, so that the fast lane may file it under that: no option has
// changed or added anything. With IgnoreHost it is the target alone. The lane
// must compare what VariesOn lists, of which such a request has nothing.
func (m *Maker) Plain(q *message.Request) bool {
	if slices.ContainsFunc(m.headers, q.Fields.Has) {
		return false
	}
	if len(m.cookies) > 0 && len(m.appendCookies(nil, q.Fields.Values(cookieHeader))) > 0 {
		return false
	}
	target := rawTarget(q)
	if !strings.HasPrefix(target, "/") || dirty(target) {
		return false
	}
	_, query, found := strings.Cut(target, "?")
	if !found {
		return true
	}
	edited, found := m.query.edit(query)
	return found && edited == query
}

// VariesOn lists the request headers, canonical, that Key looks at beyond the
// host and the target. The caller must not change it.
func (m *Maker) VariesOn() []string { return m.variesOn }

// rawTarget is the request's target in origin form, byte for byte as it came over the
// network; where rules have made another path or query of that, it is what they made: the
// upstream is asked for that, and headers or cookies may have had a say in it.
func rawTarget(q *message.Request) string {
	target := q.Target
	if target == "" {
		return q.URI()
	}
	// RFC 9112, 3.2.2: the absolute form. Its host is q.Host already.
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' && rest != "" && rest[0] != '/' {
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			rest = rest[i:]
		} else {
			rest = ""
		}
		if !strings.HasPrefix(rest, "/") {
			rest = "/" + rest // RFC 9110, 4.2.3: an empty path is "/"
		}
		target = rest
	}
	if target[0] == '/' && rewritten(target, q) {
		return q.URI()
	}
	return target // also "*", or a CONNECT's
}

// rewritten reports whether a request is for another path or query than the target that
// came.
func rewritten(target string, q *message.Request) bool {
	path, query, _ := strings.Cut(target, "?")
	if query != q.Query {
		return true
	}
	if path == q.Path {
		return false
	}
	plain, err := url.PathUnescape(path)
	return err != nil || plain != q.Decoded() && (q.Path != "" || plain != "/")
}

// front is the first line of a key.
func (m *Maker) front(scheme, host, target string) string {
	if m.ignoreHost {
		host = "*" // which appendHost encodes in any other
	} else if host = field.NormalAuthority(scheme, host); !cleanHost(host) {
		host = encodeHost(host)
	}
	switch {
	case target == "":
		target = "/"
	case target[0] != '/':
		target = " " + encode(target) // no host holds a space
	case dirty(target):
		target = encode(target)
	}
	if path, query, found := strings.Cut(target, "?"); found && m.query.active {
		if query, found = m.query.edit(query); !found {
			return scheme + "://" + host + path
		}
		return scheme + "://" + host + path + "?" + query
	}
	return scheme + "://" + host + target
}

// hostBytes are the bytes of a host that stand in a key as they are. The
// others are encoded: capitals become small ones; % and * have their meaning.
var hostBytes = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789-._~:[]!$&'()+,;=@") {
		t[c] = true
	}
	return t
}()

func cleanHost(host string) bool {
	for i := range len(host) {
		if !hostBytes[host[i]] {
			return false
		}
	}
	return true
}

func encodeHost(host string) string {
	b := make([]byte, 0, len(host)+16)
	for i := range len(host) {
		switch c := host[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c+'a'-'A')
		case hostBytes[c]:
			b = append(b, c)
		default:
			b = appendEncoded(b, c)
		}
	}
	return string(b)
}

// dirty reports whether a target holds bytes that no request over the network
// has: net/http refuses them.
func dirty(target string) bool {
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f {
			return true
		}
	}
	return false
}

// encode percent-encodes what dirty finds.
func encode(target string) string {
	b := make([]byte, 0, len(target)+16)
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			b = appendEncoded(b, c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func appendEncoded(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

func appendValues(b []byte, values []string) []byte {
	for i, value := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, value)
	}
	return b
}

// appendValue adds a value behind its length, after which it may hold whatever
// it likes.
func appendValue(b []byte, value string) []byte {
	b = strconv.AppendInt(b, int64(len(value)), 10)
	return append(append(b, ':'), value...)
}
