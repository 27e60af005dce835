package cache

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/internal/access/signin"
	"millrace/internal/lane"
	"millrace/internal/observe/trace"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/proxy"
)

// exchange is one request on its way through the cache.
type exchange struct {
	h       *Handler
	w       http.ResponseWriter // nil on an event loop, as r
	r       *http.Request
	head    *message.Request
	proof   signin.Proof // for which a gate has admitted it
	began   time.Time
	set     *rules.Settings
	scheme  string // that was asked for, with
	host    string // in its one spelling
	key     string
	demand  rfc9111.Demand
	bypass  string       // why it bypasses the cache, "" when it does not
	version lane.Version // of the key, and of all purges: taken before anything is looked up
	purges  lane.Version

	distrusted      bool   // what is stored was purged, or not trusted, when it was looked up
	unsure          bool   // what is sent is not what the next such request may get: not for the lane
	cut             bool   // this machine does not hear of purges: nothing for the lane either
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
	head := new(message.Request)
	proxy.Head(head, r)
	if h.proxy.Refuse(w, r, head) || h.cors.Preflight(w, r) {
		return
	}
	x := h.newExchange(head, signin.ProofOf(r.Context()))
	x.w, x.r = w, r
	defer func() { h.record(&x, 0) }()
	if x.bypass != "" {
		x.forward()
		return
	}
	x.judge()
	x.catchUp()
	x.version = h.tiers.Generation(x.key).Now()
	// A fetch may turn out to be for another client alone: then the next turn starts
	// a fetch of its own. The other two turns are for lost races.
	var o *object.Object
	for range 3 {
		if m, started := lane.Take[*missing](r, h); started {
			if x.began = m.began; x.resume(m) {
				return
			}
			continue
		}
		var state purge.State
		step := trace.Begin(r.Context(), trace.Lookup)
		o, state = h.lookup(&x)
		step.End("memory", nil)
		x.distrusted = state != purge.Valid
		use := rfc9111.Miss
		if o != nil {
			use = o.Use(x.demand, x.began, state)
		}
		if use == rfc9111.Refresh {
			h.fetches.Refresh(*x.request(), o) // before the answer, which may take the client long to read
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

// newExchange makes the exchange of a request, for a handler or an event loop.
func (h *Handler) newExchange(head *message.Request, proof signin.Proof) exchange {
	x := exchange{
		h: h, head: head, proof: proof, began: time.Now(), set: h.rules.ForRequest(head.Decoded()), purges: h.purges.Generation().Now(),
	}
	x.scheme, x.host = h.proxy.Asked(head)
	x.bypass = bypass(h.rules, x.set, head, proof)
	return x
}

// judge decides what the request wants of what is stored.
func (x *exchange) judge() {
	x.key = x.makeKey()
	x.personal = x.set.Personal(x.head.Fields, x.proof)
	x.demand = x.set.Policy.Demands(x.head.Fields)
}

// errRaces occurs only with a disk that loses what was just written to it.
var errRaces = errors.New("what came from the upstream was gone before it could be sent, again and again")

// lookup finds what is in memory for a request, and what became of it. What has been
// purged for good is dropped on the way.
func (h *Handler) lookup(x *exchange) (*object.Object, purge.State) {
	for {
		o := h.tiers.Get(x.key).Find(x.head.Fields, h.languages)
		if o == nil {
			return nil, purge.Valid
		}
		if state := o.State(h.purges.Index()); state != purge.Gone {
			return o, state
		}
		h.tiers.Drop(x.key, o)
	}
}

// catchUp is for a machine that is cut off from the others. Until it has heard of all their
// purges, what it has is validated before its use.
func (x *exchange) catchUp() {
	if x.h.purges.CaughtUp() {
		return
	}
	x.cut = true
	if !x.h.purges.CatchUp(x.r.Context()) {
		x.demand = x.demand.Validated()
	}
}

// request is the exchange as a fetch needs it.
func (x *exchange) request() *fetch.Request {
	q := &fetch.Request{
		Head: x.head, Proof: x.proof, Scheme: x.scheme, Host: x.host,
		Settings: x.set, Demand: x.demand, Key: x.key, Personal: x.personal,
	}
	if x.r == nil {
		q.Marks = x.head.Marks
		return q
	}
	q.Gone, q.Trace = x.r.Context().Done(), trace.From(x.r.Context())
	return q
}

// url is the URL of the request as its client, and a purge, names it.
func (x *exchange) url() string { return x.scheme + "://" + x.host + x.head.URI() }

// bypass says why a request bypasses the cache; "": it does not.
func bypass(all *rules.Rules, set *rules.Settings, q *message.Request, proof signin.Proof) string {
	fields := q.Fields
	switch {
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		return "method"
	case fields.Has("Upgrade"):
		return "upgrade"
	case q.Length != 0:
		return "body" // no key says what it holds
	case fields.Has("If-Match") || fields.Has("If-Unmodified-Since"):
		return "precondition" // for the origin alone to judge (RFC 9111, 4.3.2)
	case hopFields(fields):
		return "connection" // they do not reach the upstream, so its answer must not be filed under their values
	case !all.Sure(q):
		return "path" // no rule, and no key of one, is surely meant for it
	case set.Bypass:
		return "rule"
	case set.Cookies == rules.Secret && fields.Has("Cookie"):
		return "cookie"
	case set.Auth == rules.Secret && fields.Has("Authorization"), set.ProofOf(fields, proof) == rules.Secret:
		return "authorization"
	}
	return ""
}

// makeKey is the key under which the answer is stored. It is made of what the upstream
// is sent, so that different spellings of one request share it.
func (x *exchange) makeKey() string {
	q := x.head
	if made := x.set.Made; len(made) > 0 {
		isMade := func(l field.Line) bool { return slices.Contains(made, l.Name) }
		q = q.Clone()
		q.Fields = slices.DeleteFunc(q.Fields, isMade)
		for _, l := range x.h.proxy.Shared(x.head, x.set.ByHost, nil).Fields {
			if isMade(l) {
				q.Fields = append(q.Fields, l)
			}
		}
	}
	k := x.set.Key.KeyOf(x.scheme, x.host, q, "")
	if x.h.trusting && x.h.clientHost { // which Host says, where a proxy has asked for another host than its client
		if host := field.NormalAuthority("", x.head.Host); host != x.host {
			k += "\nv:" + strconv.Itoa(len(host)) + ":" + host
		}
	}
	return k
}

// hopFields reports whether a request's Connection names fields of its own, and
// not just what concerns the connection.
func hopFields(fields field.Lines) bool {
	for i := range fields {
		if fields[i].Name != "Connection" {
			continue
		}
		for name := range field.Members([]string{fields[i].Value}) {
			switch strings.ToLower(name) {
			case "close", "keep-alive", "te", "upgrade":
			default:
				return true
			}
		}
	}
	return false
}
