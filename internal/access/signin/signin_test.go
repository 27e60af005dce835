package signin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"millrace/internal/access/token"
	"millrace/internal/wire/netset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef0123456789abcdef"

// gate makes one, with trust in 10.0.0.0/8.
func gate(t *testing.T, o Options) *Gate {
	t.Helper()
	if faults := o.Check(); len(faults) > 0 {
		t.Fatal(faults)
	}
	trusted, err := netset.Parse([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(o, netset.NewFinder(trusted, ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// through asks, and returns the answer and what the job was asked with; nil if
// nothing came so far.
func through(g *Gate, r *http.Request) (*httptest.ResponseRecorder, http.Header) {
	var seen http.Header
	w := httptest.NewRecorder()
	g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })).ServeHTTP(w, r)
	return w, seen
}

func request(method, target string, header ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	return r
}

func TestBearer(t *testing.T) {
	sign := func(claims jwt.MapClaims) string {
		s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good, expired := sign(jwt.MapClaims{"sub": "alice"}), sign(jwt.MapClaims{"exp": 1000})
	g := gate(t, Options{JWT: &token.Options{Secret: secret, Cookie: "session"}, UserHeader: "X-User"})
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		says   string // in WWW-Authenticate
	}{
		{"a token", request("GET", "/", "Authorization", "Bearer "+good), 200, ""},
		{"in a cookie", request("GET", "/", "Cookie", "a=b; session="+good), 200, ""},
		{"none", request("GET", "/"), 401, "Bearer"},
		{"in the address", request("GET", "/?token="+good), 401, "Bearer"},
		{"expired", request("GET", "/", "Authorization", "bearer "+expired), 401, `error="invalid_token"`},
		{"garbage", request("GET", "/", "Authorization", `Bearer "x"`), 401, `error="invalid_token"`},
		{"a name that would split a header", request("GET", "/", "Authorization", "Bearer "+sign(jwt.MapClaims{"sub": "a\r\nb"})), 401, "control"},
		{"two", request("GET", "/", "Authorization", "Bearer "+good, "Authorization", "Bearer x"), 400, ""},
		{"another's name and spaces", request("GET", "/", "Authorization", "Bearer "+sign(jwt.MapClaims{"sub": " alice"})), 401, "space"},
		{"the header wins", request("GET", "/", "Authorization", "Bearer x", "Cookie", "session="+good), 401, "invalid_token"},
	} {
		tt.r.Header["X-User"], tt.r.Header["X_user"], tt.r.Header["X.user"] = []string{"mallory"}, []string{"mallory"}, []string{"mallory"}
		w, seen := through(g, tt.r)
		if w.Code != tt.status || !strings.Contains(w.Header().Get("Www-Authenticate"), tt.says) {
			t.Errorf("%s: %d, %q", tt.name, w.Code, w.Header())
		}
		if tt.status == 200 && (seen.Get("X-User") != "alice" || seen["X_user"] != nil || seen["X.user"] != nil) {
			t.Errorf("%s: the job is told of %q", tt.name, seen)
		}
	}
	late := request("GET", "/", "Authorization", "Bearer "+good)
	late.Trailer = http.Header{"X-User": nil, "X_user": nil, "X-Sum": nil}
	if through(g, late); len(late.Trailer) != 1 {
		t.Errorf("announced trailers say who somebody is: %q", late.Trailer)
	}
	anonymous := request("GET", "/", "Authorization", "Bearer "+sign(jwt.MapClaims{}), "X-User", "mallory")
	if _, seen := through(g, anonymous); seen == nil || seen["X-User"] != nil {
		t.Errorf("who has no name has one: %q", seen)
	}
}

func TestForward(t *testing.T) {
	var asked *http.Request
	var answer http.HandlerFunc
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = r; answer(w, r) }))
	t.Cleanup(s.Close)
	g := gate(t, Options{URL: s.URL + "/verify?site=1", Copy: []string{"Remote-User", "remote-groups"}})

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Remote-User", "alice")
		w.Header().Set("X-Secret", "x")
		w.WriteHeader(http.StatusNoContent)
	}
	r := request("POST", "/p%20q?x=1", "Cookie", "s=1", "Authorization", "Basic eA==", "Content-Length", "5", "Content-Type", "text/plain",
		"If-None-Match", `"x"`, "Range", "bytes=0-1", "Connection", "x-hop", "X-Hop", "1", "X-Forwarded-For", "6.6.6.6", "X-Forwarded-Uri", "/open", "X_forwarded_host", "evil",
		"X-Original-Url", "https://site.example/open", "X-Original-Method", "HEAD", "X.forwarded.uri", "/open", "X-Rewrite-Url", "/open", "X-Real-Ip", "10.0.0.1", "X-Http-Method-Override", "PUT",
		"Remote-User", "mallory", "Remote-Groups", "admin", "Remote_user", "mallory", "Accept", "text/html")
	r.Host, r.RemoteAddr = "SITE.example.:80", "192.0.2.7:1"
	w, seen := through(g, r)
	want := http.Header{
		"Cookie": {"s=1"}, "Authorization": {"Basic eA=="}, "Accept": {"text/html"},
		"X-Forwarded-Method": {"POST"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"site.example"}, "X-Forwarded-Uri": {"/p%20q?x=1"},
		"X-Original-Uri": {"/p%20q?x=1"}, "X-Forwarded-For": {"192.0.2.7"},
	}
	if diff := cmp.Diff(want, asked.Header); diff != "" || asked.Method != "GET" || asked.URL.String() != "/verify?site=1" {
		t.Errorf("asked %s %s:\n%s", asked.Method, asked.URL, diff)
	}
	if w.Code != 200 || seen.Get("Remote-User") != "alice" || seen["Remote-Groups"] != nil || seen["Remote_user"] != nil || seen["X-Secret"] != nil || seen.Get("Content-Length") != "5" {
		t.Errorf("%d, the job got %q", w.Code, seen)
	}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://id.example/?back=x")
		w.Header().Add("Set-Cookie", "state=1")
		w.Header().Set("X-Inner", "x")
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusFound)
		_, _ = w.Write([]byte("<a>"))
	}
	if w, seen = through(g, request("GET", "/")); w.Code != 302 || seen != nil || w.Header().Get("Location") != "https://id.example/?back=x" ||
		w.Header().Get("Set-Cookie") != "state=1" || w.Header().Get("X-Inner") != "" || w.Body.String() != "<a>" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %q %q", w.Code, w.Header(), w.Body)
	}
	for status, want := range map[int]int{101: 503, 401: 401, 403: 403, 404: 404, 500: 503, 502: 503, 304: 503} {
		answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		if w, seen = through(g, request("GET", "/")); w.Code != want || seen != nil {
			t.Errorf("%d becomes %d, and the job saw %q", status, w.Code, seen)
		}
	}
	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(make([]byte, maxPage+1))
	}
	if w, _ = through(g, request("GET", "/")); w.Code != 403 || w.Body.Len() > 100 {
		t.Errorf("a page that is too long: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// What a trusted proxy says is believed, what others say is not.
func TestForwardBehindAProxy(t *testing.T) {
	var asked http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.Header }))
	t.Cleanup(s.Close)
	g := gate(t, Options{URL: s.URL})
	for peer, want := range map[string][2]string{"10.1.2.3:1": {"198.51.100.9", "https"}, "192.0.2.7:1": {"192.0.2.7", "http"}} {
		r := request("GET", "/", "X-Forwarded-For", "198.51.100.9", "X-Forwarded-Proto", "https", "X-Original-Url", "/open", "X_real_ip", "6.6.6.6")
		if want[1] == "https" {
			r.Header.Set("Cf-Ipcountry", "DE")
		}
		r.RemoteAddr = peer
		if w, _ := through(g, r); w.Code != 200 || asked.Get("X-Forwarded-For") != want[0] || asked.Get("X-Forwarded-Proto") != want[1] ||
			asked["X-Original-Url"] != nil || asked["X_real_ip"] != nil || asked.Get("Cf-Ipcountry") != r.Header.Get("Cf-Ipcountry") {
			t.Errorf("%s: %q", netip.MustParseAddrPort(peer), asked)
		}
	}
}

// A client for whom the answer takes long keeps nobody else waiting.
func TestForwardIsSlow(t *testing.T) {
	entered, release := make(chan struct{}, 2*token.MaxConns), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-For") == "192.0.2.66" {
			entered <- struct{}{}
			<-release
		}
	}))
	t.Cleanup(s.Close)
	g := gate(t, Options{URL: s.URL, Timeout: time.Minute})
	var slow sync.WaitGroup
	for range 2 * token.MaxConns {
		slow.Go(func() {
			r := request("GET", "/")
			r.RemoteAddr = "192.0.2.66:1"
			through(g, r)
		})
	}
	for range token.MaxConns / 2 {
		<-entered
	}
	if w, _ := through(g, request("GET", "/")); w.Code != 200 {
		t.Errorf("another client gets %d", w.Code)
	}
	close(release)
	slow.Wait()
}

func TestForwardIsDown(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	g := gate(t, Options{URL: s.URL, Timeout: time.Second})
	s.Close()
	if w, seen := through(g, request("GET", "/")); w.Code != 503 || seen != nil {
		t.Errorf("%d, %q", w.Code, seen)
	}
}

func TestSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Signed: &Signed{Secret: secret, OldSecret: strings.Repeat("o", minSecret)}}
		g := gate(t, o)
		sign := func(by *Signed, address string) string {
			s, err := by.Sign(address, time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		good := sign(o.Signed, "/f/a%20b.zip?v=2")
		for _, tt := range []struct {
			name, method, target string
			want                 int
		}{
			{"signed", "GET", good, 200},
			{"HEAD", "HEAD", good, 200},
			{"POST", "POST", good, 403},
			{"with a host", "GET", sign(o.Signed, "https://example.org/x"), 200},
			{"by the old secret", "GET", sign(&Signed{Secret: o.Signed.OldSecret}, "/x"), 200},
			{"by another secret", "GET", sign(&Signed{Secret: strings.Repeat("x", minSecret)}, "/x"), 403},
			{"unsigned", "GET", "/f/a%20b.zip?v=2", 403},
			{"another path", "GET", strings.Replace(good, "a%20b", "b", 1), 403},
			{"written in another way", "GET", strings.Replace(good, "a%20", "%61%20", 1), 403},
			{"a longer time", "GET", strings.Replace(good, "expires=9", "expires=99", 1), 403},
			{"another query", "GET", strings.Replace(good, "v=2", "v=3", 1), 403},
			{"more behind it", "GET", good + "&v=3", 403},
			{"two signatures", "GET", good + "&signature=x", 403},
			{"expires before", "GET", strings.Replace(good, "?v=2", "?expires=9999999999&v=2", 1), 403},
			{"empty", "GET", "/f/a%20b.zip?expires=1&signature=", 403},
		} {
			if w, _ := through(g, request(tt.method, tt.target)); w.Code != tt.want {
				t.Errorf("%s: %s: %d, want %d", tt.name, tt.target, w.Code, tt.want)
			}
		}
		time.Sleep(time.Hour)
		if w, _ := through(g, request("GET", good)); w.Code != 410 {
			t.Errorf("after its time: %d", w.Code)
		}
	})
	for _, address := range []string{"", "files/a", "mailto:x", "/a#b", "/a?expires=1", "/a?signature=x", "http://[::1"} {
		if s, err := (&Signed{Secret: secret}).Sign(address, time.Now()); err == nil {
			t.Errorf("%q became %q", address, s)
		}
	}
	if _, err := (&Signed{Secret: "short"}).Sign("/a", time.Now()); err == nil || !strings.Contains(err.Error(), "guessed") {
		t.Errorf("a short secret: %v", err)
	}
}

// FuzzSigned: whatever is signed is good, and nothing else that differs from it is.
func FuzzSigned(f *testing.F) {
	f.Add("/a?b=c", "/a?b=d")
	f.Add("/%2e/?expires=5", "/a&signature=x")
	s := &Signed{Secret: secret}
	until := time.Unix(2_000_000_000, 0)
	f.Fuzz(func(t *testing.T, address, other string) {
		signed, err := s.Sign(address, until)
		if err == nil && strings.HasPrefix(signed, "/") {
			if at, ok := s.valid(signed); !ok || !at.Equal(until) {
				t.Errorf("%q became %q: %v, %v", address, signed, at, ok)
			}
		}
		if _, ok := s.valid(other); ok && other != signed {
			t.Errorf("%q is good", other)
		}
	})
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want map[string]string
	}{
		{"nothing", Options{}, map[string]string{"passwords": "nobody could come in"}},
		{"off", Options{Off: true}, nil},
		{"off and more", Options{Off: true, URL: "http://a/"}, map[string]string{"off": "alone"}},
		{"two ways", Options{URL: "http://a/", Signed: &Signed{Secret: secret}}, map[string]string{"signed": "url or by signed"}},
		{"url", Options{URL: "a"}, map[string]string{"url": "https://host/path"}},
		{"timeout", Options{URL: "http://a", Timeout: time.Hour}, map[string]string{"timeout": "at most"}},
		{"copy alone", Options{Signed: &Signed{Secret: secret}, Copy: []string{"A"}}, map[string]string{"copy": "without url"}},
		{"copy", Options{URL: "http://a", Copy: []string{"a b", "host", "transfer-encoding", "X"}}, map[string]string{"copy[0]": "not the name", "copy[1]": "itself", "copy[2]": "itself"}},
		{"user", Options{URL: "http://a", UserHeader: "X"}, map[string]string{"user_header": "copy: [Remote-User]"}},
		{"secret", Options{Signed: &Signed{Secret: "x"}}, map[string]string{"signed.secret": "openssl"}},
		{"token", Options{JWT: &token.Options{}}, map[string]string{"jwt": "which tokens are good"}},
		{"token's secret", Options{JWT: &token.Options{Secret: "x"}}, map[string]string{"jwt.secret": "openssl"}},
	} {
		got := tt.o.Check()
		for key, part := range tt.want {
			if err := got[key]; err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %s: %v does not say %q", tt.name, key, err, part)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestExcept: who comes from an address that is excepted is let in, and is not
// who it claims to be; behind a proxy the client's address counts.
func TestExcept(t *testing.T) {
	o := Options{Passwords: map[string]string{"a": "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"}, UserHeader: "X-User", Except: []string{"192.0.2.0/24", "unix"}}
	g := gate(t, o)
	for remote, want := range map[string]int{
		"192.0.2.7:1": 200, "[::ffff:192.0.2.7]:1": 200, "@": 200, "198.51.100.7:1": 401,
		"10.0.0.1:1 192.0.2.7": 200, "10.0.0.1:1 198.51.100.7": 401, "198.51.100.7:1 192.0.2.7": 401, "10.0.0.1:1 192.0.2.7, 198.51.100.7": 401,
	} {
		peer, forwarded, _ := strings.Cut(remote, " ")
		r := request("GET", "/", "X-User", "mallory", "X-Forwarded-For", forwarded)
		r.RemoteAddr = peer
		w, seen := through(g, r)
		if w.Code != want || seen["X-User"] != nil {
			t.Errorf("%s: %d, want %d; the job saw %v", remote, w.Code, want, seen)
		}
	}
	for _, bad := range []Options{{Off: true, Except: []string{"unix"}}, {URL: "http://127.0.0.1:1", Except: []string{"x"}}} {
		if bad.Check()["except"] == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
