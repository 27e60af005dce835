package admin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
)

const testToken = "0123456789abcdef"

// countedInside counts what came through the gate.
func countedInside() (http.Handler, *int) {
	n := new(int)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { *n++; io.WriteString(w, "inside") }), n
}

func TestGateForPrograms(t *testing.T) {
	next, n := countedInside()
	g := newGate(testToken, 9000, next)
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", 401},
		{"/metrics", "Bearer " + testToken, 200},
		{"/metrics", "bearer " + testToken, 200},
		{"/metrics", "Bearer wrong", 401},
		{"/metrics", "Basic " + testToken, 401},
		{"/metrics?token=" + testToken, "", 401},
		{"/dashboard/all.json", "", 401},
		{"/debug/pprof/", "", 401},
		{"/healthz", "", 200},
		{"/dashboard/assets/dashboard.css", "", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		before, w := *n, httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != c.want || (*n > before) != (c.want == 200) {
			t.Errorf("%s with %q: %d, want %d; %d came through", c.path, c.authorization, w.Code, c.want, *n-before)
		}
		if c.want == 401 && !strings.Contains(w.Header().Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: no WWW-Authenticate", c.path)
		}
	}
}

// A browser is led to the form, gets a cookie for the token, and loses it again.
func TestGateForBrowsers(t *testing.T) {
	next, n := countedInside()
	s := httptest.NewServer(newGate(testToken, 9000, next))
	defer s.Close()
	jar, _ := cookiejar.New(nil)
	client := &http.Client{Jar: jar}
	get := func() (string, string) {
		r, _ := http.NewRequest(http.MethodGet, s.URL+"/dashboard/", nil)
		r.Header.Set("Accept", "text/html")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.Request.URL.Path, string(b)
	}
	if at, text := get(); at != loginPath || !strings.Contains(text, `name="token"`) || *n != 0 {
		t.Fatalf("led to %s: %s", at, text)
	}
	post := func(path, token string) int {
		resp, err := client.PostForm(s.URL+path, url.Values{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := post(loginPath, "wrong"); code != 401 {
		t.Errorf("a wrong token: %d", code)
	}
	if code := post(loginPath+"?token="+testToken, ""); code != 401 {
		t.Errorf("a token in the URL: %d", code)
	}
	if code := post(loginPath, testToken); code != 200 {
		t.Errorf("the token: %d", code)
	}
	if at, text := get(); at != "/dashboard/" || text != "inside" {
		t.Errorf("logged in, but at %s: %s", at, text)
	}
	post(logoutPath, "")
	if at, _ := get(); at != loginPath {
		t.Errorf("logged out, but at %s", at)
	}
}

func TestSessions(t *testing.T) {
	next, _ := countedInside()
	g, now := newGate(testToken, 9000, next), time.Now()
	s := g.session(now)
	c := g.cookieOf(s, 1)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", c)
	}
	if !g.genuine(s, now.Add(sessionTime-time.Second)) || g.genuine(s, now.Add(sessionTime)) {
		t.Error("a session does not last as long as it should")
	}
	if newGate(testToken+"x", 9000, next).genuine(s, now) {
		t.Error("another token's session is taken")
	}
	if !newGate(testToken, 9000, next).genuine(s, now) {
		t.Error("a session does not outlive a restart")
	}
	for i := range s {
		broken := []byte(s)
		if broken[i] = 'A'; s[i] == 'A' {
			broken[i] = 'B'
		}
		if g.genuine(string(broken), now) {
			t.Errorf("a session with another byte %d is taken", i)
		}
	}
	for _, bad := range []string{"", "x", s[:len(s)-1], s + "A", strings.Repeat("A", 1<<16)} {
		if g.genuine(bad, now) {
			t.Errorf("%.20q is taken", bad)
		}
	}
}

// Whoever guesses has to wait, even with the right token; others have not.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, _ := countedInside()
		g := newGate(testToken, 9000, next)
		try := func(from, token string) int {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.RemoteAddr = from
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return w.Code
		}
		for range maxGuesses {
			if code := try("192.0.2.1:1", "wrong"); code != 401 {
				t.Fatalf("a wrong token: %d", code)
			}
		}
		if code := try("192.0.2.1:2", testToken); code != 429 {
			t.Errorf("after too many: %d", code)
		}
		if code := try("192.0.2.2:1", testToken); code != 200 {
			t.Errorf("another address: %d", code)
		}
		for i := range maxGuesses { // all of one network of IPv6
			try(fmt.Sprintf("[2001:db8::%d]:1", i), "wrong")
		}
		if code := try("[2001:db8::99]:1", testToken); code != 429 {
			t.Errorf("another address of the same network: %d", code)
		}
		time.Sleep(guessWindow)
		if code := try("192.0.2.1:3", testToken); code != 200 {
			t.Errorf("after the window: %d", code)
		}
		for i := range 2 * maxGuessers {
			try(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "wrong")
		}
		if len(g.guessers) > maxGuessers {
			t.Errorf("%d addresses are remembered", len(g.guessers))
		}
	})
}

// The token is asked for at TCP addresses only, and the warning says how to set it.
func TestTokenAndWarning(t *testing.T) {
	t.Setenv(FolderVariable, t.TempDir())
	for _, c := range []struct {
		listen, token string
		warns         bool
		want          int
	}{
		{"127.0.0.1:0", "", false, 200},
		{"127.0.0.1:0", testToken, false, 401},
		{"0.0.0.0:0", "", true, 200},
		{"0.0.0.0:0", testToken, false, 401},
		{"", testToken, false, 200},
	} {
		a, err := New(Options{Listen: c.listen, Token: c.token}, Deps{Meters: meter.New()})
		if err != nil {
			t.Fatal(err)
		}
		go a.Serve()
		if warns := strings.Contains(a.Warning(), "MILLRACE_ADMIN_TOKEN"); warns != c.warns {
			t.Errorf("%+v: the warning is %q", c, a.Warning())
		}
		client, base, err := Client(strings.Replace(a.Addr(), "[::]", "127.0.0.1", 1))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(base + "/addrs")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%+v: %d", c, resp.StatusCode)
		}
		a.Close()
	}
	if _, err := New(Options{Listen: "127.0.0.1:0", Token: "short"}, Deps{Meters: meter.New()}); err == nil || !strings.Contains(err.Error(), "openssl rand") {
		t.Errorf("a short token: %v", err)
	}
}
