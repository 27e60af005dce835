package engine_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
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

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// authority is a CA that speaks ACME: Let's Encrypt's own for tests. It looks at
// every name at 127.0.0.1, at ports of its own. certmagic has one table of
// challenges for the whole process, by name: tests that run in parallel must ask
// for names of their own.
type authority struct {
	http, tls string // where it looks, as :PORT
	dir       string // its directory
	roots     string // a file with the root of its own HTTPS
	issued    *x509.CertPool
	orders    atomic.Int64
	down      atomic.Bool
	limited   atomic.Bool                      // it says that it has issued too much
	refusals  atomic.Int64                     // how often it has
	renewNow  atomic.Bool                      // it asks for renewals (ARI)
	wrong     atomic.Pointer[http.HandlerFunc] // answers orders instead
	records   *records
	accounts  *db.MemoryStore  // what it knows of its customers
	clock     func() time.Time // of visitors; nil: the machine's
}

// records are TXT records that a test has.
type records struct {
	mu  sync.Mutex
	txt map[string][]string
}

func (r *records) set(name string, values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.txt[name] = values
}

// newAuthority starts a CA whose certificates last for some seconds.
func newAuthority(t *testing.T, seconds uint64) *authority {
	t.Helper()
	return newAuthorityFor(t, seconds, false)
}

// newAuthorityFor starts one that may serve its customers alone.
func newAuthorityFor(t *testing.T, seconds uint64, customers bool) *authority {
	t.Helper()
	a := &authority{records: &records{txt: map[string][]string{}}}
	plain, secure := freePort(t), freePort(t)
	a.http, a.tls = fmt.Sprint(":", plain), fmt.Sprint(":", secure)
	logger := log.New(io.Discard, "", 0)
	if testing.Verbose() {
		logger = log.New(t.Output(), "pebble: ", 0)
	}
	store := db.NewMemoryStore()
	a.accounts = store
	issuer := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: seconds}})
	looker := va.New(logger, plain, secure, false, a.names(t), store)
	front := wfe.New(logger, store, looker, issuer, []string{"ca.example"}, false, customers, 1, 1)
	inner := front.Handler()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case a.down.Load():
			panic(http.ErrAbortHandler)
		case a.renewNow.Load() && strings.Contains(r.URL.Path, "renewalInfo"):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "21600")
			_, _ = fmt.Fprintf(w, `{"suggestedWindow": {"start": %q, "end": %q}}`, time.Now().Add(-2*time.Hour).Format(time.RFC3339), time.Now().Add(-time.Hour).Format(time.RFC3339))
			return
		case a.wrong.Load() != nil && strings.HasPrefix(r.URL.Path, "/order-plz"):
			(*a.wrong.Load())(w, r)
			return
		case strings.HasPrefix(r.URL.Path, "/order-plz") && r.Method == http.MethodPost:
			w = &counting{w, &a.orders}
			if a.limited.Load() {
				a.refusals.Add(1)
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates: retry after 2030-01-01"}`)
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	a.dir = srv.URL + wfe.DirectoryPath
	a.roots = filepath.Join(t.TempDir(), "roots.pem")
	write(t, a.roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	a.issued = x509.NewCertPool()
	a.issued.AppendCertsFromPEM(issuer.GetRootCert(0).PEM())
	return a
}

// counting counts what was created: a refused nonce is not an order.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

// WriteHeader implements [http.ResponseWriter].
func (c *counting) WriteHeader(status int) {
	if status == http.StatusCreated {
		c.n.Add(1)
	}
	c.ResponseWriter.WriteHeader(status)
}

// names is a DNS server that has 127.0.0.1 for every name.
func (a *authority) names(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{Listener: ln, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
		switch head.Rrtype {
		case dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.IPv4(127, 0, 0, 1)}}
		case dns.TypeTXT:
			a.records.mu.Lock()
			for _, v := range a.records.txt[strings.TrimSuffix(head.Name, ".")] {
				m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{v}})
			}
			a.records.mu.Unlock()
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = srv.ActivateAndServe() }() // ends with Shutdown
	t.Cleanup(func() { _ = srv.Shutdown() })
	return ln.Addr().String()
}

// lastPort counts the ports that freePort has given to tests, which run at once.
var lastPort atomic.Int64

// freePort is one that nobody listens at now.
func freePort(t *testing.T) int {
	t.Helper()
	const first, ports = 12000, 18000 // below those that the kernel gives to connections
	for range 100 {
		port := first + (os.Getpid()*97+int(lastPort.Add(1)))%ports
		if ln, err := net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// config is one of a site whose certificates come from the CA.
func (a *authority) config(t *testing.T, more, site string) string {
	t.Helper()
	return fmt.Sprintf(`
listen: 127.0.0.1%s
tls:
  listen: 127.0.0.1%s
  auto: {ca: %s, ca_roots: %s, storage: %s%s}
sites:
  - %s
`, a.http, a.tls, a.dir, a.roots, filepath.Join(t.TempDir(), "certs"), more, site)
}

// visit asks for a page over HTTPS, and returns the certificate.
func (a *authority) visit(t *testing.T, host string) (*x509.Certificate, error) {
	t.Helper()
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{ServerName: host, RootCAs: a.issued, Time: a.clock}}
	nc, err := d.DialContext(t.Context(), "tcp", "127.0.0.1"+a.tls)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	c := nc.(*tls.Conn)
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if status, body := (&conn{c, t}).get(host, "/"); status != 200 || body != "page" {
		t.Errorf("%s: %d, %q", host, status, body)
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

// eventuallyVisited waits until a name has a certificate that fits.
func (a *authority) eventuallyVisited(t *testing.T, host string, fits func(*x509.Certificate) bool) *x509.Certificate {
	t.Helper()
	var last error
	for range 1200 {
		cert, err := a.visit(t, host)
		if err == nil && fits(cert) {
			return cert
		}
		last = err
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s has no such certificate after a minute: %v", host, last)
	return nil
}

func anyCertificate(*x509.Certificate) bool { return true }

// loud is a log that a test can read.
type loud struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *loud) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *loud) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *loud) waitFor(t *testing.T, text string) {
	t.Helper()
	for range 1200 {
		l.mu.Lock()
		found := strings.Contains(l.b.String(), text)
		l.mu.Unlock()
		if found {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the log never says %q:\n%s", text, l.b.String())
}

// startLoud is start with a log.
func startLoud(t *testing.T, yaml string) (*engine.Server, *loud) {
	t.Helper()
	l := &loud{}
	srv, err := engine.New(parse(t, yaml), engine.Options{ErrorLog: slog.New(slog.NewTextHandler(l, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = srv.Close()
		<-ended
	})
	return srv, l
}

// A name is enough: the certificate comes by itself, plain requests are sent to
// HTTPS, and a name that is not ours gets none. With each kind of proof.
func TestCertificatesComeByThemselves(t *testing.T) {
	t.Parallel()
	for _, proof := range []string{"http", "tls"} {
		t.Run(proof, func(t *testing.T) {
			t.Parallel()
			a, name := newAuthority(t, 3600), proof+".example"
			dir := folder(t, map[string]string{"index.html": "page"})
			yaml := a.config(t, "", fmt.Sprintf("{hosts: [%s, www.%[1]s], routes: {/: {static: {root: %s}}}}", name, dir))
			if proof == "tls" {
				yaml = strings.Replace(yaml, "listen: 127.0.0.1"+a.http, "listen: []", 1)
			}
			_, l := startLoud(t, yaml)
			for _, host := range []string{name, "www." + name} {
				if cert := a.eventuallyVisited(t, host, anyCertificate); cert.VerifyHostname(host) != nil {
					t.Errorf("%s got a certificate for %q", host, cert.DNSNames)
				}
			}
			l.waitFor(t, name+" has a certificate")
			if _, err := a.visit(t, "other.example"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("a name that is not ours: %v", err)
			}
			if n := a.orders.Load(); n != 2 {
				t.Errorf("%d orders for two names", n)
			}
			if proof == "tls" {
				return
			}
			if status, _ := dial(t, "http://127.0.0.1"+a.http).get(name, "/"); status != 308 {
				t.Errorf("plain HTTP answers with %d", status)
			}
			if status, _ := dial(t, "http://127.0.0.1"+a.http).get(name, "/.well-known/acme-challenge/none"); status != 308 {
				t.Errorf("a challenge that nobody waits for is answered with %d", status)
			}
		})
	}
}

// What goes wrong is told in plain words, and the site goes on. A CA that says when
// it may be asked again is not asked before, even after a reload.
func TestCertificateFailuresAreTold(t *testing.T) {
	a := newAuthority(t, 3600)
	a.limited.Store(true)
	dir := folder(t, map[string]string{"index.html": "page"})
	yaml := a.config(t, "", fmt.Sprintf("{hosts: [a.example], routes: {/: {static: {root: %s}}}}", dir))
	srv, l := startLoud(t, yaml)
	l.waitFor(t, "rate limit until "+time.Now().Add(time.Hour).Format("2006-01-02 15:"))
	l.waitFor(t, "the CA has issued too much of late, and is not asked again before")
	l.waitFor(t, "(too many certificates: retry after 2030-01-01)")
	if _, err := a.visit(t, "a.example"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("a name whose certificate is on the way: %v", err)
	}
	if status, _ := dial(t, "http://127.0.0.1"+a.http).get("a.example", "/"); status != 308 {
		t.Errorf("plain HTTP answers with %d", status)
	}
	n := a.refusals.Load()
	reload(t, srv, parse(t, yaml))
	reload(t, srv, parse(t, strings.Replace(yaml, "a.example]", "a.example, b.example]", 1)))
	servertest.Eventually(t, "another name is refused, too", func() bool { return a.refusals.Load() == n+1 })
	if n != 1 {
		t.Errorf("%d orders of one name were refused", n)
	}
}

// Two processes with one storage get each certificate once, whoever is asked by
// the CA, and both serve it: with one folder, and with one Redis or one bucket of
// S3, where each has a folder of its own. With the store down a machine starts with
// the copy that it has.
func TestMachinesShareCertificates(t *testing.T) {
	for _, kind := range []string{"folder", "redis", "s3"} {
		t.Run(kind, func(t *testing.T) {
			a := newAuthority(t, 3600)
			dir := folder(t, map[string]string{"index.html": "page"})
			yaml := a.config(t, "", fmt.Sprintf("{hosts: [a.example], routes: {/: {static: {root: %s}}}}", dir))
			var shared *servertest.Process
			var url string
			switch kind {
			case "redis":
				shared, url = redisServer(t)
				url = "redis://" + url
			case "s3":
				shared, url = s3Server(t)
			}
			if shared != nil {
				t.Setenv("XDG_DATA_HOME", t.TempDir())
				before, rest, _ := strings.Cut(yaml, "storage: ")
				_, rest, _ = strings.Cut(rest, "}")
				yaml = before + "storage: '" + url + "', storage_secret: " + strings.Repeat("secret", 6) + "}" + rest
			}
			other := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			// The second is not where the CA looks.
			second := strings.Replace(strings.Replace(yaml, "listen: 127.0.0.1"+a.tls, "listen: "+other, 1), "listen: 127.0.0.1"+a.http, "listen: 127.0.0.1:0", 1)
			startLoud(t, second)
			if shared != nil {
				t.Setenv("XDG_DATA_HOME", t.TempDir())
			}
			first, _ := startLoud(t, yaml)
			a.eventuallyVisited(t, "a.example", anyCertificate)
			b := &authority{tls: strings.TrimPrefix(other, "127.0.0.1"), issued: a.issued}
			b.eventuallyVisited(t, "a.example", anyCertificate)
			if n := a.orders.Load(); n != 1 {
				t.Errorf("%d orders for one name", n)
			}
			if shared == nil {
				return
			}
			a.down.Store(true)
			shared.Kill()
			_ = first.Close()
			third := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			startLoud(t, strings.Replace(strings.Replace(yaml, "listen: 127.0.0.1"+a.tls, "listen: "+third, 1), "listen: 127.0.0.1"+a.http, "listen: 127.0.0.1:0", 1))
			c := &authority{tls: strings.TrimPrefix(third, "127.0.0.1"), issued: a.issued}
			c.eventuallyVisited(t, "a.example", anyCertificate)
		})
	}
}

// redisServer starts one that forgets everything when it ends.
func redisServer(t *testing.T) (p *servertest.Process, address string) {
	t.Helper()
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is missing: install the package redis-server")
	}
	address = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	_, port, _ := strings.Cut(address, ":")
	p = servertest.New(t)
	p.Run(exec.Command(exe, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()), 20*time.Second, func() error {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			err = nc.Close()
		}
		return err
	})
	return p, address
}

// s3Server starts one with a bucket.
func s3Server(t *testing.T) (p *servertest.Process, url string) {
	t.Helper()
	dir, address := t.TempDir(), "127.0.0.1:"+servertest.FreePort(t)
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := servertest.S3Program(t, "../..")
	p = servertest.New(t)
	p.S3(program, address, dir, "key", "secret", 20*time.Second)
	return p, "s3+http://key:secret@" + address + "/bucket/certificates"
}

// On demand a name gets its certificate when the first client comes, if the
// site's own program says that it may.
func TestCertificatesOnDemand(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, 3600)
	var asked atomic.Int64
	ask := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !strings.HasSuffix(r.FormValue("domain"), ".shops.example") {
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	defer ask.Close()
	dir := folder(t, map[string]string{"index.html": "page"})
	startLoud(t, a.config(t, fmt.Sprintf(", on_demand: {ask: %q}", ask.URL), fmt.Sprintf("{routes: {/: {static: {root: %s}}}}", dir)))
	a.eventuallyVisited(t, "one.shops.example", anyCertificate)
	if _, err := a.visit(t, "one.thieves.example"); err == nil {
		t.Error("a name that was refused has a certificate")
	}
	if asked.Load() < 2 || a.orders.Load() != 1 {
		t.Errorf("asked %d times, %d orders", asked.Load(), a.orders.Load())
	}
}

// A wildcard name is proved in the DNS, by the operator's own program.
func TestWildcardByDNS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, 3600)
	hook := filepath.Join(t.TempDir(), "hook")
	done := filepath.Join(t.TempDir(), "done")
	script := fmt.Sprintf("#!/bin/sh\necho \"$1 $2 $3\" >>%s\nuntil [ -e %s.ok ]; do sleep 0.1; done\n", done, done)
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	go func() { // plays the DNS provider; ends when the record is there, or after a minute
		for range 600 {
			if text, err := os.ReadFile(done); err == nil {
				if words := strings.Fields(string(text)); len(words) >= 3 && words[0] == "present" {
					a.records.set(words[1], words[2])
					_ = os.WriteFile(done+".ok", nil, 0o600)
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	dir := folder(t, map[string]string{"index.html": "page"})
	startLoud(t, a.config(t, ", dns: "+hook, fmt.Sprintf("{hosts: ['*.wild.example'], routes: {/: {static: {root: %s}}}}", dir)))
	if cert := a.eventuallyVisited(t, "x.wild.example", anyCertificate); cert.DNSNames[0] != "*.wild.example" {
		t.Errorf("the certificate is for %q", cert.DNSNames)
	}
	text, err := os.ReadFile(done)
	if err != nil || !strings.Contains(string(text), "cleanup _acme-challenge.wild.example ") {
		t.Errorf("the program was called with:\n%s", text)
	}
}

// A CA of this machine's own needs nothing from outside.
func TestInternalCA(t *testing.T) {
	storage := filepath.Join(t.TempDir(), "certs")
	dir := folder(t, map[string]string{"index.html": "page"})
	port := freePort(t)
	yaml := fmt.Sprintf("listen: []\ntls: {listen: '127.0.0.1:%d', auto: {ca: internal, storage: %s}}\nsites: [{routes: {/: {static: {root: %s}}}}]", port, storage, dir)
	startLoud(t, yaml)
	a := &authority{tls: fmt.Sprint(":", port), issued: x509.NewCertPool()}
	for range 600 {
		if text, err := os.ReadFile(filepath.Join(storage, "internal", "root.pem")); err == nil && a.issued.AppendCertsFromPEM(text) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		a.eventuallyVisited(t, host, anyCertificate)
	}
}
