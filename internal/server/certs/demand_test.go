package certs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"millrace/internal/server"
)

// The names of one domain use up its share, and no other's; time gives it back.
func TestLimits(t *testing.T) {
	l, now := newLimits(), time.Unix(1e9, 0)
	asked := 0
	for i := range 100 {
		if l.allow(fmt.Sprintf("n%d.thief.example", i), now) {
			asked++
		}
	}
	if asked != domainAtOnce {
		t.Errorf("%d names of one domain were asked about", asked)
	}
	if !l.allow("shop.good.example", now) || !l.allow("other.example", now) {
		t.Error("another domain is kept from its share")
	}
	if l.allow("N1.Thief.example.", now) || !l.allow("n1.thief.example", now.Add(domainEvery)) {
		t.Error("the share is not that of five seconds")
	}
	for i := range 2 * mostDomains {
		l.allow(fmt.Sprintf("a.d%d.example", i), now)
	}
	if len(l.of) > mostDomains {
		t.Errorf("%d domains are remembered", len(l.of))
	}
	if l.allow("a.new.example", now.Add(time.Hour)); len(l.of) > mostDomains/2 {
		t.Errorf("%d domains are remembered after an hour", len(l.of))
	}
}

// Addresses get the only kind of certificate that there is for them.
func TestProfile(t *testing.T) {
	for _, c := range []struct {
		profile, ca string
		names       []string
		want        string
	}{
		{"", server.CALetsEncrypt, []string{"a.example"}, ""},
		{"", server.CALetsEncrypt, []string{"a.example", "203.0.113.5"}, "shortlived"},
		{"", server.CALetsEncryptStaging, []string{"2001:db8::1"}, "shortlived"},
		{"", "https://ca.example/dir", []string{"203.0.113.5"}, ""},
		{"tlsserver", server.CALetsEncrypt, []string{"203.0.113.5"}, "tlsserver"},
	} {
		o := server.AutoOptions{Profile: c.profile}
		if got := o.ProfileFor(c.ca, c.names); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// Names that have a certificate are asked about as their clients come, others only
// so often, and one that no CA may be asked for not at all.
func TestDecision(t *testing.T) {
	var asked atomic.Int64
	ask := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer ask.Close()
	m, err := Open(server.AutoOptions{CA: []string{server.CAInternal}, Storage: t.TempDir(), OnDemand: server.OnDemand{Ask: ask.URL}}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.issuers = func(next *state, _, _ []string) error {
		next.config.Issuers = []certmagic.Issuer{&limitedCA{}}
		return nil
	}
	if err := m.Manage(nil, nil); err != nil {
		t.Fatal(err)
	}
	decide := m.state.Load().demand.OnDemand.DecisionFunc
	const names = 3 * asksAtOnce
	for i := range names {
		name := fmt.Sprintf("old.d%d.example", i)
		if err := m.folder.Store(t.Context(), certmagic.StorageKeys.SiteCert("ca", name), nil); err != nil {
			t.Fatal(err)
		}
		if err := decide(t.Context(), name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if n := asked.Swap(0); n != names {
		t.Errorf("asked %d times about %d names that are known", n, names)
	}
	m.refused.note("limited.example", "ca", refusal{until: time.Now().Add(time.Hour)})
	if err := decide(t.Context(), "limited.example"); err == nil || asked.Load() != 0 {
		t.Errorf("a name that no CA may be asked for: %v, asked %d times", err, asked.Load())
	}
	for i := range names {
		_ = decide(t.Context(), fmt.Sprintf("new.d%d.example", i))
	}
	if n := asked.Load(); n < asksAtOnce || n >= names {
		t.Errorf("asked %d times about %d new names", n, names)
	}
}

// Names of the config are renewed by time, those on demand when a client comes.
func TestConfigOf(t *testing.T) {
	s := &state{config: &certmagic.Config{}, demand: &certmagic.Config{}, names: map[string]bool{"a.example": true, "*.b.example": true}}
	for name, known := range map[string]bool{"a.example": true, "x.b.example": true, "b.example": false, "x.a.example": false, "example": false, "": false} {
		if got := s.configOf(name) == s.config; got != known {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// A challenge that another machine has left is answered for names that there is to
// be a certificate for; of others the storage knows nothing, and is not asked.
func TestChallenge(t *testing.T) {
	gone := httptest.NewTLSServer(nil)
	gone.Close()
	m, err := Open(server.AutoOptions{CA: []string{gone.URL + "/dir"}, Storage: t.TempDir()}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Manage([]string{"a.example", "2001:db8::1"}, []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	key := m.state.Load().prover.IssuerKey()
	for host, want := range map[string]bool{"a.example": true, "A.example:80": true, "[2001:db8::1]": true, "[2001:db8::1]:80": true, "junk.example": false, "": false} {
		name := strings.Trim(strings.TrimSuffix(host, ":80"), "[]")
		text, _ := json.Marshal(acme.Challenge{Type: acme.ChallengeTypeHTTP01, Token: "t", KeyAuthorization: "t.thumb", Identifier: acme.Identifier{Value: name}})
		if err := m.folder.Store(t.Context(), "acme/"+certmagic.StorageKeys.Safe(key)+"/challenge_tokens/"+certmagic.StorageKeys.Safe(name)+".json", text); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/.well-known/acme-challenge/t", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if got := m.Challenge(w, r); got != want || want && w.Body.String() != "t.thumb" {
			t.Errorf("%q: %v, %q", host, got, w.Body)
		}
		if m.Challenge(w, httptest.NewRequest(http.MethodGet, "/t", nil)) {
			t.Error("another path is a challenge")
		}
	}
}
