package challenge

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	tokenAt  = regexp.MustCompile(`name="token" value="([^"]*)"`)
	actionAt = regexp.MustCompile(`action="([^"]*)"`)
)

func newTest() *Challenge {
	return New(Terms{Secret: []byte("0123456789abcdef"), Work: 8, Wait: 5 * time.Second, Lasts: time.Hour})
}

// work finds a number as the page's script does.
func work(token string, zeros int) string {
	for n := 0; ; n++ {
		if s := strconv.Itoa(n); worked(token, s, zeros) {
			return s
		}
	}
}

// asked is the token that the page has for a client.
func asked(t *testing.T, c *Challenge, target, why string, client netip.Addr) (token, action string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.Ask(w, httptest.NewRequest(http.MethodGet, target, http.NoBody), why, client, time.Now(), http.StatusForbidden)
	text := w.Body.String()
	if w.Code != http.StatusForbidden || tokenAt.FindStringSubmatch(text) == nil || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), text)
	}
	return tokenAt.FindStringSubmatch(text)[1], strings.ReplaceAll(actionAt.FindStringSubmatch(text)[1], "&amp;", "&")
}

// prove sends a proof, and returns the answer.
func prove(c *Challenge, action, token, nonce string, client netip.Addr) *http.Response {
	form := url.Values{"token": {token}, "nonce": {nonce}}.Encode()
	r := httptest.NewRequest(http.MethodPost, action, strings.NewReader(form))
	w := httptest.NewRecorder()
	c.Take(w, r, client, time.Now())
	return w.Result()
}

func passes(c *Challenge, cookie *http.Cookie, why string, client netip.Addr) bool {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.AddCookie(cookie)
	return c.Passed(r.Header["Cookie"], why, client, time.Now())
}

func TestProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTest()
		one, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:0:1::1")
		token, action := asked(t, c, "/a/b?q=1&x=%22", "agent", one)
		if action != "/a/b?q=1&x=%22&millrace-proof" || !Proves(http.MethodPost, httptest.NewRequest(http.MethodPost, action, http.NoBody).URL.RawQuery) {
			t.Errorf("the proof goes to %s", action)
		}
		for what, answer := range map[string]*http.Response{
			"no work":           prove(c, action, token, "x", one),
			"too early":         prove(c, action, token, "", one),
			"of another client": prove(c, action, token, work(token, 8), other),
			"altered":           prove(c, action, "network"+strings.TrimPrefix(token, "agent"), work("network"+strings.TrimPrefix(token, "agent"), 8), one),
		} {
			if answer.StatusCode != http.StatusForbidden || len(answer.Cookies()) > 0 {
				t.Errorf("%s: %s", what, answer.Status)
			}
		}
		if a := prove(c, action, "nonsense", "1", one); a.StatusCode != http.StatusBadRequest {
			t.Error(a.Status)
		}
		a := prove(c, action, token, work(token, 8), netip.MustParseAddr("2001:db8::ffff"))
		if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/a/b?q=1&x=%22" || len(a.Cookies()) != 1 {
			t.Fatal(a.Status, a.Header)
		}
		k := a.Cookies()[0]
		if !k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Path != "/" || k.MaxAge != 3600 {
			t.Errorf("%+v", k)
		}
		if !passes(c, k, "agent", one) || passes(c, k, "agent", other) || passes(c, k, "rate", one) {
			t.Error("the cookie is not bound to the client and the reason")
		}
		forged := *k
		forged.Value = "zzzzzz" + strings.TrimLeft(k.Value, "0123456789abcdefghijklmnopqrstuvwxyz")
		if passes(c, &forged, "agent", one) {
			t.Error("its time can be changed")
		}
		time.Sleep(time.Hour + time.Second)
		if passes(c, k, "agent", one) {
			t.Error("it is good for ever")
		}
		if a := prove(c, action, token, work(token, 8), one); a.StatusCode != http.StatusForbidden {
			t.Error("an old question can be answered")
		}
		token, action = asked(t, c, "/", "rate", one)
		time.Sleep(5 * time.Second)
		if a := prove(c, action, token, "", one); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/" {
			t.Error("who has waited is not let in", a.Status)
		}
	})
}

// What is not asked for by a browser gets a sentence, and no path leads elsewhere.
func TestAsk(t *testing.T) {
	c := newTest()
	for _, path := range []string{"//evil.example/x", "/\\evil.example"} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL.Path = path
		if to := target(r, false); len(to) < 2 || to[0] != '/' || to[1] == '/' || to[1] == '\\' {
			t.Errorf("%s leads to %s", path, to)
		}
	}
	r := httptest.NewRequest(http.MethodGet, `/"><script>`, http.NoBody)
	w := httptest.NewRecorder()
	c.Ask(w, r, "agent", netip.Addr{}, time.Now(), http.StatusForbidden)
	if strings.Count(w.Body.String(), "<script>") != 1 || strings.Contains(w.Body.String(), "{") && strings.Contains(w.Body.String(), "{token}") {
		t.Error(w.Body)
	}
	r.Header.Set("Accept", "application/json")
	w = httptest.NewRecorder()
	c.Ask(w, r, "rate", netip.Addr{}, time.Now(), http.StatusTooManyRequests)
	if w.Code != http.StatusTooManyRequests || strings.Contains(w.Body.String(), "<") || w.Header().Get("Retry-After") != "5" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	r = httptest.NewRequest(http.MethodPost, "/?"+Marker, strings.NewReader(strings.Repeat("x", maxProof+1)))
	w = httptest.NewRecorder()
	if c.Take(w, r, netip.Addr{}, time.Now()); w.Code != http.StatusBadRequest {
		t.Error(w.Code)
	}
}

func FuzzCheck(f *testing.F) {
	c, now := newTest(), time.Unix(1<<30, 0)
	f.Add("agent.abc.def", "1")
	f.Add("rate.zzzzzzzzzzzzzzz.", "")
	f.Fuzz(func(t *testing.T, token, nonce string) {
		if _, err := c.check(token, nonce, netip.Addr{}, now); err == nil {
			t.Errorf("%q %q is taken for a proof", token, nonce)
		}
	})
}

func BenchmarkPassed(b *testing.B) {
	c := newTest()
	token := "agent.a.b"
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.AddCookie(&http.Cookie{Name: "millrace-agent", Value: token})
	b.ReportAllocs()
	for b.Loop() {
		c.Passed(r.Header["Cookie"], "agent", netip.Addr{}, time.Now())
	}
}

// TestProofIsWorthWhatWasAsked: who has proved something to another site, or less than
// is asked, has proved nothing; who has proved more has proved enough.
func TestProofIsWorthWhatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := netip.MustParseAddr("192.0.2.1")
		terms := Terms{Secret: []byte("0123456789abcdef"), Site: "shop", Work: 10, Wait: 5 * time.Second, Lasts: time.Hour}
		c := New(terms)
		token, action := asked(t, c, "/", "agent", client)
		k := prove(c, action, token, work(token, 10), client).Cookies()[0]
		for name, o := range map[string]struct {
			change func(*Terms)
			passes bool
		}{
			"the same":         {func(*Terms) {}, true},
			"a weaker part":    {func(o *Terms) { o.Work = 8 }, true},
			"a shorter wait":   {func(o *Terms) { o.Wait = time.Second }, true},
			"longer good":      {func(o *Terms) { o.Lasts = 2 * time.Hour }, true},
			"another site":     {func(o *Terms) { o.Site = "blog" }, false},
			"a stronger part":  {func(o *Terms) { o.Work = 11 }, false},
			"a longer wait":    {func(o *Terms) { o.Wait = 6 * time.Second }, false},
			"shorter good":     {func(o *Terms) { o.Lasts = time.Minute }, false},
			"another's secret": {func(o *Terms) { o.Secret = []byte("0123456789abcdeg") }, false},
		} {
			other := terms
			o.change(&other)
			if got := passes(New(other), k, "agent", client); got != o.passes {
				t.Errorf("%s: %v", name, got)
			}
			if o.passes {
				continue
			}
			if a := prove(New(other), action, token, work(token, 12), client); name != "shorter good" && len(a.Cookies()) > 0 {
				t.Errorf("%s: what was asked elsewhere can be proved here", name)
			}
		}
		for _, value := range []string{"24-60000", "010-5000", "10-5000-1", "10", ""} {
			until, rest, _ := strings.Cut(k.Value, ".")
			_, mac, _ := strings.Cut(rest, ".")
			forged := *k
			if forged.Value = until + "." + value + "." + mac; passes(New(terms), &forged, "agent", client) {
				t.Errorf("%s passes", forged.Value)
			}
		}
	})
}
