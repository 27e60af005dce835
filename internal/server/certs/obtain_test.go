package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"millrace/internal/server"
)

// limitedCA is one that is asked over a patient transport. It notes when.
type limitedCA struct {
	local // what it issues when it does

	mu       sync.Mutex
	refuse   string // its Retry-After; empty: it issues
	unproven bool   // no proof is good enough
	ordered  []time.Time
	client   *http.Client
}

// IssuerKey implements [certmagic.Issuer].
func (*limitedCA) IssuerKey() string { return "ca" }

// RoundTrip implements [http.RoundTripper].
func (c *limitedCA) RoundTrip(*http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered = append(c.ordered, time.Now())
	resp := &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody}
	if c.refuse != "" {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", c.refuse)
		resp.Body = io.NopCloser(strings.NewReader("five a week"))
	}
	return resp, nil
}

// Issue implements [certmagic.Issuer].
func (c *limitedCA) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	resp, err := c.client.Do(order(ctx, csr.DNSNames[0]))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		return nil, acme.Problem{Type: acme.ProblemTypeNamespace + "rateLimited", Detail: string(text)}
	}
	c.mu.Lock()
	unproven := c.unproven
	c.mu.Unlock()
	if unproven {
		return nil, acme.Problem{Type: acme.ProblemTypeNamespace + "connection"}
	}
	return c.local.Issue(ctx, csr)
}

// set changes what the CA does, and returns when it was asked since.
func (c *limitedCA) set(refuse string, unproven bool) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.ordered
	c.refuse, c.unproven, c.ordered = refuse, unproven, nil
	return before
}

// order is a request for a certificate, as RFC 8555, 7.4, has it.
func order(ctx context.Context, name string) *http.Request {
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"identifiers":[{"type":"dns","value":%q}]}`, name))
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://ca.example/order", strings.NewReader(`{"protected":"","payload":"`+payload+`"}`))
	return r
}

// managed is a Manager whose only CA is this one. It is closed by the test.
func (c *limitedCA) managed(t *testing.T, log io.Writer) *Manager {
	t.Helper()
	m, err := Open(server.AutoOptions{CA: []string{server.CAInternal}, Storage: filepath.Join(t.TempDir(), "certs")}, nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.storage = m.storage
	c.client = &http.Client{Transport: &throttledTransport{ca: "ca", next: c, refused: &m.refused}}
	m.issuers = func(next *state, _, _ []string) error {
		next.config.Issuers = []certmagic.Issuer{c}
		return nil
	}
	return m
}

// A CA that names a time is not asked before it, whatever else happens, and is
// asked soon after it; everybody is told when.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ca := &limitedCA{refuse: "7200"}
		m := ca.managed(t, &log)
		began := time.Now()
		for range 3 { // reloads
			if err := m.Manage([]string{"a.example"}, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if asked := ca.set("", false); len(asked) != 1 {
			t.Errorf("asked %d times within the limit", len(asked))
		}
		until := began.Add(2 * time.Hour)
		told := "rate limit until " + until.Format("2006-01-02 15:04:05")
		if !strings.Contains(log.String(), told) || strings.Count(log.String(), "there is no certificate") != 1 {
			t.Errorf("the log says\n%s", log.String())
		}
		s := m.Status()
		if len(s) != 1 || s[0].LimitedUntil == nil || !s[0].LimitedUntil.Equal(until) || s[0].Next == nil || s[0].Next.Before(until) ||
			s[0].Attempts != 1 || s[0].Failures != 1 || !strings.Contains(s[0].LastError, told) {
			t.Errorf("status: %+v", s)
		}
		time.Sleep(2 * time.Hour)
		asked := ca.set("", false)
		if len(asked) != 1 || asked[0].Before(until) || asked[0].After(until.Add(spread)) {
			t.Errorf("asked at %v, the limit was until %v", asked, until)
		}
		if s := m.Status(); s[0].To == nil || s[0].LastError != "" || s[0].LimitedUntil != nil || s[0].Next != nil {
			t.Errorf("status after it: %+v", s)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A name that is not wanted any more is not asked for; what failed is tried again
// after a reload, but not more often than once a minute.
func TestReloadOfFailingNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &limitedCA{unproven: true}
		m := ca.managed(t, io.Discard)
		manage := func(names ...string) {
			t.Helper()
			if err := m.Manage(names, nil); err != nil {
				t.Fatal(err)
			}
		}
		manage("a.example", "b.example")
		time.Sleep(time.Hour)
		if asked := ca.set("", true); len(asked) != 2*5 {
			t.Errorf("asked %d times in an hour for two names", len(asked))
		}
		manage("a.example")
		time.Sleep(time.Second)
		if asked := ca.set("", true); len(asked) != 1 {
			t.Errorf("after a reload: asked %d times", len(asked))
		}
		manage("a.example")
		time.Sleep(30 * time.Second)
		if asked := ca.set("", true); len(asked) != 0 {
			t.Errorf("after another: asked %d times", len(asked))
		}
		time.Sleep(time.Minute)
		if asked := ca.set("", true); len(asked) != 1 {
			t.Errorf("a minute after it: asked %d times", len(asked))
		}
		if s := m.Status(); len(s) != 1 || s[0].Name != "a.example" {
			t.Errorf("a name that has gone has a status: %+v", s)
		}
		manage()
		time.Sleep(24 * time.Hour)
		if asked := ca.set("", true); len(asked) != 0 || len(m.jobs) != 0 {
			t.Errorf("without names: asked %d times", len(asked))
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A storage that cannot be written costs no order; when it is mended the
// certificate comes by itself.
func TestStorageMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &limitedCA{}
		var log bytes.Buffer
		m := ca.managed(t, &log)
		if err := os.Rename(m.folder.Path, m.folder.Path+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.folder.Path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.Manage([]string{"a.example"}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if asked := ca.set("", false); len(asked) != 0 {
			t.Errorf("asked %d times", len(asked))
		}
		if s := m.Status(); s[0].Failures == 0 || !strings.Contains(s[0].LastError, "mend the storage") {
			t.Errorf("status: %+v", s[0])
		}
		if err := os.Remove(m.folder.Path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if s := m.Status(); s[0].To == nil {
			t.Errorf("there is no certificate: %+v\n%s", s[0], log.String())
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A limit of one name does not hold another one up, nor what belongs to an order
// that was taken; a limit of all does; both end.
func TestPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := &limitedCA{}
		refused := &refusals{of: map[string]map[string]refusal{}}
		p := &throttledTransport{ca: "ca", directory: "https://ca.example/directory", next: ca, refused: refused}
		send := func(r *http.Request) (status int) {
			t.Helper()
			resp, err := p.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return resp.StatusCode
		}
		plain := func(method, path string) *http.Request {
			r, _ := http.NewRequestWithContext(t.Context(), method, "https://ca.example/"+path, strings.NewReader(`{"payload":""}`))
			return r
		}
		a, b := order(t.Context(), "a.example"), order(t.Context(), "B.example")
		ca.set("100", false)
		send(a)
		ca.set("", false)
		for _, c := range []struct {
			r    *http.Request
			want int
		}{{a, 429}, {b, 201}, {plain("POST", "poll"), 201}, {plain("GET", "directory"), 201}, {plain("GET", "renewalInfo/x"), 201}} {
			if got := send(c.r); got != c.want {
				t.Errorf("%s %s: %d, want %d", c.r.Method, c.r.URL, got, c.want)
			}
		}
		ca.set(time.Now().Add(50*time.Second).UTC().Format(http.TimeFormat), false)
		send(plain("GET", "renewalInfo/x"))
		ca.set("", false)
		if got := send(b); got != 201 {
			t.Errorf("after a limit of renewal information: %d", got)
		}
		ca.set(time.Now().Add(50*time.Second).UTC().Format(http.TimeFormat), false)
		send(plain("HEAD", "nonce"))
		ca.set("", false)
		for _, c := range []struct {
			r    *http.Request
			want int
		}{{b, 429}, {plain("POST", "poll"), 201}, {plain("GET", "directory"), 429}, {plain("GET", "renewalInfo/x"), 201}} {
			if got := send(c.r); got != c.want {
				t.Errorf("of all: %s %s: %d, want %d", c.r.Method, c.r.URL, got, c.want)
			}
		}
		time.Sleep(51 * time.Second)
		if send(b) != 201 || send(a) != 429 {
			t.Error("the limits do not end in their order")
		}
		time.Sleep(50 * time.Second)
		if send(a) != 201 {
			t.Error("the limit of one name does not end")
		}
		ca.set("9999999999", false)
		send(a)
		if until := refused.until("a.example", "ca"); time.Until(until) > longestRefusal {
			t.Errorf("a limit until %v", until)
		}
		ca.set("soon", false)
		send(b)
		if until := refused.until("b.example", "ca"); !until.IsZero() {
			t.Errorf("a limit of no time: %v", until)
		}
		for i := range 2 * mostRefusals {
			refused.note(fmt.Sprint(i), "ca", refusal{until: time.Now().Add(time.Hour)})
		}
		if len(refused.of) > mostRefusals {
			t.Errorf("%d refusals", len(refused.of))
		}
		time.Sleep(8 * 24 * time.Hour)
		if refused.note("x", "ca", refusal{until: time.Now().Add(time.Hour)}); len(refused.of) != 1 {
			t.Errorf("%d refusals after a week", len(refused.of))
		}
	})
}
