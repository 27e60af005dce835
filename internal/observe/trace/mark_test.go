package trace

import (
	"net/http"
	"testing"
	"time"

	"millrace/internal/wire/field"
)

// TestMark: a request that is followed late has told others the same as one that is
// followed from the start.
func TestMark(t *testing.T) {
	h := http.Header{"Traceparent": {example}, "Tracestate": {"a=1"}, "X-Request-Id": {"mine"}}
	for _, sampled := range []*Options{nil, {}, sample(0), sample(1)} {
		for _, ids := range []*IDOptions{nil, {}} {
			for _, proxy := range []bool{false, true} {
				tr := New(sampled, ids, true)
				fields := field.Of(h)
				m := tr.Mark(&fields, proxy)
				told := http.Header{}
				for _, l := range m.Fields(nil) {
					if l.Value != "" {
						told[l.Name] = []string{l.Value}
					}
				}
				r := new(Request)
				tr.Begin(r, time.Now(), &m)
				out := http.Header{}
				r.Inject(out)
				for _, name := range []string{"Traceparent", "Tracestate", "X-Request-Id"} {
					if told.Get(name) != out.Get(name) {
						t.Errorf("%+v, %v, proxy %v: %s is %q, then %q", sampled, ids != nil, proxy, name, told.Get(name), out.Get(name))
					}
				}
				if r.ID() != m.ID || r.Sampled() != m.Exported() || (ids != nil && proxy) != (m.ID == "mine") {
					t.Errorf("%+v, %v, proxy %v: %q and %q, %v and %v", sampled, ids != nil, proxy, r.ID(), m.ID, r.Sampled(), m.Exported())
				}
				other := begun(tr, h, proxy) // continues the same only for who is believed
				out = http.Header{}
				other.Inject(out)
				if (out.Get("Traceparent") == told.Get("Traceparent")) != (sampled == nil || proxy && !m.Exported()) {
					t.Errorf("%+v, proxy %v: %q and %q", sampled, proxy, out, told)
				}
			}
		}
	}
}
