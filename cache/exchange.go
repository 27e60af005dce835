package cache

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/wire/field"
)

// exchange is one request on its way through the cache.
type exchange struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	began   time.Time
	set     *rules.Settings
	scheme  string // that was asked for, with
	host    string // in its one spelling
	key     string
	demand  rfc9111.Demand
	private string       // why it bypasses the cache, "" when it does not
	version lane.Version // of the key, and of all purges: taken before anything is looked up
	purges  lane.Version

	unsure          bool   // what is sent is not what the next such request may get: not for the lane
	far             bool   // the range is far from what has come: see stream
	personal        bool   // it has credentials that are not in the key, and reach the upstream
	taken           func() // called when a leader holds its answer
	outcome, reason string // for the log
	status          int
}

// ServeHTTP is the life of a cached request. Its settings say whether it may be
// answered from here at all, and by which key. What is stored under the key is
// served if it may be. Else the request joins, or leads, the one fetch for that
// key, and is answered by what that has led to.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.proxy.Refuse(w, r) || h.cors.Preflight(w, r) {
		return
	}
	x := exchange{h: h, w: w, r: r, began: time.Now(), set: h.rules.ForRequest(r.URL.Path), purges: h.purges.Generation().Now()}
	x.scheme, x.host = h.proxy.AskedHTTP(r)
	defer func() { h.record(&x) }()
	if x.private = x.bypass(); x.private != "" {
		x.forward()
		return
	}
	x.key = x.makeKey()
	x.personal = x.set.Personal(r)
	x.demand = x.set.Policy.Demands(r.Header)
	x.version = h.tiers.Generation(x.key).Now()
	// A fetch may turn out to be for another client alone: then the next turn starts
	// a fetch of its own. The other two turns are for lost races.
	var o *object.Object
	for range 3 {
		if m := h.takeOver(r); m != nil {
			if x.began = m.x.began; x.resume(m) {
				return
			}
			continue
		}
		var soft bool
		step := trace.Begin(r.Context(), trace.Lookup)
		o, soft = h.lookup(&x)
		step.End("memory", nil)
		use := rfc9111.Miss
		if o != nil {
			use = o.Facts.Use(x.demand, x.began, soft)
		}
		if use == rfc9111.Refresh {
			h.fetches.Refresh(x.request(), o) // before the answer, which may take the client long to read
		}
		switch {
		case use == rfc9111.Serve && x.serve(o, "hit"), use == rfc9111.Refresh && x.serve(o, "stale"):
			return
		case x.demand.OnlyIfCached: // RFC 9111, 5.2.1.7
			x.refuse(http.StatusGatewayTimeout, "Nothing usable is stored, and the request asks for nothing else (only-if-cached).")
			return
		case x.join(o):
			return
		}
	}
	if !x.pass(o) {
		x.fail(errRaces)
	}
}

// errRaces occurs only with a disk that loses what was just written to it.
var errRaces = errors.New("what came from the upstream was gone before it could be sent, again and again")

// lookup finds what is in memory for a request, and whether it has been purged
// softly. What has been purged for good is dropped on the way.
func (h *Handler) lookup(x *exchange) (o *object.Object, soft bool) {
	for {
		if o = h.tiers.Get(x.key).Find(x.r, h.languages); o == nil {
			return nil, false
		}
		switch o.State(h.purges.Index()) {
		case purge.Gone:
			h.tiers.Drop(x.key, o)
		case purge.Stale:
			return o, true
		default:
			return o, false
		}
	}
}

// request is the exchange as a fetch needs it.
func (x *exchange) request() fetch.Request {
	return fetch.Request{R: x.r, Settings: x.set, Demand: x.demand, Key: x.key, Personal: x.personal, Trace: trace.From(x.r.Context())}
}

// url is the URL of the request as its client, and a purge, names it.
func (x *exchange) url() string { return x.scheme + "://" + x.host + x.r.URL.RequestURI() }

// bypass says why the request bypasses the cache; "": it does not.
func (x *exchange) bypass() string { return bypass(x.h.rules, x.set, x.r) }

func bypass(all *rules.Rules, set *rules.Settings, r *http.Request) string {
	return private(all, set, about{
		method: r.Method, body: r.ContentLength != 0, url: r.URL, connection: r.Header["Connection"],
		admitted: set.ProofOf(r) == rules.Secret,
		has:      func(name string) bool { return len(r.Header[name]) > 0 },
	})
}

// about is what private asks of a request.
type about struct {
	method     string
	body       bool
	url        *url.URL
	connection []string
	admitted   bool                   // for what counts as Authorization, and is not for others
	has        func(name string) bool // a field
}

// private says why a request bypasses the cache; "": it does not.
func private(all *rules.Rules, set *rules.Settings, r about) string {
	switch {
	case r.method != http.MethodGet && r.method != http.MethodHead:
		return "method"
	case r.has("Upgrade"):
		return "upgrade"
	case r.body:
		return "body" // no key says what it holds
	case r.has("If-Match") || r.has("If-Unmodified-Since"):
		return "precondition" // for the origin alone to judge (RFC 9111, 4.3.2)
	case hopFields(r.connection):
		return "connection" // they do not reach the upstream, so its answer must not be filed under their values
	case !all.Sure(r.url):
		return "path" // no rule, and no key of one, is surely meant for it
	case set.Bypass:
		return "rule"
	case set.Cookies == rules.Secret && r.has("Cookie"):
		return "cookie"
	case set.Auth == rules.Secret && r.has("Authorization"), r.admitted:
		return "authorization"
	}
	return ""
}

// makeKey is the key under which the answer is stored. It is made of what the upstream
// is sent, so that different spellings of one request share it.
func (x *exchange) makeKey() string {
	r := x.r
	if len(x.set.Made) > 0 {
		sent := x.h.proxy.SharedHTTP(r, x.set.ByHost).Header
		q := *r
		q.Header = maps.Clone(r.Header)
		for _, name := range x.set.Made {
			delete(q.Header, name)
			if values, ok := sent[name]; ok {
				q.Header[name] = values
			}
		}
		r = &q
	}
	k := x.set.Key.KeyOf(x.scheme, x.host, r, "")
	if x.h.trusting && x.h.clientHost { // which Host says, where a proxy has asked for another host than its client
		if host := field.NormalAuthority("", r.Host); host != x.host {
			k += "\nv:" + strconv.Itoa(len(host)) + ":" + host
		}
	}
	return k
}

// hopFields reports whether a request's Connection names fields of its own, and
// not just what concerns the connection.
func hopFields(lines []string) bool {
	for name := range field.Members(lines) {
		switch strings.ToLower(name) {
		case "close", "keep-alive", "te", "upgrade":
		default:
			return true
		}
	}
	return false
}
