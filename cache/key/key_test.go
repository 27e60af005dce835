package key

import (
	"bufio"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/wire/message"
)

func maker(t testing.TB, o Options) *Maker {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// request is one as net/http would hand it over.
func request(t testing.TB, target, host string, lines ...string) *message.Request {
	t.Helper()
	head := "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, line := range lines {
		head += line + "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return of(r)
}

// of is the head of a request.
func of(r *http.Request) *message.Request {
	q := new(message.Request)
	q.Of(r)
	return q
}

func TestFront(t *testing.T) {
	m := maker(t, Options{})
	for _, c := range []struct{ target, host, want string }{
		{"/", "example.org", "http://example.org/"},
		{"/Feed?B=1&a=2", "Example.ORG", "http://example.org/Feed?B=1&a=2"},
		{"/a", "example.org:80", "http://example.org/a"},
		{"/a", "example.org:", "http://example.org/a"},
		{"/a", "example.org:443", "http://example.org:443/a"},
		{"/a", "example.org:8080", "http://example.org:8080/a"},
		{"/a", "[::1]:80", "http://[::1]/a"},
		{"/a", "[FE80::1]", "http://[fe80::1]/a"},
		{"/a?", "h", "http://h/a?"},
		{"/a?b?c", "h", "http://h/a?b?c"},
		{"//evil", "h", "http://h//evil"},
		// As it came, whatever RFC 3986 makes equal.
		{"/%7ea%2f%2F/../x", "h", "http://h/%7ea%2f%2F/../x"},
		{"http://Other.example/a?b", "h", "http://other.example/a?b"},
		{"http://other.example", "h", "http://other.example/"},
		{"http://other.example?b", "h", "http://other.example/?b"},
		{"/x://y/z", "h", "http://h/x://y/z"},
	} {
		r := request(t, c.target, c.host)
		if got := m.Key(r, ""); got != c.want {
			t.Errorf("%s at %s: %q, want %q", c.target, c.host, got, c.want)
		}
		if !m.Plain(r) && c.target[0] == '/' {
			t.Errorf("%s is not plain", c.target)
		}
	}
	r := request(t, "/a", "h:443", "X-Forwarded-Proto: http", "X-Forwarded-Host: evil")
	r.Secure = true
	if got := m.Key(r, ""); got != "https://h/a" {
		t.Errorf("over TLS: %q", got)
	}
	options := of(&http.Request{Method: http.MethodOptions, RequestURI: "*", Host: "h", URL: &url.URL{Path: "*"}})
	if got := m.Key(options, ""); got != "http://h *" || m.Plain(options) {
		t.Errorf("OPTIONS *: %q", got)
	}
	own, _ := http.NewRequest(http.MethodGet, "http://h/a%2Fb?c", nil) // has no RequestURI
	if got := m.Key(of(own), ""); got != "http://h/a%2Fb?c" {
		t.Errorf("a request that did not come over the network: %q", got)
	}
}

func TestIgnoreHost(t *testing.T) {
	all, one := maker(t, Options{IgnoreHost: true}), maker(t, Options{})
	a, b := request(t, "/x", "a"), request(t, "/x", "b")
	if all.Key(a, "") != all.Key(b, "") || !all.Plain(a) {
		t.Errorf("hosts do not share: %q, %q", all.Key(a, ""), all.Key(b, ""))
	}
	if got := one.Key(request(t, "/x", "*"), ""); got == all.Key(a, "") {
		t.Errorf("a client can write the host of all: %q", got)
	}
}

func TestQuery(t *testing.T) {
	many := strings.Repeat("b=1&", maxParams) + "a=2"
	for _, c := range []struct {
		o           Options
		query, want string // "-": not even a question mark
	}{
		{Options{NoQuery: true}, "a=1", "-"},
		{Options{NoQuery: true}, "", "-"},
		{Options{NoQuery: true}, "a;b", "-"},

		{Options{SortQuery: true}, "", ""},
		{Options{SortQuery: true}, "b=1&a=2", "a=2&b=1"},
		{Options{SortQuery: true}, "a=2&b=1", "a=2&b=1"},
		{Options{SortQuery: true}, "b=2&a=9&b=1", "a=9&b=2&b=1"},
		{Options{SortQuery: true}, "b&a=1&&a", "&a=1&a&b"},
		{Options{SortQuery: true}, "b=1;c&a=2", "b=1;c&a=2"},
		{Options{SortQuery: true}, many, many},
		// What an upstream may take for one name keeps its order.
		{Options{SortQuery: true}, "b=1&%61=1&a=2", "%61=1&a=2&b=1"},
		{Options{SortQuery: true}, "b=1&a=2&%61=1", "a=2&%61=1&b=1"},
		{Options{SortQuery: true}, "a[]=2&A=1&a%5b0]=3", "a[]=2&A=1&a%5b0]=3"},
		{Options{SortQuery: true}, "a_b=2&a.b=1&a+b=0", "a_b=2&a.b=1&a+b=0"},

		{Options{DropTracking: true}, "utm_source=x&id=1&gclid=2", "id=1"},
		{Options{DropTracking: true}, "utm_source=x&fbclid=1", "-"},
		{Options{DropTracking: true}, "id=1&hsCtaTracking=3&_ga=2", "id=1"},
		{Options{DropTracking: true}, "", ""},
		{Options{DropTracking: true}, "gclids=1&xutm_a=2&_gat=3", "gclids=1&xutm_a=2&_gat=3"},
		{Options{DropTracking: true}, "b=1&a=2", "b=1&a=2"},
		// A parameter hidden behind a semicolon or in an encoding counts.
		{Options{DropTracking: true}, "utm_source=x;admin=1", "utm_source=x;admin=1"},
		{Options{DropTracking: true}, "%75tm_source=x", "%75tm_source=x"},
		{Options{DropTracking: true}, "UTM_source=x", "UTM_source=x"},
		{Options{DropTracking: true, SortQuery: true}, "z=1&utm_id=3&a=2", "a=2&z=1"},

		{Options{WithoutQuery: []string{"t", "x_*"}}, "t=1&x_=2&x_y=3&x=4&T=5", "x=4&T=5"},

		{Options{Query: []string{"q", "page*"}}, "q=1&r=2&pages=3&page=4", "q=1&pages=3&page=4"},
		{Options{Query: []string{"q"}}, "r=2", "-"},
		{Options{Query: []string{"q"}}, "r=2;q=1", "r=2;q=1"},
		{Options{Query: []string{"q"}}, "%71=1&Q=2&q[]=3&q%00x=4&+q=5&%zz=6&%7", "%71=1&Q=2&q[]=3&q%00x=4&+q=5"},
		{Options{Query: []string{"Q.x"}}, "q.x=1&q_x=2&q=3", "q.x=1&q_x=2"},
		{Options{Query: []string{"a*"}, WithoutQuery: []string{"ab"}}, "a=1&ab=2&abc=3", "a=1&abc=3"},
	} {
		m := maker(t, c.o)
		r := request(t, "/p?"+c.query, "h")
		want := "http://h/p?" + c.want
		if c.want == "-" {
			want = "http://h/p"
		}
		if got := m.Key(r, ""); got != want {
			t.Errorf("%+v\n%q\nis %q\nnot %q", c.o, c.query, got, want)
		}
		if m.Plain(r) != (want == "http://h/p?"+c.query) {
			t.Errorf("%+v, %q: plain is %v", c.o, c.query, m.Plain(r))
		}
		if got, all := m.ForURL("HTTP", "H:80", "/p?"+c.query); got != want || !all {
			t.Errorf("for the URL, the key is %q, %v", got, all)
		}
	}
}

func TestHeadersAndCookies(t *testing.T) {
	m := maker(t, Options{Headers: []string{"x-tenant", "A-B", "X-Tenant"}, Cookies: []string{"lang", "id"}})
	for _, c := range []struct{ lines, want string }{
		{"", ""},
		{"Other: x", ""},
		{"X-Tenant: acme", "\nh:X-Tenant:4:acme"},
		{"X-Tenant:", "\nh:X-Tenant:0:"},
		{"x-tenant: b|A-B: c|X-Tenant: a", "\nh:A-B:1:c\nh:X-Tenant:1:b,1:a"},
		{"X-Tenant: 1,2|X-Tenant: 3", "\nh:X-Tenant:3:1,2,1:3"},
		{"Cookie: a=b; other=lang=x", ""},
		{"Cookie: lang=de", "\nc:lang:2:de"},
		{"Cookie: lang=de; x=1;id= 7 ;lang=en=us", "\nc:id:1:7\nc:lang:2:de,5:en=us"},
		{"Cookie: lang=de|Cookie: lang=en", "\nc:lang:2:de,2:en"},
		{"Cookie: lang", "\nc:lang:-"},
		{"Cookie: lang=; id", "\nc:id:-\nc:lang:0:"},
		{"Cookie: Lang=de", ""},
		// Some take the first for one cookie a, some for two.
		{`Cookie: a="; lang=de; b="`, "\nC:17:" + `a="; lang=de; b="`},
		{`Cookie: a=1|Cookie: b="`, "\nC:3:a=1,3:" + `b="`},
	} {
		var lines []string
		if c.lines != "" {
			lines = strings.Split(c.lines, "|")
		}
		r := request(t, "/", "h", lines...)
		want := c.want
		if got := m.Key(r, ""); got != "http://h/"+want {
			t.Errorf("%s\nis  %q\nnot %q", c.lines, got, "http://h/"+want)
		}
		if m.Plain(r) != (want == "") {
			t.Errorf("%s: plain is %v", c.lines, m.Plain(r))
		}
		if got := m.Key(r, "2"); got != "http://h/"+want+"\no:1:2" {
			t.Errorf("with a class: %q", got)
		}
	}
	if got := m.VariesOn(); !slices.Equal(got, []string{"A-B", "X-Tenant", "Cookie"}) {
		t.Errorf("Vary: %q", got)
	}
	if _, all := m.ForURL("http", "h", "/"); all {
		t.Error("headers count, but a URL has one key")
	}
	if got := maker(t, Options{SortQuery: true}).VariesOn(); len(got) != 0 {
		t.Errorf("Vary without headers: %q", got)
	}
	if got := maker(t, Options{Headers: []string{"cookie"}, Cookies: []string{"a"}}).VariesOn(); !slices.Equal(got, []string{"Cookie"}) {
		t.Errorf("Vary: %q", got)
	}
}

func TestForURL(t *testing.T) {
	m := maker(t, Options{})
	for _, c := range []struct{ scheme, host, target, want string }{
		{"HTTPS", "Example.org:443", "/a b", "https://example.org/a%20b"},
		{"http", "example.org", "", "http://example.org/"},
		{"http", "a/b", "/c", "http://a%2Fb/c"},
	} {
		if got, _ := m.ForURL(c.scheme, c.host, c.target); got != c.want {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{SortQuery: true, DropTracking: true, Query: []string{"a", "b*", "*"}, WithoutQuery: []string{"c"}, Headers: []string{"X-A"}, Cookies: []string{"a.b"}, IgnoreHost: true}, ""},
		{Options{NoQuery: true, IgnoreHost: true}, ""},
		{Options{NoQuery: true, SortQuery: true}, "no_query"},
		{Options{NoQuery: true, Query: []string{"a"}}, "no_query"},
		{Options{Query: []string{""}}, "query"},
		{Options{Query: []string{"a*b"}}, "query"},
		{Options{Query: []string{"a=b"}}, "query"},
		{Options{WithoutQuery: []string{"a&b"}}, "without_query"},
		{Options{WithoutQuery: make([]string, maxNames+1)}, "without_query"},
		{Options{Headers: []string{"a b"}}, "headers"},
		{Options{Headers: []string{"host"}}, "headers"},
		{Options{Cookies: []string{""}}, "cookies"},
		{Options{Cookies: []string{"a;b"}}, "cookies"},
		{Options{Cookies: []string{"a"}, Headers: []string{"é"}, Query: []string{"a b"}}, "headers query"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(c.o.Check())), " "); got != c.want {
			t.Errorf("%+v: faults with %q, want %q", c.o, got, c.want)
		}
		if _, err := New(c.o); (err == nil) != (c.want == "") {
			t.Errorf("%+v: New returned %v", c.o, err)
		}
	}
}

func TestNormal(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"/a/b?c":                 "/a/b?c",
		"/%7Ea%7eb/%41%2d%5F%2E": "/~a~b/A-_.",
		"/%2f%3f%c3%a9%00%20":    "/%2F%3F%C3%A9%00%20",
		"/%%41%4%zz%2":           "/%A%4%zz%2",
		"/%2541":                 "/%2541",
	} {
		if got := Normal(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestAllocations: with no options a key costs one string.
func TestAllocations(t *testing.T) {
	m := maker(t, Options{})
	r := request(t, "/api/comments?page=2", "example.org:80", "Cookie: a=b")
	if n := testing.AllocsPerRun(100, func() { m.Key(r, "") }); n > 1 {
		t.Errorf("a key took %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Plain(r) }); n > 0 {
		t.Errorf("Plain took %v allocations", n)
	}
}

// TestTracking: the table can be used as a list of options.
func TestTracking(t *testing.T) {
	if faults := (Options{WithoutQuery: tracking}).Check(); len(faults) > 0 {
		t.Error(faults)
	}
	sorted := slices.Sorted(slices.Values(tracking))
	if diff := cmp.Diff(slices.Compact(slices.Clone(sorted)), sorted); diff != "" {
		t.Errorf("named twice: %s", diff)
	}
}
