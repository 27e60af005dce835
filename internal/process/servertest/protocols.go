package servertest

// This file serves handlers by net/http over each protocol that a client may speak.

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Protocols are what a handler is tested over: HTTP/1.1, the same with TLS, and HTTP/2.
// Serve knows "h2c" as well, which is HTTP/2 without TLS.
func Protocols() []string { return []string{"h1", "tls", "h2"} }

// OverProtocols runs a test for each of them.
func OverProtocols(t *testing.T, test func(t *testing.T, protocol string)) {
	t.Helper()
	for _, protocol := range Protocols() {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

// EachProtocol runs a test of a handler for each of them.
func EachProtocol(t *testing.T, h http.Handler, test func(t *testing.T, f *Front)) {
	t.Helper()
	OverProtocols(t, func(t *testing.T, protocol string) { test(t, Serve(t, protocol, h)) })
}

// WithLaneAndWithout runs a test with the fast lane and, where off is true, without.
func WithLaneAndWithout(t *testing.T, test func(t *testing.T, off bool)) {
	t.Helper()
	for _, name := range []string{"lane", "no-lane"} {
		t.Run(name, func(t *testing.T) { test(t, name == "no-lane") })
	}
}

// Front is a handler that is served over one protocol, with a client for it, which
// shows an answer as it came: not decompressed, and no redirect followed.
type Front struct {
	*httptest.Server
	Protocol string
}

// Serve serves a handler until the test ends. What amend changes is changed before the
// server starts.
func Serve(t testing.TB, protocol string, h http.Handler, amend ...func(*httptest.Server)) *Front {
	t.Helper()
	f := &Front{httptest.NewUnstartedServer(h), protocol}
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.EnableHTTP2 = protocol == "h2"
	if protocol == "h2c" {
		f.Config.Protocols = new(http.Protocols)
		f.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	for _, change := range amend {
		change(f.Server)
	}
	switch protocol {
	case "h1", "h2c":
		f.Start()
	case "tls", "h2":
		f.StartTLS()
	default:
		t.Fatalf("there is no protocol %q", protocol)
	}
	client := f.Client()
	client.Transport.(*http.Transport).DisableCompression = true
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		client.CloseIdleConnections()
		f.Close()
	})
	return f
}

// Ask sends a request with these fields, and returns the answer with its body.
func (f *Front) Ask(t testing.TB, method, target string, head ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.URL+target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Add(head[i], head[i+1])
	}
	return f.Do(t, r)
}

// Do is Ask for a request of the test's own.
func (f *Front) Do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := f.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	if (res.ProtoMajor == 2) != (f.Protocol == "h2") {
		t.Fatalf("over %s the answer is %s", f.Protocol, res.Proto)
	}
	return res, string(body)
}
