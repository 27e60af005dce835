package engine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// longTests names a variable with the time that TestCertificatesAreRenewed goes on
// for, and that lets the tests run that take minutes: 10m for ten lifetimes.
const longTests = "MILLRACE_TEST_CERTIFICATES"

// openVisitors are how many connections are open while a certificate is renewed.
const openVisitors = 1000

// Certificates are renewed with 1,000 connections open, under load, without a
// failed request on these or on new connections.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	least, _ := time.ParseDuration(os.Getenv(longTests))
	a := newAuthority(t, 60)
	dir := folder(t, map[string]string{"index.html": "page"})
	yaml := a.config(t, "", fmt.Sprintf("{hosts: [renewed.example], routes: {/: {static: {root: %s}}}}", dir))
	srv, _ := startLoud(t, yaml)
	first := a.eventuallyVisited(t, "renewed.example", anyCertificate)
	if err := srv.Reload(parse(t, strings.Replace(yaml, "renewed.example]", "renewed.example, b.example]", 1))); err != nil {
		t.Fatal(err)
	}
	a.eventuallyVisited(t, "b.example", anyCertificate)
	var asked atomic.Int64
	stop := make(chan struct{})
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			var all []*tls.Conn
			for range openVisitors / 4 {
				nc, err := (&tls.Dialer{Config: &tls.Config{ServerName: "renewed.example", RootCAs: a.issued}}).DialContext(t.Context(), "tcp", "127.0.0.1"+a.tls)
				if err != nil {
					t.Errorf("opening: %v", err)
					return
				}
				all = append(all, nc.(*tls.Conn))
			}
			defer func() {
				for _, c := range all {
					_ = c.Close()
				}
			}()
			request, answer := []byte("GET / HTTP/1.1\r\nHost: renewed.example\r\n\r\n"), make([]byte, 4096)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				c := all[n%len(all)]
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				if _, err := c.Write(request); err != nil {
					t.Errorf("an open connection: %v", err)
					return
				}
				got, err := c.Read(answer)
				if err != nil || !strings.HasPrefix(string(answer[:got]), "HTTP/1.1 200") {
					t.Errorf("an open connection: %q, %v", answer[:got], err)
					return
				}
				asked.Add(1)
			}
		})
	}
	began, renewed, last := time.Now(), 0, first.SerialNumber
	for renewed == 0 || time.Since(began) < least {
		cert, err := a.visit(t, "renewed.example")
		if err != nil {
			t.Fatalf("a visitor saw the renewal: %v", err)
		}
		if cert.SerialNumber.Cmp(last) != 0 {
			renewed, last = renewed+1, cert.SerialNumber
		}
		asked.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	visitors.Wait()
	t.Logf("%d renewals, %d requests, %d orders in %v", renewed, asked.Load(), a.orders.Load(), time.Since(began).Round(time.Second))
}

// While the CA is down the old certificate is served until its end, and a warning
// comes in time; when it is back, a certificate comes by itself.
func TestCADown(t *testing.T) {
	if os.Getenv(longTests) == "" {
		t.Skip("takes minutes: set " + longTests)
	}
	const life = 60
	a := newAuthority(t, life)
	dir := folder(t, map[string]string{"index.html": "page"})
	_, l := startLoud(t, a.config(t, "", fmt.Sprintf("{hosts: [a.example], routes: {/: {static: {root: %s}}}}", dir)))
	first := a.eventuallyVisited(t, "a.example", anyCertificate)
	a.down.Store(true)
	warned := make(chan time.Time, 1)
	go func() {
		l.waitFor(t, "was not renewed; the old one is used until its end")
		warned <- time.Now()
	}()
	for time.Now().Before(first.NotAfter.Add(-time.Second)) {
		if cert, err := a.visit(t, "a.example"); err != nil || cert.SerialNumber.Cmp(first.SerialNumber) != 0 {
			t.Fatalf("with the CA down: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if at := <-warned; at.After(first.NotAfter) {
		t.Error("the warning came too late")
	}
	time.Sleep(2 * life * time.Second)
	if status, _ := dial(t, "http://127.0.0.1"+a.http).get("a.example", "/"); status != 308 {
		t.Errorf("plain HTTP answers with %d", status)
	}
	a.down.Store(false)
	began := time.Now()
	for {
		if cert, err := a.visit(t, "a.example"); err == nil {
			t.Logf("a new certificate after %v, until %v", time.Since(began).Round(time.Second), cert.NotAfter)
			return
		}
		if time.Since(began) > 11*time.Minute {
			t.Fatal("no new certificate after the CA is back")
		}
		time.Sleep(time.Second)
	}
}

// The machine's clock jumps, while the program runs. Its clock is changed by
// building it with another package time, which takes minutes: TestClockJumps, in
// certificates_clock_test.go, is the test.
func TestClockJumpsBuilt(t *testing.T) {
	if os.Getenv(longTests) == "" {
		t.Skip("takes minutes: set " + longTests)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const read = "sec, nsec, mono := runtimeNow()\n"
	if n := strings.Count(string(text), read); n == 0 {
		t.Fatal("time.Now reads the clock in another way now: adapt this test")
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "time.go")
	write(t, changed, strings.ReplaceAll(string(text), read, read+"\tsec += Jumped.Load()\n")+"\n// Jumped is by how many seconds the clock has jumped.\nvar Jumped jumped\n")
	more := filepath.Join(dir, "jumped.go")
	write(t, more, "package time\n\nimport \"internal/runtime/atomic\"\n\ntype jumped struct{ atomic.Int64 }\n")
	overlay := filepath.Join(dir, "overlay.json")
	write(t, overlay, fmt.Sprintf(`{"Replace": {%q: %q, %q: %q}}`, original, changed, filepath.Join(filepath.Dir(original), "jumped.go"), more))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-tags", "clockjump", "-run", "^TestClockJumps$", "-v", ".")
	cmd.WaitDelay = time.Minute
	text, err = cmd.CombinedOutput()
	t.Logf("%s", text)
	if err != nil || !strings.Contains(string(text), "--- PASS: TestClockJumps") {
		t.Errorf("%v", err)
	}
}

// A CA that asks for a renewal now (ARI, RFC 9773) gets an order, once, with what
// it replaces.
func TestARI(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, 3600)
	a.renewNow.Store(true)
	dir := folder(t, map[string]string{"index.html": "page"})
	_, l := startLoud(t, a.config(t, "", fmt.Sprintf("{hosts: [ari.example], routes: {/: {static: {root: %s}}}}", dir)))
	first := a.eventuallyVisited(t, "ari.example", anyCertificate)
	a.eventuallyVisited(t, "ari.example", func(c *x509.Certificate) bool { return c.SerialNumber.Cmp(first.SerialNumber) != 0 })
	a.renewNow.Store(false)
	l.waitFor(t, "ari.example has a new certificate")
}

// Answers of a CA that mean nothing are told, and the site goes on.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]http.HandlerFunc{
		"HTML":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!doctype html><p>hello") },
		"nothing":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusBadGateway) },
		"no order": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "{}")
		},
		"a refusal": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t, 3600)
			a.wrong.Store(&answer)
			dir := folder(t, map[string]string{"index.html": "page"})
			_, l := startLoud(t, a.config(t, "", fmt.Sprintf("{hosts: [wrong.example], routes: {/: {static: {root: %s}}}}", dir)))
			l.waitFor(t, "there is no certificate for wrong.example yet; it is tried again")
			if _, err := a.visit(t, "wrong.example"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("%v", err)
			}
			if status, _ := dial(t, "http://127.0.0.1"+a.http).get("wrong.example", "/"); status != 308 {
				t.Errorf("plain HTTP answers with %d", status)
			}
		})
	}
}

// A thousand names of one site get their certificates, each once.
func TestThousandNames(t *testing.T) {
	t.Parallel()
	const names = 1000
	storage := filepath.Join(t.TempDir(), "certs")
	dir := folder(t, map[string]string{"index.html": "page"})
	var hosts []string
	for i := range names {
		hosts = append(hosts, fmt.Sprintf("n%d.example", i))
	}
	port := freePort(t)
	yaml := fmt.Sprintf("listen: []\ntls: {listen: '127.0.0.1:%d', auto: {ca: internal, storage: %s}}\nsites: [{hosts: [%s], routes: {/: {static: {root: %s}}}}]", port, storage, strings.Join(hosts, ", "), dir)
	began := time.Now()
	srv, _ := startLoud(t, yaml)
	a := &authority{tls: fmt.Sprint(":", port), issued: x509.NewCertPool()}
	servertest.Eventually(t, "the root is there", func() bool {
		text, err := os.ReadFile(filepath.Join(storage, "internal", "root.pem"))
		return err == nil && a.issued.AppendCertsFromPEM(text)
	})
	for _, host := range hosts {
		a.eventuallyVisited(t, host, func(c *x509.Certificate) bool { return c.DNSNames[0] == host })
	}
	t.Logf("%d names after %v", names, time.Since(began).Round(100*time.Millisecond))
	reload(t, srv, parse(t, yaml))
	if _, err := a.visit(t, hosts[names-1]); err != nil {
		t.Errorf("after a reload: %v", err)
	}
}

// A CA's URL that leads to a page is told before anything is served, and a reload
// with it leaves the old config serving; so does a reload with files that do not
// fit. A storage that cannot be written says what to type.
func TestBadCertificateConfigs(t *testing.T) {
	page := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/json":
			_, _ = io.WriteString(w, `{"hello": 1}`)
		case "/none":
			http.NotFound(w, r)
		default:
			_, _ = io.WriteString(w, "<!doctype html><p>Welcome")
		}
	}))
	defer page.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	write(t, roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: page.Certificate().Raw})))
	dir := folder(t, map[string]string{"index.html": "page", "file": "not a folder"})
	cert, key, _ := certificate(t)
	_, foreign, _ := certificate(t)
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	site := fmt.Sprintf("sites: [{routes: {/: {static: {root: %s}}}}]", dir)
	good := fmt.Sprintf("listen: %s\n%s", addr, site)
	srv := start(t, parse(t, good))
	auto := func(what string) string {
		return fmt.Sprintf("listen: %s\ntls: {listen: 127.0.0.1:0, redirect: false, auto: {hosts: [a.example], storage: %s, %s}}\n%s", addr, filepath.Join(t.TempDir(), "certs"), what, site)
	}
	for want, yaml := range map[string]string{
		"answers with a page (text/html; charset=utf-8), and not with an ACME directory": auto(fmt.Sprintf("ca: '%s/', ca_roots: %s", page.URL, roots)),
		"answers with JSON of another kind":                                              auto(fmt.Sprintf("ca: '%s/json', ca_roots: %s", page.URL, roots)),
		"answers with 404 Not Found":                                                     auto(fmt.Sprintf("ca: '%s/none', ca_roots: %s", page.URL, roots)),
		"name a folder with \"storage\"":                                                 strings.Replace(auto("ca: internal"), "certs,", "certs/../../../../../../../../../"+dir+"/file/x,", 1),
	} {
		cfg := parse(t, yaml)
		if s, err := engine.New(cfg, engine.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			if err == nil {
				_ = s.Close()
			}
		}
		if err := srv.Reload(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the old config goes on serving") {
			t.Errorf("a reload: %v, want %q", err, want)
		}
		if status, body := dial(t, "http://"+addr).get("a", "/"); status != 200 || body != "page" {
			t.Errorf("after it: %d %q", status, body)
		}
	}
	// The files change between the check of the config and the reload.
	cfg := parse(t, fmt.Sprintf("listen: %s\ntls: {listen: 127.0.0.1:0, cert: %s, key: %s}\n%s", addr, cert, key, site))
	cfg.TLS.Key = foreign
	if err := srv.Reload(cfg); err == nil || !strings.Contains(err.Error(), "private key does not match public key") {
		t.Errorf("another key: %v", err)
	}
	if status, _ := dial(t, "http://"+addr).get("a", "/"); status != 200 {
		t.Errorf("after it: %d", status)
	}
	// A CA that does not answer is no mistake.
	down := httptest.NewTLSServer(http.NotFoundHandler())
	down.Close()
	s, err := engine.New(parse(t, strings.Replace(auto("ca: '"+down.URL+"'"), "listen: "+addr, "listen: []", 1)), engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_ = s.Run(ctx)
}

// A key that everybody can read is warned of, and served.
func TestOpenKey(t *testing.T) {
	cert, key, _ := certificate(t)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"index.html": "page"})
	_, l := startLoud(t, fmt.Sprintf("listen: []\ntls: {listen: 127.0.0.1:0, cert: %s, key: %s}\nsites: [{routes: {/: {static: {root: %s}}}}]", cert, key, dir))
	l.waitFor(t, "chmod 600 "+key)
}

// An address gets a certificate as a name does, for clients that send no name,
// and the CA is asked for the profile that is configured.
func TestAddressCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, 3600)
	dir := folder(t, map[string]string{"index.html": "page"})
	startLoud(t, a.config(t, ", profile: default", fmt.Sprintf("{hosts: [127.0.0.1], routes: {/: {static: {root: %s}}}}", dir)))
	if cert := a.eventuallyVisited(t, "127.0.0.1", anyCertificate); cert.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("the certificate is for %v", cert.IPAddresses)
	}
}

// Where one CA fails the next is asked.
func TestCAsInTurn(t *testing.T) {
	t.Parallel()
	a, broken := newAuthority(t, 3600), newAuthority(t, 3600)
	broken.limited.Store(true)
	dir := folder(t, map[string]string{"index.html": "page"})
	text, err := os.ReadFile(broken.roots)
	if err != nil {
		t.Fatal(err)
	}
	both, err := os.ReadFile(a.roots)
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.roots, string(both)+string(text))
	yaml := a.config(t, "", fmt.Sprintf("{hosts: [turn.example], routes: {/: {static: {root: %s}}}}", dir))
	startLoud(t, strings.Replace(yaml, "ca: "+a.dir, "ca: ['"+broken.dir+"', '"+a.dir+"']", 1))
	a.eventuallyVisited(t, "turn.example", anyCertificate)
}

// A CA that serves its customers alone gives a certificate to the account that the
// config binds to one of them (RFC 8555, 7.3.4); without, or with another secret,
// it is told what to write.
func TestExternalAccount(t *testing.T) {
	t.Parallel()
	const id, secret, wrong = "customer-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W", "HjudV5qnbreN-n9WyFSH-t4HXuEx_XFen45zuxY-G1h6fr74V3cUM_dVlwQZBWmc"
	for what, c := range map[string]struct{ config, told string }{
		"bound":          {", external_account: {id: " + id + ", secret: " + secret + "}", ""},
		"not bound":      {"", "this CA wants an account that exists: add external_account with its id and secret"},
		"another secret": {", external_account: {id: " + id + ", secret: " + wrong + "}", "the CA refuses the account: compare id and secret of external_account"},
		"unknown":        {", external_account: {id: customer-2, secret: " + secret + "}", "the CA refuses the account: compare id and secret of external_account"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a := newAuthorityFor(t, 3600, true)
			if err := a.accounts.AddExternalAccountKeyByID(id, secret); err != nil {
				t.Fatal(err)
			}
			dir := folder(t, map[string]string{"index.html": "page"})
			_, l := startLoud(t, a.config(t, c.config, fmt.Sprintf("{hosts: [account.example], routes: {/: {static: {root: %s}}}}", dir)))
			if c.told == "" {
				a.eventuallyVisited(t, "account.example", anyCertificate)
				return
			}
			l.waitFor(t, "there is no certificate for account.example yet")
			l.waitFor(t, c.told)
			if n := a.orders.Load(); n != 0 {
				t.Errorf("%d orders", n)
			}
		})
	}
}

// TestEmptiedRedis: a Redis that has lost the certificates gets them back from those who have
// them, so that a machine which starts then has the same one, and none is ordered.
func TestEmptiedRedis(t *testing.T) {
	for name, empty := range map[string]func(s *snapshots){
		"flushed": func(s *snapshots) {
			if answer, err := s.ask("FLUSHALL"); err != nil || answer != "+OK" {
				t.Fatalf("FLUSHALL: %s, %v", answer, err)
			}
		},
		"restarted": func(s *snapshots) { s.Kill(); s.run() },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t, 3600)
			shared := startSnapshots(t)
			dir := folder(t, map[string]string{"index.html": "page"})
			yaml := a.config(t, "", fmt.Sprintf("{hosts: [a.example], routes: {/: {static: {root: %s}}}}", dir))
			before, rest, _ := strings.Cut(yaml, "storage: ")
			_, rest, _ = strings.Cut(rest, "}")
			yaml = before + "storage: 'redis://127.0.0.1:" + shared.port + "', storage_secret: " + strings.Repeat("secret", 6) + "}" + rest
			machine := func(first bool) *authority {
				t.Setenv("XDG_DATA_HOME", t.TempDir())
				m := a
				text := yaml
				if !first {
					address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
					text = strings.Replace(strings.Replace(text, "listen: 127.0.0.1"+a.tls, "listen: "+address, 1), "listen: 127.0.0.1"+a.http, "listen: 127.0.0.1:0", 1)
					m = &authority{tls: strings.TrimPrefix(address, "127.0.0.1"), issued: a.issued}
				}
				startLoud(t, text)
				return m
			}
			one := machine(true)
			want := one.eventuallyVisited(t, "a.example", anyCertificate).SerialNumber
			two := machine(false)
			two.eventuallyVisited(t, "a.example", anyCertificate)
			empty(shared)
			for i, m := range []*authority{machine(false), one, two} {
				if got := m.eventuallyVisited(t, "a.example", anyCertificate).SerialNumber; got.Cmp(want) != 0 {
					t.Errorf("machine %d has the certificate %v, not %v", i, got, want)
				}
			}
			if n := a.orders.Load(); n != 1 {
				t.Errorf("%d orders for one name", n)
			}
		})
	}
}
