package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"millrace/cache"
	"millrace/cache/purge"
	"millrace/internal/observe/meter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A *cache.Handler can be controlled.
var _ Cache = (*cache.Handler)(nil)

// fake is a cache that remembers what it was asked.
type fake struct {
	purged []purge.Selector
	fail   error
	await  func(context.Context) error
	asked  *http.Request
	recent []cache.Decision
}

func (f *fake) Purge(_ context.Context, s purge.Selector) error {
	f.purged = append(f.purged, s)
	return f.fail
}

func (f *fake) Announce(ctx context.Context, s purge.Selector) (func(context.Context) error, error) {
	return f.await, f.Purge(ctx, s)
}

func (f *fake) Explain(r *http.Request) cache.Explanation {
	f.asked = r
	return cache.Explanation{URL: r.RequestURI, Outcome: "hit", TTL: time.Minute, Tags: []string{"a"}}
}

func (f *fake) Recent(filter string, most int) []cache.Decision {
	var list []cache.Decision
	for _, d := range f.recent {
		if strings.Contains(d.URL, filter) && len(list) < most {
			list = append(list, d)
		}
	}
	return list
}

// byPath routes as internal/route/site does: the longest prefix.
func byPath(r *http.Request) (string, bool) {
	for _, route := range []string{"/api/", "/feed/", "/static/"} {
		if strings.HasPrefix(r.URL.Path, route) {
			return route, true
		}
	}
	return "", false
}

// serve starts a server on a UNIX socket and returns a client for it.
func serve(t testing.TB, h http.Handler) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skipf("no UNIX socket in %s: %v", dir, err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		<-done
	})
	return &Client{HTTP: &http.Client{Transport: tr}, Base: "http://millrace"}
}

// two is a server with two caches.
func two(t testing.TB) (c *Client, api, feed *fake) {
	api, feed = new(fake), new(fake)
	m := meter.New()
	m.Cache("/api/").Hit.Add(0, 5)
	m.Cache("/api/").Memory.Set(7)
	m.Cache("/api/").Reasons.Add("cookie")
	m.Cache("/feed/")
	return serve(t, Handler(func() map[string]*fake { return map[string]*fake{"/api/": api, "/feed/": feed} }, byPath, m.Caches)), api, feed
}

func TestPurge(t *testing.T) {
	c, api, feed := two(t)
	for _, tt := range []struct {
		ask  Purge
		want []string
	}{
		{Purge{Selector: purge.Selector{Tag: "news"}}, []string{"/api/", "/feed/"}},
		{Purge{Selector: purge.Selector{URL: "http://a.example/api/x?y=ü", Hard: true}, Route: "/api/"}, []string{"/api/"}},
		{Purge{Selector: purge.Selector{All: true}, Route: "/feed/"}, []string{"/feed/"}},
	} {
		*api, *feed = fake{}, fake{}
		done, err := c.Purge(t.Context(), tt.ask)
		if err != nil || !slices.Equal(done.Routes, tt.want) {
			t.Errorf("%+v: %+v, %v; want %v", tt.ask, done, err, tt.want)
		}
		for route, f := range map[string]*fake{"/api/": api, "/feed/": feed} {
			var want []purge.Selector
			if slices.Contains(tt.want, route) {
				want = append(want, tt.ask.Selector)
			}
			if diff := cmp.Diff(want, f.purged); diff != "" {
				t.Errorf("%+v: %s (-want +got):\n%s", tt.ask, route, diff)
			}
		}
	}
}

func TestPurgeUnannounced(t *testing.T) {
	c, api, feed := two(t)
	feed.fail = errors.New("redis is down")
	done, err := c.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}})
	if !Unannounced(err) || !strings.Contains(err.Error(), "redis is down") || !strings.Contains(err.Error(), "/feed/") {
		t.Errorf("error %v", err)
	}
	if len(done.Routes) != 2 || len(api.purged) != 1 {
		t.Errorf("done %+v, the other cache %v", done, api.purged)
	}
	if Unannounced(nil) || Unannounced(errors.New("other")) {
		t.Error("any error is taken for one that comes after the purge")
	}
}

// TestPurgeWait: who wants to know waits for all machines, for all routes at once, and is
// told which do not have it.
func TestPurgeWait(t *testing.T) {
	c, api, feed := two(t)
	began := 0
	api.await = func(ctx context.Context) error {
		if began = len(feed.purged); began == 0 {
			t.Error("the wait for one cache begins before the other is purged")
		}
		<-ctx.Done()
		return &purge.MissingError{Machines: []string{"web 2, silent for 9s", "web 3"}}
	}
	feed.await = func(ctx context.Context) error { return nil }
	done, err := c.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}, Wait: "20ms"})
	if !Unannounced(err) || !strings.Contains(err.Error(), "in the cache of /api/: purged here, but not yet on web 2, silent for 9s; web 3") {
		t.Errorf("error %v", err)
	}
	if len(done.Problems) != 1 || !slices.Equal(done.Problems[0].Missing, []string{"web 2, silent for 9s", "web 3"}) {
		t.Errorf("%+v", done)
	}
	api.await = feed.await
	if done, err := c.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}, Wait: "20ms"}); err != nil || len(done.Routes) != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	for _, wait := range []string{"x", "0s", "-1s", "51s"} {
		before := len(api.purged)
		_, err := c.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}, Wait: wait})
		fails(t, err, "must be a time like 10s")
		if len(api.purged) != before {
			t.Errorf("with a wait of %q something was purged", wait)
		}
	}
}

// fails checks that an error says what a person needs.
func fails(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func TestPurgeErrors(t *testing.T) {
	c, api, _ := two(t)
	_, err := c.Purge(t.Context(), Purge{})
	fails(t, err, "nothing to purge")
	_, err = c.Purge(t.Context(), Purge{Selector: purge.Selector{Tag: "a", All: true}})
	fails(t, err, "more than one")
	_, err = c.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}, Route: "/no/"})
	fails(t, err, "the routes with a cache are /api/, /feed/")
	_, err = c.Purge(t.Context(), Purge{Selector: purge.Selector{URL: "http://a/" + strings.Repeat("x", maxBody)}})
	fails(t, err, "more than 65536 bytes")
	for _, body := range []string{``, `[]`, `{"tags":"a"}`, `{"all":true}{"all":true}`, `{"all":`} {
		err := c.call(t.Context(), "POST", "purge", nil, []byte(body), new(Purged))
		if err == nil {
			t.Errorf("%q was accepted", body)
		}
	}
	if api.purged != nil {
		t.Errorf("purged %v", api.purged)
	}
	none := serve(t, Handler(func() map[string]*fake { return nil }, byPath, nil))
	_, err = none.Purge(t.Context(), Purge{Selector: purge.Selector{All: true}})
	fails(t, err, "no route with a cache")
}

func TestExplain(t *testing.T) {
	c, api, feed := two(t)
	e, err := c.Explain(t.Context(), "https://blog.example:8443/api//x%2Fy?b=2&a=%zz", "", http.Header{"Accept": {"a/b", "c/d"}, "Cookie": {"x=1: 2"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Explanation{"/api/", cache.Explanation{URL: "/api//x%2Fy?b=2&a=%zz", Outcome: "hit", TTL: time.Minute, Tags: []string{"a"}}}); !cmp.Equal(want, e) {
		t.Errorf("explanation (-want +got):\n%s", cmp.Diff(want, e))
	}
	r := api.asked
	if r.Method != "GET" || r.Host != "blog.example:8443" || r.TLS == nil || r.URL.Host != "" || r.URL.EscapedPath() != "/api//x%2Fy" ||
		r.URL.RawQuery != "b=2&a=%zz" || r.RemoteAddr == "" {
		t.Errorf("the cache was asked %+v", r)
	}
	if diff := cmp.Diff(http.Header{"Accept": {"a/b", "c/d"}, "Cookie": {"x=1: 2"}}, r.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if _, err = c.Explain(t.Context(), "http://blog.example/feed/", "DELETE", http.Header{"Host": {"other.example"}}); err != nil {
		t.Fatal(err)
	}
	if r := feed.asked; r.Method != "DELETE" || r.TLS != nil || r.Host != "other.example" || len(r.Header) != 0 {
		t.Errorf("the cache was asked %+v", r)
	}
}

func TestExplainErrors(t *testing.T) {
	c, api, feed := two(t)
	for target, want := range map[string]string{
		"":                         "there is no url",
		"/feed":                    "needs a scheme and a host, like http",
		"ftp://a/feed":             "needs a scheme and a host",
		"http://a/%":               "is not a URL",
		"http://a.example/other":   "no route of this server answers for http://a.example/other: the routes with a cache are /api/, /feed/",
		"http://a.example/static/": "answered by the route /static/, which has no cache",
	} {
		_, err := c.Explain(t.Context(), target, "", nil)
		fails(t, err, want)
	}
	_, err := c.Explain(t.Context(), "http://a/api/", "B@D METHOD", nil)
	fails(t, err, "method")
	_, err = c.Explain(t.Context(), "http://a/api/", "", http.Header{"a b": {"c"}})
	fails(t, err, "not like Name: value")
	_, err = c.Explain(t.Context(), "http://a/api/", "", http.Header{"A": {"c\r\nd: e"}})
	fails(t, err, "not like Name: value")
	_, err = c.Explain(t.Context(), "http://a/api/", "", http.Header{"A": make([]string, maxFields+1)})
	fails(t, err, "more than 100")
	if api.asked != nil || feed.asked != nil {
		t.Error("a cache was asked")
	}
}

func TestRecent(t *testing.T) {
	c, api, feed := two(t)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := 99; i >= 0; i-- { // youngest first
		f := api
		if i%2 == 0 {
			f = feed
		}
		f.recent = append(f.recent, cache.Decision{Time: at.Add(time.Duration(i) * time.Second), URL: fmt.Sprint("/x/", i), Outcome: "hit"})
	}
	list, err := c.Recent(t.Context(), "", 0)
	if err != nil || len(list) != defaultRecent {
		t.Fatalf("%d decisions: %v", len(list), err)
	}
	for i, d := range list {
		if want := fmt.Sprint("/x/", 99-i); d.URL != want || (d.Route == "/api/") != (i%2 == 0) {
			t.Fatalf("decision %d is %+v, want %s", i, d, want)
		}
	}
	list, err = c.Recent(t.Context(), "/x/4", 100)
	if err != nil || len(list) != 11 || list[0].URL != "/x/49" {
		t.Errorf("with a filter: %d decisions, %v", len(list), err)
	}
	list, err = c.Recent(t.Context(), "none & nothing", 1)
	if err != nil || list == nil || len(list) != 0 {
		t.Errorf("nothing: %v, %v", list, err)
	}
	for _, n := range []int{-1, maxRecent + 1} {
		_, err = c.Recent(t.Context(), "", n)
		fails(t, err, "from 1 to 10000")
	}
}

func TestStats(t *testing.T) {
	c, _, _ := two(t)
	list, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Stats{{Route: "/api/", Hit: 5, Bytes: 7, Reasons: map[string]uint64{"cookie": 1}}, {Route: "/feed/"}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := serve(t, Handler(func() map[string]*fake { return nil }, byPath, nil))
	if list, err := none.Stats(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("without meters: %v, %v", list, err)
	}
}

// What is not one of our answers becomes a sentence all the same.
func TestOtherServers(t *testing.T) {
	c := serve(t, http.NotFoundHandler())
	_, err := c.Stats(t.Context())
	fails(t, err, "no cache, or is of another version")
	c = serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", http.StatusInternalServerError) }))
	_, err = c.Stats(t.Context())
	fails(t, err, `status 500: "boom\n"`)
	c = serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }))
	_, err = c.Stats(t.Context())
	fails(t, err, "reading the server's answer")
	c.HTTP = &http.Client{Transport: failing{}}
	_, err = c.Stats(t.Context())
	if fails(t, err, "no server answers"); strings.Contains(err.Error(), "http://millrace") {
		t.Errorf("the made-up URL is told: %v", err)
	}
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no server answers")
}

func TestIndexAndMethods(t *testing.T) {
	c, _, _ := two(t)
	for method, want := range map[string]int{"GET": 200, "POST": 405, "DELETE": 405} {
		r, _ := http.NewRequestWithContext(t.Context(), method, c.Base+Prefix, nil)
		res, err := c.HTTP.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: status %d, want %d", method, res.StatusCode, want)
		}
	}
}

// BenchmarkPurge is the round trip of a purge through a UNIX socket.
func BenchmarkPurge(b *testing.B) {
	c := serve(b, Handler(func() map[string]nothing { return map[string]nothing{"/api/": {}} }, byPath, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Purge(b.Context(), Purge{Selector: purge.Selector{Tag: "news"}}); err != nil {
			b.Fatal(err)
		}
	}
}

type nothing struct{ *fake }

func (nothing) Purge(context.Context, purge.Selector) error { return nil }

func FuzzRequest(f *testing.F) {
	f.Add("http://a.example/x?y", "GET", "Accept: */*")
	f.Add("https://[::1]:8//%2f?", "", ":")
	f.Add("http://a?%zz#f", "M-SEARCH", "Host: b")
	f.Fuzz(func(t *testing.T, target, method, field string) {
		r, err := request(t.Context(), target, method, []string{field})
		if err != nil {
			return
		}
		if r.Method == "" || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/") || strings.ContainsAny(r.RequestURI, "\r\n ") {
			t.Errorf("%q becomes %s %q with the URL %s", target, r.Method, r.RequestURI, r.URL)
		}
		for name, values := range r.Header {
			if strings.ContainsAny(name+strings.Join(values, ""), "\r\n") {
				t.Errorf("header %q: %q", name, values)
			}
		}
	})
}
