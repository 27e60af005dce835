package lane

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"millrace/internal/send"
)

// Observer stands between the lane and a handler that is not ours. Something may
// be around the job in there: it asks for a password, adds a header, compresses.
// So no offer is taken but of a request that the program calls public, and only
// if what was sent to the client is the answer that was offered, field by field.
//
// The job may run in another goroutine than the handler, and go on after it, as
// in http.TimeoutHandler: an offer that is late is dropped.
type Observer struct {
	mu      sync.Mutex
	public  bool // the program says that everybody may have the answer
	settled bool
	answer  *send.Answer // that was offered last
	rule    Rule
	seen    http.Header // of the request, as the job had it
}

type observerKey struct{}

// Observe is r for a handler that is not ours. The witness must be settled.
func Observe(r *http.Request) (*http.Request, *Observer) {
	// An answer to somebody who has signed in says nothing about what others may
	// have. The fields are looked at here, since middleware may remove them.
	w := &Observer{settled: len(r.Header["Authorization"])+len(r.Header["Cookie"]) > 0 ||
		r.TLS != nil && len(r.TLS.PeerCertificates) > 0}
	return r.WithContext(context.WithValue(r.Context(), observerKey{}, w)), w
}

// Public lets offers made for r be taken, if a handler that is not ours answers it.
func Public(r *http.Request) {
	if w, ok := r.Context().Value(observerKey{}).(*Observer); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.public = true
	}
}

// observeOffer notes an offer, and reports whether r is watched: then the offer must not be
// taken elsewhere.
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

// alsoByForeign are what the answers of a handler that is not ours vary on in
// any case: routers look at the host, and fields for other origins are added
// where there is one.
var alsoByForeign = []string{"Host", "Origin"}

// Settle ends the request r as it came: status, header and length of the body
// are what was sent.
func (w *Observer) Settle(r *http.Request, status int, header http.Header, length int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settled = true
	a := w.answer
	if a == nil || r.Method != http.MethodGet || status != http.StatusOK || a.Code() != status || length != a.Size || !sent(header, a.Header) {
		return
	}
	rule := w.rule
	for _, name := range rule.VaryOn {
		if !slices.Equal(r.Header.Values(name), w.seen.Values(name)) {
			return // somebody has changed what the answer was chosen by
		}
	}
	rule.VaryOn = slices.Concat(rule.VaryOn, alsoByForeign)
	rule.WithQuery = true
	Offer(r, a, rule)
}

// sent reports whether the fields that were sent are those of an answer, but for
// what the server adds to all.
func sent(have, want http.Header) bool {
	own := func(name string) bool {
		switch name {
		case "Server", "Date", "Connection", "Alt-Svc":
			return true
		case "Content-Length": // the length of the body was compared; it may not stand here any more
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
