package token

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func serveKeys(t *testing.T, kid string, k crypto.Signer) string {
	t.Helper()
	text := setOf(t, publicJWK(t, kid, k))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(text) }))
	t.Cleanup(s.Close)
	return s.URL
}

// issuer answers for a URL without a network, so that time can be the test's.
type issuer struct {
	mu    sync.Mutex
	text  []byte // nil: down
	asked []time.Time
	takes time.Duration
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	i.asked = append(i.asked, time.Now())
	text, takes := i.text, i.takes
	i.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if text == nil {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

func (i *issuer) set(text []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.text = text
}

func (i *issuer) times() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.asked)
}

// withIssuer is a checker whose keys come from an issuer.
func withIssuer(i *issuer, log io.Writer) *Checker {
	set := newKeySet("https://id.example/keys?secret=1", slog.New(slog.NewTextHandler(log, nil)))
	set.client.Transport = i
	c := &Checker{tokens: newVerifier(Options{}, set)}
	c.run(set)
	return c
}

func es256(t testing.TB, kid string, k *ecdsa.PrivateKey) string {
	return sign(t, jwt.SigningMethodES256, kid, k, jwt.MapClaims{"sub": "7"})
}

func TestKeySetRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256())
		i := &issuer{text: setOf(t, publicJWK(t, "a", a)), takes: time.Second}
		c := withIssuer(i, io.Discard)
		defer c.Close()
		if _, err := c.Check(es256(t, "a", a)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("before the first fetch: %v", err)
		}
		if _, err := c.Wait(t.Context(), es256(t, "a", a)); err != nil {
			t.Errorf("waiting for the first fetch: %v", err)
		}

		// At once nobody can make it fetch again; after ten seconds once.
		i.set(setOf(t, publicJWK(t, "b", b)))
		for range 100 {
			if _, err := c.Check(es256(t, "b", b)); !errors.Is(err, ErrUnauthorized) || !strings.Contains(err.Error(), `"b"`) {
				t.Fatalf("within the gap: %v", err)
			}
		}
		time.Sleep(refreshGap)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := c.Wait(t.Context(), es256(t, "b", b)); err != nil {
					t.Errorf("after the gap: %v", err)
				}
			})
		}
		all.Wait()
		if got := i.times(); got != 2 {
			t.Errorf("asked %d times, want 2", got)
		}
		// What is not in the set any more is not good any more.
		if _, err := c.Check(es256(t, "a", a)); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("a key that was taken back: %v", err)
		}
	})
}

func TestKeySetGoesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := ecKey(t, elliptic.P256())
		good := setOf(t, publicJWK(t, "a", k))
		i := &issuer{text: good}
		var log bytes.Buffer
		c := withIssuer(i, &log)
		synctest.Wait()
		i.set(nil)
		time.Sleep(refreshEvery + time.Hour)
		synctest.Wait()
		if _, err := c.Check(es256(t, "a", k)); err != nil {
			t.Errorf("stale keys: %v", err)
		}
		// Every hour, then after 10, 20, 40, 80, 160, and every 320 seconds.
		if got, most := i.times(), 2+6+3600/320; got < 10 || got > most {
			t.Errorf("asked %d times, want at most %d", got, most)
		}
		before := i.times()
		_, err := c.Wait(t.Context(), es256(t, "b", k))
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
			t.Errorf("an unknown key while it is down: %v", err)
		}
		if got := i.times(); got != before+1 {
			t.Errorf("asked %d times for an unknown key", got-before)
		}
		i.set(good)
		time.Sleep(refreshGap << maxDoublings)
		synctest.Wait()
		c.Close()
		text := log.String()
		if strings.Count(text, "cannot be fetched") != 1 || strings.Count(text, "fetched again") != 1 || strings.Contains(text, "secret") {
			t.Errorf("log:\n%s", text)
		}
	})
}

func TestKeySetHourly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{text: setOf(t, publicJWK(t, "a", ecKey(t, elliptic.P256())))}
		c := withIssuer(i, io.Discard)
		time.Sleep(24*time.Hour + time.Minute)
		c.Close()
		if got := i.times(); got != 25 {
			t.Errorf("asked %d times in a day, want 25", got)
		}
	})
}

// TestKeySetGarbage is an issuer that answers, but not with keys.
func TestKeySetGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := ecKey(t, elliptic.P256())
		i := &issuer{text: setOf(t, publicJWK(t, "a", k))}
		c := withIssuer(i, io.Discard)
		defer c.Close()
		synctest.Wait()
		i.set([]byte("<html>maintenance</html>"))
		time.Sleep(refreshEvery + time.Second)
		synctest.Wait()
		if _, err := c.Check(es256(t, "a", k)); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestCloseWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := ecKey(t, elliptic.P256())
		i := &issuer{takes: time.Hour}
		c := withIssuer(i, io.Discard)
		got := make(chan error)
		go func() {
			_, err := c.Wait(t.Context(), es256(t, "a", k))
			got <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-got; !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTokensWithoutKid(t *testing.T) {
	var keys []map[string]any
	k := ecKey(t, elliptic.P256())
	for n := range maxTried + 1 {
		one := k
		if n > 0 {
			one = ecKey(t, elliptic.P256())
		}
		keys = append(keys, publicJWK(t, fmt.Sprint(n), one))
	}
	for n, want := range map[int]error{maxTried: nil, maxTried + 1: ErrUnauthorized} {
		list, err := parseSet(setOf(t, keys[:n]...))
		if err != nil {
			t.Fatal(err)
		}
		set := newKeySet("https://id.example/keys", slog.Default())
		set.list = list
		if _, err := newVerifier(Options{}, set).verify(es256(t, "", k)); !errors.Is(err, want) {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}

func TestKeySetLimits(t *testing.T) {
	var answer http.HandlerFunc
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer s.Close()
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for range maxSet/1024 + 2 {
				w.Write(bytes.Repeat([]byte(" "), 1024))
			}
		}, "longer than"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/keys?x", http.StatusFound)
		}, "write https://elsewhere.example/keys instead"},
		{"404", http.NotFound, "404"},
		{"header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 100<<10))
		}, "header"},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		}, "reading"},
	} {
		answer = tt.answer
		set := newKeySet(s.URL, slog.Default())
		_, err := set.fetch(t.Context())
		set.client.CloseIdleConnections()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}
