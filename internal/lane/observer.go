package lane

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"millrace/internal/wire/send"
)

// Observer decides about the offers of a job inside another program's handler. Middleware
// may stand between the two, which asks for a password, adds a header or compresses. So an
// offer is passed on only for a request that the program has called public, and only if
// exactly the offered answer was sent to the client, field by field.
//
// The job may run in another goroutine than the handler, and longer, as with
// http.TimeoutHandler: an offer that comes after Settle is dropped.
type Observer struct {
	mu      sync.Mutex
	public  bool         // the program says that everybody may have the answer
	settled bool         // no offer counts any more
	answer  *send.Answer // what was offered last
	rule    Rule
	seen    http.Header // the request's, as the job saw it
}

type observerKey struct{}

// Observe returns r for another program's handler. When that has returned, call Settle.
func Observe(r *http.Request) (*http.Request, *Observer) {
	// An answer to somebody who has signed in says nothing about what others may
	// have. The fields are looked at here, since middleware may remove them.
	w := &Observer{settled: len(r.Header["Authorization"])+len(r.Header["Cookie"]) > 0 ||
		r.TLS != nil && len(r.TLS.PeerCertificates) > 0}
	return r.WithContext(context.WithValue(r.Context(), observerKey{}, w)), w
}

// Public says that everybody may have the answer to r, where another program's handler
// serves it.
func Public(r *http.Request) {
	if w, ok := r.Context().Value(observerKey{}).(*Observer); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.public = true
	}
}

// observeOffer notes an offer. It returns true if r has an observer: then Offer must do
// nothing.
func observeOffer(r *http.Request, a *send.Answer, rule Rule) (watched bool) {
	w, ok := r.Context().Value(observerKey{}).(*Observer)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.public && !w.settled {
		w.answer, w.rule, w.seen = a, rule, r.Header
	}
	return true
}

// alsoByForeign is what answers of another program's handler vary on in any case: routers
// look at the host, and middleware adds fields for other origins.
var alsoByForeign = []string{"Host", "Origin"}

// Settle offers the answer to the lane if it was sent as the job has offered it. r is the
// request before Observe; status, header and the body's length are what was sent.
func (w *Observer) Settle(r *http.Request, status int, header http.Header, length int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = true
	a := w.answer
	if a == nil || r.Method != http.MethodGet || status != http.StatusOK || a.Code() != status || length != a.Size || !sent(header, a.Header) {
		return
	}
	if !listed(r.Header) {
		return
	}
	rule := w.rule
	for _, name := range rule.VaryOn {
		if !slices.Equal(r.Header.Values(name), w.seen.Values(name)) {
			return // middleware has changed what the answer depends on
		}
	}
	rule.VaryOn = slices.Concat(rule.VaryOn, alsoByForeign)
	rule.WithQuery, rule.strict, rule.Negotiated = true, true, false // middleware may look at the fields itself
	Offer(r, a, rule)
}

// listed reports whether each field has a name that the lane knows, and stands once: what
// middleware makes of others, the lane cannot tell.
func listed(h http.Header) bool {
	for name, values := range h {
		if id := lookupHeader([]byte(name)); id == hdrUnknown || id == hdrRefuse || len(values) > 1 {
			return false
		}
	}
	return true
}

// sent reports whether the fields that were sent are those of an answer, besides those
// that the server adds to all.
func sent(have, want http.Header) bool {
	own := func(name string) bool {
		switch name {
		case "Server", "Date", "Connection", "Alt-Svc":
			return true
		case "Content-Length": // Settle has compared the body's length
			return true
		}
		return false
	}
	for name, values := range have {
		if len(values) == 0 || own(name) {
			continue
		}
		if !slices.Equal(values, want[name]) {
			return false
		}
	}
	for name := range want {
		if len(have[name]) == 0 && !own(name) {
			return false
		}
	}
	return true
}
