package tls

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/trial"
)

const text = "a page"

// Full handshakes are full, and resumed ones are resumed; a server without tickets is
// no figure for these, and another page is none at all.
func TestShake(t *testing.T) {
	for _, tickets := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) }))
		s.EnableHTTP2, s.TLS = true, &tls.Config{SessionTicketsDisabled: !tickets}
		s.StartTLS()
		defer s.Close()
		slot := trial.TaskSlot{URL: s.URL + "/", Window: func(bool) {}}
		for _, protocol := range []load.Protocol{load.HTTP1, load.HTTP2} {
			for _, resumed := range []bool{false, true} {
				w := experiment.Workload{Protocol: protocol, Resumed: resumed, Count: 3 * clients}
				got, err := shake(t.Context(), slot, w, []byte(text))
				if resumed && !tickets {
					if !errors.Is(err, errResumed) {
						t.Errorf("%s without tickets: %v", protocol, err)
					}
				} else if err != nil || got.Done != 3*clients {
					t.Errorf("%s, resumed %v: %+v, %v", protocol, resumed, got, err)
				}
				if _, err := shake(t.Context(), slot, w, []byte("another")); !errors.Is(err, experiment.ErrAnswer) {
					t.Errorf("another page: %v", err)
				}
			}
		}
	}
}
