package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/internal/route/site"
	"millrace/internal/wire/send"
)

// The same host and path are different things on the plain and the TLS port.
func TestPlainAndSecureNeverMix(t *testing.T) {
	m := meter.New()
	job := m.Job("test")
	r := start(t, plan{
		meters: m,
		plain:  everyHost(1, offering(page("plain\n"), lane.Rule{}), job),
		secure: everyHost(2, offering(page("secure\n"), lane.Rule{}), job),
	})
	for range 3 {
		for transport, want := range map[string]string{"tcp": "plain\n", "unix": "plain\n", "tls": "secure\n"} {
			if got := r.dial(t, transport).get("/"); got != want {
				t.Errorf("%s: %q", transport, got)
			}
		}
	}
	servertest.Eventually(t, "the lane has answered", func() bool { return r.fast() >= 6 })
}

func TestRedirectBesideTLS(t *testing.T) {
	m := meter.New()
	job := m.Job("test")
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://a.example/", http.StatusPermanentRedirect)
	})
	r := start(t, plan{meters: m, plain: everyHost(1, redirect, job), secure: everyHost(2, newPages(), job)})
	r.teach(t, "tls", "/hot")
	secure, plain := r.dial(t, "tls"), r.dial(t, "tcp")
	for range 3 {
		if secure.get("/hot") != smallBody {
			t.Error("TLS does not serve the page")
		}
		plain.write(request("GET", "/hot"))
		if resp, _ := plain.answer("GET"); resp.StatusCode != http.StatusPermanentRedirect {
			t.Errorf("plain: %s", resp.Status)
		}
	}
}

func TestSitesByHost(t *testing.T) {
	m := meter.New()
	job := m.Job("test")
	table := site.NewTable()
	for i, name := range []string{"a.example", "b.example"} {
		table.Add(site.New(uint64(i+1), []*site.Route{{Pattern: "/", Handler: offering(page("this is "+name+"\n"), lane.Rule{}), Job: job}}), []string{name})
	}
	r := start(t, plan{meters: m, plain: table, secure: table})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		for range 3 {
			for host, want := range map[string]string{
				"a.example": "this is a.example\n", "b.example": "this is b.example\n",
				"A.EXAMPLE": "this is a.example\n", "b.example:80": "this is b.example\n", "a.example.": "this is a.example\n",
				"c.example": "", "a.example.c": "", "[::1]": "", "127.0.0.1:80": "", "xa.example": "",
			} {
				c.write("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
				resp, body := c.answer("GET")
				if want != "" && (resp.StatusCode != 200 || body != want) || want == "" && resp.StatusCode != 404 {
					t.Errorf("%s: %s, %q", host, resp.Status, body)
				}
			}
		}
	})
	if r.fast() == 0 {
		t.Error("the lane answered nothing")
	}
}

// A reload that denies a hot path holds at once, on open connections too.
func TestReloadDenies(t *testing.T) {
	r := start(t, plan{})
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "denied", http.StatusForbidden) })
	clients := map[string]*client{}
	for _, transport := range transports {
		c := r.dial(t, transport)
		c.get("/hot")
		c.get("/hot")
		clients[transport] = c
	}
	r.setup.Plain, r.setup.Secure = everyHost(3, deny, r.job), everyHost(4, deny, r.job)
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	for transport, c := range clients {
		for range 3 {
			c.write(request("GET", "/hot"))
			if resp, _ := c.answer("GET"); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s after the reload", transport, resp.Status)
			}
		}
	}
	if n := r.meters.LaneEntries.Load(); n != 0 {
		t.Errorf("%d answers of sites that are gone are held", n)
	}
}

// What was read before a change is never offered after it.
func TestVoidWhileAnOfferIsUnderWay(t *testing.T) {
	var gen lane.Generation
	version, stop, goOn := "old\n", make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := gen.Now()
		a := page(version)
		if r.URL.RawQuery == "stop" {
			stop <- struct{}{}
			<-goOn
		}
		lane.Offer(r, a, lane.Rule{Version: read})
		send.Serve(w, r, a)
	})
	r := start(t, plan{handler: h})
	late, c := r.dial(t, "tcp"), r.dial(t, "tcp")
	late.write(request("GET", "/?stop"))
	<-stop
	version = "new version\n"
	gen.Invalidate()
	goOn <- struct{}{}
	if _, body := late.answer("GET"); body != "old\n" {
		t.Errorf("the late one got %q", body)
	}
	for range 3 {
		if got := c.get("/"); got != version {
			t.Errorf("after the change came %q", got)
		}
	}
	servertest.Eventually(t, "the lane answers", func() bool { return r.fast() >= 2 })
	version = "third\n"
	gen.Invalidate()
	if got := c.get("/"); got != version {
		t.Errorf("after the second change came %q", got)
	}
}

func TestRequestTellsItsTransport(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%t %s %s", r.TLS != nil && r.TLS.HandshakeComplete, r.RemoteAddr, r.Proto)
	})
	r := start(t, plan{handler: h})
	for transport, want := range map[string]string{"tcp": "false", "unix": "false", "tls": "true"} {
		c := r.dial(t, transport)
		remote := c.LocalAddr().String()
		if transport == "unix" {
			remote = "@"
		}
		if got := c.get("/"); got != want+" "+remote+" HTTP/1.1" {
			t.Errorf("%s: %q, want TLS %s from %s", transport, got, want, remote)
		}
	}
	resp, body := r.h2Get(t, "/")
	if resp.ProtoMajor != 2 || !strings.HasPrefix(body, "true 127.0.0.1:") {
		t.Errorf("HTTP/2: %s, %q", resp.Proto, body)
	}
}

// h2Get asks over HTTP/2.
func (r *rig) h2Get(tb testing.TB, path string) (*http.Response, string) {
	tb.Helper()
	tr := &http.Transport{TLSClientConfig: r.clientTLS.Clone(), ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: patience}).Get("https://" + r.secure + path)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp, string(body)
}

// The same answers on all transports and protocols, hot or not.
func TestProtocolMatrix(t *testing.T) {
	r := start(t, plan{})
	volatile := []string{"Date"}
	for _, path := range []string{"/hot", pathBig, pathHuge, "/coding", "/slow", "/nowhere", "/silent", "//hot"} {
		resp, body := r.h2Get(t, path)
		want := fmt.Sprint(resp.StatusCode, headersBut(resp.Header, volatile), len(body))
		if path == "//hot" {
			continue // the client has followed the redirect
		}
		overAll(t, func(t *testing.T, transport string) {
			for range 2 {
				c := r.dial(t, transport)
				c.write(strings.Replace(request("GET", path), "a.example", r.secure, 1))
				resp, body := c.answer("GET")
				if got := fmt.Sprint(resp.StatusCode, headersBut(resp.Header, volatile), len(body)); got != want && path != "/slow" && path != "/coding" {
					t.Errorf("%s: %s\nover HTTP/2: %s", path, got, want)
				}
			}
		})
	}
}

func headersBut(h http.Header, without []string) http.Header {
	h = h.Clone()
	for _, name := range without {
		h.Del(name)
	}
	return h
}

// Both lanes log and count alike.
func TestAccessLogOfBothLanes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := accesslog.Open(accesslog.Options{Format: "combined", File: path}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, plan{access: log})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		for range 2 {
			for _, method := range []string{"GET", "HEAD"} {
				for _, cond := range []string{"DNT: 1", `If-None-Match: "13"`} {
					c.write(request(method, "/hot?q=1", "User-Agent: agent", "Referer: http://b.example/", cond))
					c.answer(method)
				}
			}
		}
		_ = c.Close()
	})
	r.cancel()
	if err := r.wait(); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(string(text), "[]")), "\n")
	if len(lines) != 24 || r.fast()+r.slow() != 24 || r.fast() < 18 {
		t.Fatalf("%d lines, %d fast, %d slow; want 24 lines of 24 requests", len(lines), r.fast(), r.slow())
	}
	seen := map[string]int{}
	for _, l := range lines {
		seen[strings.TrimPrefix(strings.TrimPrefix(l, "127.0.0.1"), "-")]++
	}
	for line, n := range map[string]int{
		`"GET /hot?q=1 HTTP/1.1" 200 13`: 6, `"GET /hot?q=1 HTTP/1.1" 304 0`: 6,
		`"HEAD /hot?q=1 HTTP/1.1" 200 0`: 6, `"HEAD /hot?q=1 HTTP/1.1" 304 0`: 6,
	} {
		full := ` - - [] ` + line + ` "http://b.example/" "agent"`
		if seen[full] != n {
			t.Errorf("%d times %s, want %d; all: %v", seen[full], full, n, seen)
		}
	}
	if got := r.job.Fast.Bytes() + r.job.Through.Bytes() + r.job.Slow.Bytes(); got != 6*13 {
		t.Errorf("%d bytes are counted, want %d", got, 6*13)
	}
}
