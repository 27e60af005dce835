package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"millrace/internal/access/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef0123456789abcdef"

func newChecker(t *testing.T, o Options) *Checker {
	t.Helper()
	c, err := New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func request(target string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// sign makes a token; kid may be "".
func sign(t testing.TB, method jwt.SigningMethod, kid string, private any, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hs256(t testing.TB, claims jwt.MapClaims) string {
	return sign(t, jwt.SigningMethodHS256, "", []byte(secret), claims)
}

// may lists what a grant allows of some channels.
func may(g *Grant, channels ...string) map[string]string {
	all := map[string]string{}
	for _, c := range channels {
		s := ""
		for _, one := range []struct {
			letter string
			ok     bool
		}{{"s", g.MaySubscribe(c)}, {"p", g.MayPublish(c)}, {"w", g.MaySeePresence(c)}} {
			if one.ok {
				s += one.letter
			}
		}
		all[c] = s
	}
	return all
}

func TestEverybodyWithoutOptions(t *testing.T) {
	c := newChecker(t, Options{})
	g, err := c.Connect(t.Context(), request("/ws"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"news": "s", "": "s"}, may(g, "news", "")); diff != "" {
		t.Error(diff)
	}
	if !g.Expires.IsZero() || g.User != "" || g.Info != nil {
		t.Errorf("%+v", g)
	}
	if _, err := c.Token("x"); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("a token where none is used: %v", err)
	}
}

func TestOptionsForAnyone(t *testing.T) {
	c := newChecker(t, Options{Subscribe: []string{"news", "chat:*"}, Publish: []string{"chat:*"}, Presence: []string{"chat:1"}})
	g, err := c.Connect(t.Context(), request("/ws"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"news": "s", "chat:1": "spw", "chat:2": "sp", "other": ""}
	if diff := cmp.Diff(want, may(g, "news", "chat:1", "chat:2", "other")); diff != "" {
		t.Error(diff)
	}
}

func TestTokenAndAnyoneAreUnited(t *testing.T) {
	c := newChecker(t, Options{
		JWT:       &token.Options{Secret: secret},
		Subscribe: []string{"news", "user:{sub}:*"}, Publish: []string{"user:{sub}:out"},
	})
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	token := hs256(t, jwt.MapClaims{
		"sub": "7", "exp": end.Unix(), "subscribe": []string{"team:red"}, "presence": []string{"team:*"},
		"info": map[string]any{"name": "Ann\n"},
	})
	g, err := c.Connect(t.Context(), request("/ws?token="+token))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"news": "s", "user:7:x": "s", "user:7:out": "sp", "user:8:x": "", "team:red": "sw", "team:blue": "w"}
	if diff := cmp.Diff(want, may(g, "news", "user:7:x", "user:7:out", "user:8:x", "team:red", "team:blue")); diff != "" {
		t.Error(diff)
	}
	if g.User != "7" || string(g.Info) != `{"name":"Ann\n"}` || !g.Expires.Equal(end.Add(30*time.Second)) {
		t.Errorf("%q %s %s", g.User, g.Info, g.Expires)
	}
	anon, err := c.Connect(t.Context(), request("/ws"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"news": "s", "user:7:x": "", "user::x": "", "user:{sub}:x": ""}, may(anon, "news", "user:7:x", "user::x", "user:{sub}:x")); diff != "" {
		t.Error(diff)
	}
}

func TestNoTokenWhereOneIsNeeded(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	_, err := c.Connect(t.Context(), request("/ws"))
	if !errors.Is(err, token.ErrUnauthorized) || errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "?token=") {
		t.Errorf("got %v", err)
	}
}

// TestInfo is about bytes that everyone else is sent.
func TestInfo(t *testing.T) {
	info := func(text string) ([]byte, error) {
		c, err := claimsOfToken(token.Claims{Members: map[string]json.RawMessage{"info": json.RawMessage(text)}})
		return c.info, err
	}
	if got, err := info("{\n \"a\": \"\xff\" }"); err != nil || string(got) != `{"a":"`+"\uFFFD"+`"}` {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := info("null"); err != nil || got != nil {
		t.Errorf("null: %q, %v", got, err)
	}
	if _, err := info(`"` + strings.Repeat("x", maxInfo) + `"`); !errors.Is(err, token.ErrUnauthorized) {
		t.Errorf("more than maxInfo: %v", err)
	}
}

func TestWhereTokensAreFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"none", request("/ws"), ""},
		{"query", request("/ws?a=b&token=T"), "T"},
		{"header", request("/ws", "Authorization", "bearer T"), "T"},
		{"another scheme", request("/ws", "Authorization", "Basic T"), ""},
		{"header without one", request("/ws", "Authorization", "Bearer ", "Cookie", "session=C"), "C"},
		{"cookie", request("/ws", "Cookie", "a=b; session=T"), "T"},
		{"another cookie", request("/ws", "Cookie", "sessions=T"), ""},
		{"subprotocol", request("/ws", "Sec-WebSocket-Protocol", "bearer, T"), "T"},
		{"subprotocol among others", request("/ws", "Sec-WebSocket-Protocol", "v1,bearer ,T , v2"), "T"},
		{"subprotocol in two lines", request("/ws", "Sec-WebSocket-Protocol", "bearer", "Sec-WebSocket-Protocol", "T"), "T"},
		{"subprotocol alone", request("/ws", "Sec-WebSocket-Protocol", "bearer"), ""},
		{"query wins", request("/ws?token=T", "Authorization", "Bearer H", "Cookie", "session=C"), "T"},
		{"header wins", request("/ws?token=", "Authorization", "Bearer H", "Cookie", "session=C"), "H"},
		{"cookie wins", request("/ws", "Cookie", "session=C", "Sec-WebSocket-Protocol", "bearer, T"), "C"},
	} {
		if got := tokenOf(tt.r, "session"); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := tokenOf(request("/ws", "Cookie", "session=T"), ""); got != "" {
		t.Errorf("a cookie that nobody named: %q", got)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want map[string]string // a part of each fault
	}{
		{"zero", Options{}, nil},
		{"good", Options{JWT: &token.Options{JWKS: "https://id.example/keys"}, Subscribe: []string{"user:{sub}:*", "{sub}"}}, nil},
		{"both", Options{JWT: &token.Options{Secret: secret}, URL: "http://a/"}, map[string]string{"url": "leave one"}},
		{"url", Options{URL: "example.com/x"}, map[string]string{"url": "write https://host/path"}},
		{"fragment", Options{URL: "http://a/#b"}, map[string]string{"url": "#"}},
		{"timeout", Options{URL: "http://a/", Timeout: time.Hour}, map[string]string{"timeout": "at most 1m"}},
		{"timeout alone", Options{Timeout: time.Second}, map[string]string{"timeout": "without url"}},
		{"no key", Options{JWT: &token.Options{}}, map[string]string{"jwt": "write secret:"}},
		{"two keys", Options{JWT: &token.Options{Secret: secret, PublicKey: "x"}}, map[string]string{"jwt": "only one"}},
		{"short", Options{JWT: &token.Options{Secret: secret[1:]}}, map[string]string{"jwt.secret": "openssl rand -base64 32"}},
		{"a key as a secret", Options{JWT: &token.Options{Secret: "\n-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI"}}, map[string]string{"jwt.secret": "public_key: FILE"}},
		{"jwks", Options{JWT: &token.Options{JWKS: "ftp://x/"}}, map[string]string{"jwt.jwks": "https://"}},
		{"cookie", Options{JWT: &token.Options{Secret: secret, Cookie: "a=b"}}, map[string]string{"jwt.cookie": "name of a cookie"}},
		{"empty pattern", Options{Publish: []string{"a", ""}}, map[string]string{"publish[1]": "* for all"}},
		{"nobody", Options{Subscribe: []string{"user:{sub}"}}, map[string]string{"subscribe[0]": "add jwt or url"}},
		{"glued", Options{URL: "http://a/", Presence: []string{"user:{sub}*"}}, map[string]string{"presence[0]": "user:{sub}:*"}},
		{"glued before", Options{URL: "http://a/", Presence: []string{"*{sub}"}}, map[string]string{"presence[0]": "between"}},
		{"twice", Options{URL: "http://a/", Presence: []string{"{sub}{sub}"}}, map[string]string{"presence[0]": "between"}},
		{"long", Options{Subscribe: []string{strings.Repeat("x", maxPattern+1)}}, map[string]string{"subscribe[0]": "too long"}},
		{"many", Options{Subscribe: slices.Repeat([]string{"x"}, maxPatterns+1)}, map[string]string{"subscribe": "too many"}},
	} {
		got := tt.o.Check()
		for key, part := range tt.want {
			if err := got[key]; err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %s: %v does not say %q", tt.name, key, err, part)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %v, want %d faults", tt.name, got, len(tt.want))
		}
		if c, err := New(tt.o, nil); (err != nil) != (len(tt.want) > 0) {
			t.Errorf("%s: New: %v", tt.name, err)
		} else if c != nil {
			c.Close()
		}
	}
}

func TestVerify(t *testing.T) {
	now := time.Now()
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret, Issuer: "https://id.example", Audience: "live"}})
	good := func(more ...any) jwt.MapClaims {
		m := jwt.MapClaims{"iss": "https://id.example", "aud": "live", "sub": "7"}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
			if more[i+1] == nil {
				delete(m, more[i].(string))
			}
		}
		return m
	}
	other := []byte(strings.Repeat("x", 32))
	flip := func(token string, part int) string {
		parts := strings.Split(token, ".")
		raw, err := base64.RawURLEncoding.DecodeString(parts[part])
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/2] ^= 1
		parts[part] = base64.RawURLEncoding.EncodeToString(raw)
		return strings.Join(parts, ".")
	}
	with := func(name string, value any) string {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, good())
		token.Header[name] = value
		s, err := token.SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	plain := strings.Split(hs256(t, good()), ".")
	for _, tt := range []struct {
		name, token, want string
	}{
		{"good", hs256(t, good()), ""},
		{"not expired", hs256(t, good("exp", now.Add(time.Hour).Unix())), ""},
		{"expired within the leeway", hs256(t, good("exp", now.Add(-10*time.Second).Unix())), ""},
		{"valid soon, within the leeway", hs256(t, good("nbf", now.Add(10*time.Second).Unix())), ""},
		{"one of several audiences", hs256(t, good("aud", []string{"x", "live"})), ""},
		{"a fraction", hs256(t, good("exp", float64(now.UnixMilli())/1000+1)), ""},
		{"any kid", with("kid", "whatever"), ""},
		{"expired", hs256(t, good("exp", now.Add(-time.Minute).Unix())), "expired at 2"},
		{"exp 0", hs256(t, good("exp", 0)), "expired at 1970"},
		{"exp in milliseconds", hs256(t, good("exp", now.UnixMilli())), "milliseconds?"},
		{"exp a text", hs256(t, good("exp", "tomorrow")), "not a number of seconds"},
		{"not yet valid", hs256(t, good("nbf", now.Add(time.Hour).Unix())), "not valid before 2"},
		{"wrong audience", hs256(t, good("aud", "x")), "another audience"},
		{"no audience", hs256(t, good("aud", nil)), "another audience"},
		{"audience in other letters", hs256(t, good("aud", nil, "AUD", "live")), "another audience"},
		{"wrong issuer", hs256(t, good("iss", "x")), "another issuer"},
		{"no issuer", hs256(t, good("iss", nil)), "another issuer"},
		{"patterns as a text", hs256(t, good("subscribe", "news")), "not a list of patterns"},
		{"sub a number", hs256(t, good("sub", 7)), "sub is not text"},
		{"sub too long", hs256(t, good("sub", strings.Repeat("x", maxUser+1))), "at most 256"},
		{"another secret", sign(t, jwt.SigningMethodHS256, "", other, good()), "signature is wrong"},
		{"claims changed", flip(hs256(t, good()), 1), "the token"},
		{"signature changed", flip(hs256(t, good()), 2), "signature is wrong"},
		{"header of another", strings.Join([]string{strings.Split(with("kid", "x"), ".")[0], plain[1], plain[2]}, "."), "signature is wrong"},
		{"none", sign(t, jwt.SigningMethodNone, "", jwt.UnsafeAllowNoneSignatureType, good()), "signature is wrong"},
		{"HS512", sign(t, jwt.SigningMethodHS512, "", []byte(secret), good()), "signed with HS512"},
		{"no signature", plain[0] + "." + plain[1] + ".", "signature is wrong"},
		{"crit", with("crit", []string{"exp"}), "crit"},
		{"empty", "", "cannot be read"},
		{"garbage", "a.b.c", "cannot be read"},
		{"four parts", hs256(t, good()) + ".x", "cannot be read"},
		{"too long", strings.Repeat("x", 8<<10+1), "too long"},
	} {
		g, err := c.Token(tt.token)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "":
			if g.User != "7" {
				t.Errorf("%s: user %q", tt.name, g.User)
			}
		case g != nil || !errors.Is(err, token.ErrUnauthorized) || !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: got %v, %v, want %q", tt.name, g, err, tt.want)
		}
	}
}

// TestIssuerAlone is about the message: both are the same to the library.
func TestIssuerAlone(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret, Issuer: "me"}})
	if _, err := c.Token(hs256(t, jwt.MapClaims{})); err == nil || !strings.Contains(err.Error(), "another issuer") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutExpNeverEnds(t *testing.T) {
	c := newChecker(t, Options{JWT: &token.Options{Secret: secret}})
	g, err := c.Token(hs256(t, jwt.MapClaims{"sub": "7"}))
	if err != nil || !g.Expires.IsZero() {
		t.Errorf("%+v, %v", g, err)
	}
}

// FuzzToken throws anything at what anybody can send.
func FuzzToken(f *testing.F) {
	f.Add(hs256(f, jwt.MapClaims{"sub": "7", "exp": 1e10, "subscribe": []string{"a*"}, "info": 1}))
	f.Add("..")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + ".e30.")
	c, err := New(Options{JWT: &token.Options{Secret: rand.Text() + rand.Text()}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := c.Token(text); g != nil || !errors.Is(err, token.ErrUnauthorized) {
			t.Errorf("%v, %v", g, err)
		}
	})
}

// FuzzClaims is about what comes behind the signature.
func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"7","exp":1,"nbf":1.5,"aud":["a"],"iss":"b","info":{"a":[1]},"subscribe":["a*b"],"expires":9e9}`)
	f.Add(`{"exp":1e300,"info":"\ud800"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		var members map[string]json.RawMessage
		_ = json.Unmarshal([]byte(text), &members)
		if c, err := claimsOfToken(token.Claims{Members: members}); err == nil {
			g := rights{subscribe: newRight([]string{"user:{sub}:*"})}.grant(c.user, c)
			g.MaySubscribe(text)
			if strings.ContainsAny(string(g.Info), "\n\r") || len(g.Info) > maxInfo {
				t.Errorf("info %q", g.Info)
			}
		}
		if a, err := claimsOfAnswer([]byte(text), time.Unix(0, 0)); err == nil && len(a.user) > maxUser {
			t.Errorf("user %q", a.user)
		}
	})
}

func TestConnectEndsWithItsContext(t *testing.T) {
	block := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(block) }) // before the server, which waits for it
	c := newChecker(t, Options{URL: s.URL})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Connect(ctx, request("/ws")); !errors.Is(err, token.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
