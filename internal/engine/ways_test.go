package engine_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// protocols are what clients speak: HTTP/1.1, the same with TLS, HTTP/2 and HTTP/3.
var protocols = []string{"h1", "tls", "h2", "h3"}

// way is a client that asks a server by one protocol.
type way struct {
	*testing.T
	protocol string
	off      bool // without the lane
	client   *http.Client
	base     string // where the server is, as in https://127.0.0.1:443
	conf     *tls.Config
}

// everyWay runs a test against a server with these sites by every protocol, with the
// fast lane and without.
func everyWay(t *testing.T, sites string, test func(w *way)) {
	t.Helper()
	everyWayWith(t, sites, func(*config.Config) {}, test)
}

// everyWayWith is everyWay with a config that is amended.
func everyWayWith(t *testing.T, sites string, amend func(*config.Config), test func(w *way)) {
	t.Helper()
	cert, key, pool := certificate(t)
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		cfg := parse(t, fmt.Sprintf("listen: 127.0.0.1:0\ntls: {listen: [\"127.0.0.1:0\"], cert: %q, key: %q, redirect: false, http3: true}\nlane: {off: %v}\n%s", cert, key, off, sites))
		amend(cfg)
		srv := start(t, cfg)
		for _, protocol := range protocols {
			t.Run(protocol, func(t *testing.T) {
				w := wayTo(t, protocol, srv, &tls.Config{RootCAs: pool, ServerName: "localhost"})
				w.off = off
				test(w)
			})
		}
	})
}

// wayTo is a client of a server that runs; conf is for what is not plain.
func wayTo(t *testing.T, protocol string, srv *engine.Server, conf *tls.Config) *way {
	t.Helper()
	scheme := "https://"
	if protocol == "h1" {
		scheme = "http://"
	}
	addrs := srv.Addrs()
	i := slices.IndexFunc(addrs, func(a string) bool { return strings.HasPrefix(a, scheme) })
	if i < 0 {
		t.Fatalf("no way by %s: the server has %v", protocol, addrs)
	}
	return (&way{T: t, protocol: protocol, base: addrs[i], conf: conf}).another()
}

// another is another client, which shares no connection with the first.
func (w *way) another() *way {
	w = &way{T: w.T, protocol: w.protocol, off: w.off, base: w.base, conf: w.conf}
	conf := w.conf.Clone() // http.Transport writes into its own
	w.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if w.protocol == "h3" {
		w.client.Transport = &http3.Transport{DisableCompression: true, TLSClientConfig: conf}
	} else {
		w.client.Transport = &http.Transport{DisableCompression: true, TLSClientConfig: conf, ForceAttemptHTTP2: w.protocol == "h2", ExpectContinueTimeout: time.Second}
	}
	w.Cleanup(w.close)
	return w
}

// close closes its connections.
func (w *way) close() {
	if quic, ok := w.client.Transport.(*http3.Transport); ok {
		_ = quic.Close()
		return
	}
	w.client.CloseIdleConnections()
}

// takes reports whether case n of many thousands is one for this way: HTTP/1.1 and
// HTTP/2 take all of them with the lane, the others a fourth each.
func (w *way) takes(n int) bool {
	return !w.off && (w.protocol == "h1" || w.protocol == "h2") || n%len(protocols) == slices.Index(protocols, w.protocol)
}

// http1 reports whether a test may write its own bytes, into a connection from dial.
func (w *way) http1() bool { return w.protocol == "h1" || w.protocol == "tls" }

// dial connects for HTTP/1.1.
func (w *way) dial() net.Conn {
	w.Helper()
	nc := net.Conn(dial(w.T, w.base))
	if w.protocol == "tls" {
		conf := w.conf.Clone()
		conf.NextProtos = []string{"http/1.1"}
		nc = tls.Client(nc, conf)
	}
	return nc
}

// ask sends a request with these fields, and returns the answer with its body.
func (w *way) ask(method, target, body string, head ...string) (*http.Response, string) {
	w.Helper()
	h := http.Header{}
	for i := 0; i < len(head); i += 2 {
		h.Add(head[i], head[i+1])
	}
	res, got, err := w.try(method, target, body, h)
	if err != nil {
		w.Fatalf("%s %s: %v", method, target, err)
	}
	return res, got
}

// try is ask for what may fail, and for fields as they are spelled.
func (w *way) try(method, target, body string, h http.Header) (*http.Response, string, error) {
	var upload io.Reader
	if body != "" {
		upload = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.base+target, upload)
	if err != nil {
		return nil, "", err
	}
	r.Host = h.Get("Host")
	if h != nil {
		r.Header = h.Clone()
		r.Header.Del("Host")
	}
	return w.send(r)
}

// send is try for a request of the test's own.
func (w *way) send(r *http.Request) (*http.Response, string, error) {
	res, err := w.client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if want := map[string]int{"h2": 2, "h3": 3}[w.protocol]; res.ProtoMajor != max(want, 1) {
		return nil, "", fmt.Errorf("by %s the answer is %s", w.protocol, res.Proto)
	}
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}
