package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"millrace/internal/access/signin"
)

const proofSecret = "0123456789abcdef0123456789abcdef"

// tokenOf is a good token of a user's.
func tokenOf(t *testing.T, user string) string {
	t.Helper()
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": user}).SignedString([]byte(proofSecret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProofIsNotShared: whatever a request was let in for, what the cache keeps of
// its answer is for nobody else, with any preset, unless a rule shares it.
func TestProofIsNotShared(t *testing.T) {
	alice, bob := tokenOf(t, "alice"), tokenOf(t, "bob")
	var asked atomic.Int64
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/public") {
			w.Header().Set("Cache-Control", "public, max-age=60")
		} else {
			w.Header().Set("Cache-Control", "max-age=60")
		}
		fmt.Fprintf(w, "%d %s|%s|%s|%s", asked.Add(1), r.Header.Get("Cookie"), r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.URL.RawQuery)
	})
	verify := application(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie")+r.Header.Get("Authorization")+r.Header.Get("X-Key") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	jwt, url := "jwt: {secret: "+proofSecret+", cookie: session}", "url: '"+verify+"'"
	var routes strings.Builder
	for i, gate := range []string{jwt, url} {
		for _, cache := range []string{"preset: api", "preset: rfc9111", "preset: assets", "preset: rfc9111, rules: [{share: true}]", "preset: rfc9111, key: {cookies: [session]}", "preset: assets, key: {headers: [Authorization]}", "preset: rfc9111, key: {headers: [Authorization]}"} {
			fmt.Fprintf(&routes, "    /%d/%s/: {cache: {to: '%s', ttl: 1m, %s}, auth: {%s}}\n", i, strings.NewReplacer(" ", "", ":", "", ",", "", "{", "", "}", "", "[", "", "]", "").Replace(cache), app, cache, gate)
		}
	}
	everyWay(t, "sites:\n- routes:\n"+routes.String(), func(w *way) {
		says := func(target string, head ...string) (*http.Response, string) {
			w.Helper()
			resp, body := w.ask("GET", target, "", head...)
			if resp.StatusCode != 200 {
				w.Errorf("%s %v: %d %s", target, head, resp.StatusCode, body)
			}
			return resp, body
		}
		unique := fmt.Sprint("/", strings.ReplaceAll(w.Name(), "/", "-"))
		for _, c := range []struct {
			route  string
			by     string // the field
			shared bool
		}{
			{"/0/presetapi", "Cookie", false},
			{"/0/presetrfc9111", "Cookie", false},
			{"/0/presetassets", "Cookie", false},
			{"/0/presetrfc9111rulessharetrue", "Cookie", true},
			{"/0/presetrfc9111keycookiessession", "Cookie", false},
			{"/0/presetassetskeyheadersAuthorization", "Cookie", false},
			{"/0/presetrfc9111keyheadersAuthorization", "Cookie", false},
			{"/0/presetrfc9111", "Authorization", false},
			{"/0/presetassets", "Authorization", false},
			{"/1/presetapi", "Cookie", false},
			{"/1/presetapi", "X-Key", false},
			{"/1/presetrfc9111", "Cookie", false},
			{"/1/presetrfc9111", "X-Key", false},
			{"/1/presetassets", "X-Key", false},
			{"/1/presetassets", "Cookie", false},
			{"/1/presetrfc9111rulessharetrue", "Cookie", true},
			{"/1/presetrfc9111keycookiessession", "Cookie", false},
			{"/1/presetrfc9111keycookiessession", "X-Key", false},
			{"/1/presetassetskeyheadersAuthorization", "X-Key", false},
			{"/1/presetrfc9111keyheadersAuthorization", "Cookie", false},
		} {
			value := func(user string) string {
				return map[string]string{"Cookie": "session=" + user, "Authorization": "Bearer " + user, "X-Key": user}[c.by]
			}
			target := c.route + unique + c.by
			says(target, c.by, value(alice))
			_, hers := says(target, c.by, value(alice))
			_, his := says(target, c.by, value(bob))
			if (hers == his) != c.shared {
				w.Errorf("%s by %s: alice and bob get %q and %q", c.route, c.by, hers, his)
			}
			if !c.shared && strings.Contains(his, alice) || !strings.Contains(his, bob) && !c.shared {
				w.Errorf("%s by %s: bob gets %q", c.route, c.by, his)
			}
			if c.shared && strings.Contains(his, "session=") {
				w.Errorf("%s by %s: what is everybody's depends on %q", c.route, c.by, his)
			}
		}
		// Keyed, it is kept for each; called public, it is kept for all (RFC 9111, 3.5).
		for _, user := range []string{alice, bob} {
			_, first := says("/0/presetrfc9111keycookiessession"+unique, "Cookie", "session="+user)
			if _, again := says("/0/presetrfc9111keycookiessession"+unique, "Cookie", "session="+user); again != first {
				w.Errorf("keyed: %q, then %q", first, again)
			}
		}
		_, hers := says("/0/presetrfc9111"+unique+"/public", "Cookie", "session="+alice)
		if _, his := says("/0/presetrfc9111"+unique+"/public", "Cookie", "session="+bob); hers != his {
			w.Errorf("public: %q and %q", hers, his)
		}
	})
}

// TestOneProof: where several things could be what a request is let in for, it is
// refused, or the job sees the one alone that was checked.
func TestOneProof(t *testing.T) {
	alice, evil := tokenOf(t, "alice"), "eyJhbGciOiJub25lIn0.eyJzdWIiOiJldmlsIn0."
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s|%s|%s|%s", strings.Join(r.Header["Cookie"], "+"), strings.Join(r.Header["Authorization"], "+"), r.URL.RawQuery, r.Header.Get("X-User"))
	})
	verify := application(t, func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("s"); err != nil || c.Value != "good" { // the first one, as Go has it
			w.WriteHeader(http.StatusForbidden)
		}
	})
	everyWay(t, `sites:
- routes:
    /: {proxy: '`+app+`', auth: {jwt: {secret: `+proofSecret+`, cookie: session}, user_header: X-User}}
    /cached/: {cache: {to: '`+app+`', preset: rfc9111}, auth: {jwt: {secret: `+proofSecret+`, cookie: session}, user_header: X-User}}
    /asked/: {proxy: '`+app+`', auth: {url: '`+verify+`'}}
`, func(w *way) {
		for _, prefix := range []string{"/", "/cached/"} {
			for i, c := range []struct {
				target string
				head   []string
			}{
				{"", []string{"Cookie", "session=" + alice}},
				{"", []string{"Cookie", "session=" + alice + "; session=" + evil}},
				{"", []string{"Cookie", "session=" + evil + "; session=" + alice}},
				{"", []string{"Cookie", "session=" + alice, "Cookie", "session=" + evil}},
				{"", []string{"Cookie", "session=" + alice, "Cookie", "a=b; session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; Session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; %73ession=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; session[]=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; a=b, session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + `; session="` + evil}},
				{"", []string{"Cookie", "session=" + alice + "; session =" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; \u00a0session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; session\u2003=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; \xa0session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; %C2%85session=" + evil}},
				{"", []string{"Cookie", "session=" + alice + "; =session=" + evil}},
				{"", []string{"Cookie", "session=" + evil + "; a=b", "Authorization", "Bearer " + alice}},
				{"", []string{"Cookie", "Session=" + evil, "Authorization", "bearer  " + alice}},
				{"", []string{"Cookie", "session=" + alice, "Authorization", "Bearer\t" + evil}},
				{"", []string{"Cookie", "session=" + alice, "Authorization", evil}},
				{"", []string{"Cookie", "session=" + alice, "Authorization", "JWT " + evil}},
				{"", []string{"Authorization", "Bearer " + alice, "Authorization", "Bearer " + evil}},
				{"?access_token=" + evil, []string{"Authorization", "Bearer " + alice}},
				{"?a=b&access%5ftoken=" + evil, []string{"Cookie", "session=" + alice}},
				{"?session=" + evil, []string{"Cookie", "session=" + alice}},
			} {
				resp, body := w.ask("GET", prefix+fmt.Sprint("x", i)+c.target, "", c.head...)
				switch {
				case resp.StatusCode == 400, resp.StatusCode == 401 && i > 0:
				case resp.StatusCode != 200 || strings.Contains(body, evil) || !strings.Contains(body, alice) || prefix == "/" && !strings.HasSuffix(body, "|alice"):
					w.Errorf("%s%s %v: %d, the job gets %s", prefix, c.target, c.head, resp.StatusCode, body)
				}
			}
		}
		// What is no token stays, and so do other cookies.
		for _, c := range [][3]string{
			{"session=" + alice, "Basic eDp5", "session=" + alice + "|Basic eDp5||alice"},
			{"a=b; session=x; c=d", "Bearer " + alice, "a=b; c=d|Bearer " + alice + "||alice"},
			{"session=x", "Bearer " + alice, "|Bearer " + alice + "||alice"},
			{"a=b; session=" + alice + "; session=" + alice, "", "a=b; session=" + alice + "; session=" + alice + "|||alice"},
		} {
			head := []string{"Cookie", c[0], "Authorization", c[1]}
			if c[1] == "" {
				head = head[:2]
			}
			if resp, body := w.ask("GET", "/", "", head...); resp.StatusCode != 200 || body != c[2] {
				w.Errorf("%q: %d %q", c, resp.StatusCode, body)
			}
		}
		for _, head := range [][]string{{"Cookie", "s=good; s=evil; t=1"}, {"Cookie", "s=good", "Cookie", "s=evil; t=1"}, {"Cookie", "s=good; S=evil; t=1"}} {
			if resp, body := w.ask("GET", "/asked/x", "", head...); resp.StatusCode != 200 || body != "s=good; t=1|||" {
				w.Errorf("asked with %q: %d %q", head, resp.StatusCode, body)
			}
		}
	})
}

// TestSignatureStays: the signature of an address is between its client and the
// gate. Who answers does not see it, and everybody with one shares the answer.
func TestSignatureStays(t *testing.T) {
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprintf(w, "%s %s", r.RequestURI, r.Header.Get("X-Asked"))
		if referer := r.Header.Get("Referer"); referer != "http://site.example/page?a=b" {
			t.Errorf("the application gets Referer %q", referer)
		}
	})
	everyWay(t, `sites:
- rules: [{path: '/moved/*', rewrite: '/proxied/{1}?b=c&{query}'}]
  routes:
    /cached/: {cache: '`+app+`', auth: {signed: {secret: `+proofSecret+`}}}
    /proxied/: {proxy: {to: '`+app+`', request_headers: {set: {X-Asked: '{query}'}}}, auth: {signed: {secret: `+proofSecret+`}}}
`, func(w *way) {
		by := &signin.Signed{Secret: proofSecret}
		for address, want := range map[string]string{"/cached/a": "/cached/a ", "/cached/a?v=2&expire=3": "/cached/a?v=2&expire=3 ", "/proxied/a?v=1": "/proxied/a?v=1 v=1", "/proxied/a": "/proxied/a ", "/moved/a": "/proxied/a?b=c b=c"} {
			for hours := range 3 {
				signed, err := by.Sign(address, time.Now().Add(time.Duration(hours+1)*time.Hour))
				if err != nil {
					w.Fatal(err)
				}
				resp, body := w.ask("GET", signed, "", "Referer", "http://site.example/page?a=b&expires=5&signature=x")
				if resp.StatusCode != 200 || body != want {
					w.Errorf("%s: %d %q", address, resp.StatusCode, body)
				}
				if hours > 0 && strings.HasPrefix(address, "/cached/") && !strings.Contains(resp.Header.Get("Cache-Status"), "hit") {
					w.Errorf("%s: %q", address, resp.Header.Get("Cache-Status"))
				}
			}
			if resp, _ := w.ask("GET", address, ""); resp.StatusCode != 403 {
				w.Errorf("%s without a signature: %d", address, resp.StatusCode)
			}
		}
	})
}

// TestGatesOneAfterTheOther: a route that a gate has let a request in to may try another
// one with the same gate, or with its own. The names that both have told are nobody
// else's.
func TestGatesOneAfterTheOther(t *testing.T) {
	alice := tokenOf(t, "alice")
	dir := folder(t, map[string]string{"here.txt": "here"})
	var asks atomic.Int64
	verify := application(t, func(w http.ResponseWriter, r *http.Request) {
		asks.Add(1)
		w.Header().Set("Remote-User", "of "+r.Header.Get("X-Key"))
	})
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprintf(w, "%s|%s|%s|%s", r.RequestURI, r.Header.Get("Remote-User"), r.Header.Get("X-User"), r.Header.Get("Cookie"))
	})
	everyWay(t, `sites:
- hosts: [signed.example]
  auth: {signed: {secret: `+proofSecret+`}}
  routes:
    /: {static: {root: '`+dir+`'}, try: ['{path}', '@app']}
    '@app': {proxy: '`+app+`'}
- auth: {url: '`+verify+`', copy: [Remote-User]}
  routes:
    /: {static: {root: '`+dir+`'}, try: ['{path}', '@app']}
    '@app': {proxy: '`+app+`'}
    /two/: {static: {root: '`+dir+`'}, try: ['{path}', '@two']}
    '@two': {cache: {to: '`+app+`', rules: [{share: true}]}, auth: {jwt: {secret: `+proofSecret+`, cookie: session}, user_header: X-User}}
`, func(w *way) {
		by := &signin.Signed{Secret: proofSecret}
		for address, want := range map[string]string{"/here.txt": "here", "/else?a=b": "/else?a=b|||"} {
			signed, err := by.Sign(address, time.Now().Add(time.Hour))
			if err != nil {
				w.Fatal(err)
			}
			if resp, body := w.ask("GET", signed, "", "Host", "signed.example"); resp.StatusCode != 200 || body != want {
				w.Errorf("%s: %d %q", address, resp.StatusCode, body)
			}
		}
		asks.Store(0)
		if resp, body := w.ask("GET", "/else", "", "X-Key", "ann"); resp.StatusCode != 200 || body != "/else|of ann||" || asks.Load() != 1 {
			w.Errorf("%d %q, asked %d times", resp.StatusCode, body, asks.Load())
		}
		for _, key := range []string{"ann", "bob"} {
			if resp, body := w.ask("GET", "/two/x", "", "X-Key", key, "Cookie", "session="+alice); resp.StatusCode != 200 || body != "/two/x|||" {
				w.Errorf("%s: %d %q", key, resp.StatusCode, body)
			}
		}
	})
}

// TestPagesAreForEverybody: the page of a status is sent to who is not let in, but
// nothing in its request says who that is; a named route asks as ever.
func TestPagesAreForEverybody(t *testing.T) {
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s|%s|%s|%s", r.URL.Path, r.Header.Get("X-User")+r.Header.Get("X_user"), r.Header.Get("Cookie"), r.Header.Get("Authorization"))
	})
	everyWay(t, `sites:
- auth: {jwt: {secret: `+proofSecret+`, cookie: session}, user_header: X-User}
  errors: {401: /page, 403: '@app', 404: '@app'}
  routes:
    /page: {proxy: '`+app+`'}
    /in/: {proxy: '`+app+`'}
    /closed/: {proxy: '`+app+`', access: {deny: ['127.0.0.0/8']}}
    '@app': {proxy: '`+app+`'}
`, func(w *way) {
		forged := []string{"Cookie", "session=evil", "Authorization", "Bearer evil", "X-User", "root", "X_user", "root"}
		for path, want := range map[string]string{"/in/x": "401 /page|||", "/closed/x": "403 You may not see this page. If you think you should, ask the owner of the site.\n", "/nothing": "404 Nothing is here. Check the address for mistakes, or start at the front page of the site.\n"} {
			if resp, body := w.ask("GET", path, "", forged...); fmt.Sprint(resp.StatusCode, " ", body) != want {
				w.Errorf("%s: %d %q, want %q", path, resp.StatusCode, body, want)
			}
		}
		good := "Bearer " + tokenOf(t, "alice")
		if resp, body := w.ask("GET", "/nothing", "", "Authorization", good); resp.StatusCode != 404 || body != "/nothing|alice||"+good {
			w.Errorf("who may: %d %q", resp.StatusCode, body)
		}
	})
}
