package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"millrace/internal/access/token"
)

// TestGiven are the claims of subscriptions that the server makes.
func TestGiven(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	g, err := c.Token(hs256(t, jwt.MapClaims{
		"sub": "7", "channels": []string{"news", "chat"},
		"subs": map[string]any{"chat": map[string]any{"info": map[string]int{"a": 1}, "data": []int{2}}, "own": map[string]any{}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Given{{Channel: "chat", Info: []byte(`{"a":1}`), Data: []byte(`[2]`)}, {Channel: "news"}, {Channel: "own"}}
	if diff := cmp.Diff(want, g.Given); diff != "" {
		t.Error(diff)
	}
	if !g.MaySubscribe("own") || g.MaySubscribe("other") || g.MayPublish("own") {
		t.Error("it may do something else than subscribe to its own channels")
	}
	for text, claims := range map[string]jwt.MapClaims{
		"list of names":      {"channels": "news"},
		"object of channels": {"subs": []string{"news"}},
		"it is empty":        {"channels": []string{""}},
		"at most 4096":       {"subs": map[string]any{"x": map[string]string{"info": strings.Repeat("x", 5000)}}},
		"a number":           {"expire_at": "never"},
		"one subscription":   {"sub": "7", "channel": "news"},
	} {
		if _, err := c.Token(hs256(t, claims)); !errors.Is(err, token.ErrUnauthorized) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", claims, err, text)
		}
	}
}

// TestOtherChannelClaims: a claim that only has the name is the site's own.
func TestOtherChannelClaims(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	for _, claim := range []any{"", 7, nil, []string{"news"}} {
		if _, err := c.Token(hs256(t, jwt.MapClaims{"sub": "7", "channel": claim})); err != nil {
			t.Errorf("%v: %v", claim, err)
		}
	}
}

// TestTTL: a client should have a new token before the leeway begins.
func TestTTL(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	now := time.Now().Truncate(time.Second)
	for _, tt := range []struct {
		claims jwt.MapClaims
		ttl    uint32
		ok     bool
	}{
		{jwt.MapClaims{}, 0, false},
		{jwt.MapClaims{"exp": now.Add(time.Minute).Unix()}, 60, true},
		{jwt.MapClaims{"exp": now.Add(-time.Second).Unix()}, 1, true},
		{jwt.MapClaims{"exp": now.Add(time.Minute).Unix(), "expire_at": 0}, 0, false},
		{jwt.MapClaims{"exp": now.Add(time.Minute).Unix(), "expire_at": now.Add(time.Hour).Unix()}, 3600, true},
	} {
		g, err := c.Token(hs256(t, tt.claims))
		if err != nil {
			t.Fatal(err)
		}
		if ttl, ok := g.TTL(now); ok != tt.ok || ok && ttl != tt.ttl {
			t.Errorf("%v: %d, %v, want %d, %v", tt.claims, ttl, ok, tt.ttl, tt.ok)
		}
	}
	if _, ok := (&Grant{Expires: now}).TTL(now); ok {
		t.Error("a URL's grant is renewed by a token")
	}
}

func TestSubscriptionToken(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	s, err := c.Subscription(hs256(t, jwt.MapClaims{"sub": "7", "channel": "own", "info": 1, "exp": at.Unix()}))
	want := &Subscription{User: "7", Channel: "own", Info: []byte("1"), Expires: at.Add(token.Leeway)}
	if diff := cmp.Diff(want, s); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for text, claims := range map[string]jwt.MapClaims{
		"names no channel": {"sub": "7"},
		"not text":         {"channel": 1},
		"expired at":       {"channel": "own", "exp": 0},
	} {
		if _, err := c.Subscription(hs256(t, claims)); !errors.Is(err, token.ErrUnauthorized) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", claims, err, text)
		}
	}
	if _, err := newChecker(t, Options{}).Subscription("x"); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("without tokens: %v", err)
	}
}

// TestHandshake: who has no token yet may bring one later, where tokens are taken.
func TestHandshake(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}, Subscribe: []string{"open"}})
	if g, err := c.Handshake(t.Context(), request("/ws")); g != nil || err != nil {
		t.Errorf("without a token: %v, %v", g, err)
	}
	if g := c.Anyone(); g == nil || !g.MaySubscribe("open") || g.MaySubscribe("news") {
		t.Errorf("anyone may %+v", g)
	}
	if g, err := c.Handshake(t.Context(), request("/ws?token="+hs256(t, jwt.MapClaims{"sub": "7"}))); err != nil || g.User != "7" {
		t.Errorf("with a token: %+v, %v", g, err)
	}
	if _, err := c.Handshake(t.Context(), request("/ws?token=x")); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("with a wrong one: %v", err)
	}
	if g, err := newChecker(t, Options{}).Handshake(t.Context(), request("/ws")); err != nil || !g.MaySubscribe("x") {
		t.Errorf("without tokens: %+v, %v", g, err)
	}
}

func TestMatch(t *testing.T) {
	if !Match("ne*", "news") || Match("ne*", "old") || !Match("*", "x") || Match("news", "newsX") {
		t.Error("patterns do not match")
	}
}
