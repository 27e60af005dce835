package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The other protocols give the same kind of result, by the other path.
func TestRunByGoroutines(t *testing.T) {
	for _, p := range []Protocol{HTTP1, HTTP2} {
		t.Run(string(p), func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.Proto, r.URL.Path)
			}))
			s.EnableHTTP2 = true
			s.StartTLS()
			defer s.Close()
			c := Config{URL: s.URL, Paths: []string{"/a", "/bb"}, Protocol: p, Insecure: true, Connections: 3, Requests: 100}
			if p == HTTP2 {
				c.Streams = 4
			}
			r := exactly(t, c)
			if r.Path != "goroutines" || r.Protocol != p || r.Status[200] != 100 || r.Connect.Count() != 3 || r.CPU <= 0 {
				t.Errorf("%s, %s, %v, %d connections, CPU %v", r.Path, r.Protocol, r.Status, r.Connect.Count(), r.CPU)
			}
			if a := r.Answers[1]; a.Path != "/bb" || a.Length != 11 || a.Hash == 0 || a.Status != 200 {
				t.Errorf("answer: %+v", a)
			}
		})
	}
}
