package plan

import (
	"testing"

	"millrace/internal/route/headers"

	"millrace/importer/draft"
)

// written1 is what a site with some routes is written as.
func written1(alone bool, routes ...*Route) string {
	t := NewSite(&Config{Ledger: draft.NewLedger()}, &Server{Secure: []string{":443"}})
	t.Alone = alone
	for i, r := range routes {
		t.Route("/"+string(rune('a'+i)), r)
	}
	node := draft.Map()
	t.write(node)
	return node.String()
}

// fields are rules that set fields for all answers, or for some.
func fields(of Answers, pairs ...string) (f Fields) {
	for i := 0; i < len(pairs); i += 2 {
		f.Put(of, headers.Set, pairs[i], pairs[i+1])
	}
	return f
}

// TestRoutes: each key of a route, and what several have alike.
func TestRoutes(t *testing.T) {
	good := Answers{Status: []string{"2xx"}}
	some := fields(Answers{}, "X-A", "1", "X-B", "2")
	for name, c := range map[string]struct {
		routes []*Route
		alone  bool
		want   string
	}{
		"actions": {[]*Route{{Action: Deny(403)}, {Action: Deny(410)}, {Action: NotImplemented()}, {Action: File("/x")}, {Action: Action{Redirect: Redirection{"/x", 301}}}}, false, `routes:
  /a: {deny: {}}
  /b: {deny: {status: 410}}
  /c: {respond: {status: 501, text: 'not carried over'}}
  /d: {respond: {file: /x}}
  /e: {redirect: {to: /x, status: 301}}
`},
		"nothing": {nil, false, `routes:
  # nothing else is left to answer
  /: {deny: {status: 404}}
`},
		"jobs": {[]*Route{
			{Static: Static{Root: "/r", Index: []string{"a"}, CacheControl: []Lifetime{{"*", "no-cache"}}, NoCompress: true, Listing: true, CleanURLs: true, Private: []string{"default"}, Types: map[string]string{".x": "a/b"}, Charset: "x"}},
			{Static: Static{Root: "/r"}, PHP: PHP{To: []string{"/s"}}, Try: []string{"{path}", "=404"}},
			{Proxy: Proxy{To: []string{"http://a"}, Host: "client"}, Body: "1MiB", NoLog: true},
			{Cache: Proxy{To: []string{"http://a"}, TTL: "1m"}},
		}, false, `routes:
  /a:
    static:
      root: /r
      index: a
      cache_control: [{match: '*', value: no-cache}]
      no_compress: true
      listing: true
      clean_urls: true
      private: [default]
      types: {'.x': a/b}
      charset: x
  /b:
    static: {root: /r}
    php: /s
    try: ['{path}', '=404']
  /c:
    proxy:
      to: http://a
      host: client
    body_bytes: 1MiB
    no_log: true
  /d:
    cache:
      to: http://a
      ttl: 1m
`},
		"who may come in": {[]*Route{
			{Static: Static{Root: "/r"}, Shared: Shared{Access: Access{Allow: []string{"::1"}}, Auth: Auth{Realm: "x", File: "/p", UserHeader: "X-User", Except: []string{"::1"}}, Limit: Limit{Rate: "5/s", Burst: 3, Header: "X"}}},
			{Static: Static{Root: "/r"}, Shared: Shared{Auth: Auth{Passwords: map[string]string{"a": "$2a$"}}}},
			{Static: Static{Root: "/r"}, Shared: Shared{Auth: Auth{URL: "http://a", Copy: []string{"X"}}}},
		}, false, `routes:
  /a:
    static: {root: /r}
    access: {allow: ['::1']}
    rate_limit: {rate: '5/s', burst: 3, header: X}
    auth: {realm: x, file: /p, user_header: X-User, except: ['::1']}
  /b:
    static: {root: /r}
    auth: {passwords: {a: '$2a$'}}
  /c:
    static: {root: /r}
    auth: {url: http://a, copy: [X]}
`},
		"what all have": {[]*Route{
			{Static: Static{Root: "/r"}, Shared: Shared{Headers: some, Errors: Pages{{"404", "/x"}}, Auth: Auth{File: "/p"}}},
			{Static: Static{Root: "/s"}, Shared: Shared{Headers: some, Errors: Pages{{"404", "/x"}}, Auth: Auth{File: "/p"}}, Intercept: true},
		}, false, `auth: {file: /p}
errors: {'404': /x}
headers:
  set: {X-A: '1', X-B: '2'}
routes:
  /a:
    static: {root: /r}
  /b:
    static: {root: /s}
    intercept_errors: true
`},
		"fields that all set": {[]*Route{
			{Static: Static{Root: "/r"}, Shared: Shared{Headers: some}},
			{Static: Static{Root: "/s"}, Shared: Shared{Headers: fields(Answers{}, "X-A", "1", "X-B", "3")}},
		}, false, `headers:
  set: {X-A: '1'}
routes:
  /a:
    static: {root: /r}
    headers:
      set: {X-B: '2'}
  /b:
    static: {root: /s}
    headers:
      set: {X-B: '3'}
`},
		"of some answers alone": {[]*Route{
			{Static: Static{Root: "/r"}, Shared: Shared{Headers: fields(good, "X-A", "1")}},
			{Static: Static{Root: "/s"}, Shared: Shared{Headers: fields(good, "X-A", "1", "X-B", "3")}},
		}, false, `routes:
  /a:
    static: {root: /r}
    headers:
      when: [{status: ['2xx'], set: {X-A: '1'}}]
  /b:
    static: {root: /s}
    headers:
      when: [{status: ['2xx'], set: {X-A: '1', X-B: '3'}}]
`},
		"one route": {[]*Route{{Static: Static{Root: "/r"}, Shared: Shared{Headers: some, Auth: Auth{File: "/p"}}}}, true, `headers:
  set: {X-A: '1', X-B: '2'}
routes:
  /a:
    static: {root: /r}
    auth: {file: /p}
`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := written1(c.alone, c.routes...); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestNamedRoutes: a route with a name takes no path away.
func TestNamedRoutes(t *testing.T) {
	r := &Route{Proxy: Proxy{To: []string{"http://a"}, StripPrefix: "/a.b/"}}
	NewSite(&Config{}, &Server{}).Route("@a", r)
	if got := r.Proxy; got.StripPrefix != "" || len(got.Rewrite) != 1 || got.Rewrite[0] != (PathRewrite{`/a\.b/(.*)`, "/{1}"}) {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		key, root, want string
		ok              bool
	}{
		{"/", "/srv", "/srv", true},
		{"/a/", "/srv/a", "/srv", true},
		{"/a/", "/a", "/", true},
		{"/a/", "/srv/b", "/srv/b", false},
		{"/a/", "", "", true},
	} {
		got, ok := WithoutPath(c.key, &Route{Static: Static{Root: c.root}})
		if got.Static.Root != c.want || ok != c.ok {
			t.Errorf("%s of %s: %s %v", c.key, c.root, got.Static.Root, ok)
		}
	}
}

// TestFields: whose fields are, and what is put together.
func TestFields(t *testing.T) {
	f := Fields{TLS: true}
	for _, c := range []struct{ op, name, why string }{
		{"set", "X-A", ""},
		{"set", "Strict-Transport-Security", ""},
		{"remove", "X-Powered-By", ""},
		{"add", "Link", ""},
		{"default", "X-D", ""},
	} {
		if why := f.Put(Answers{}, headers.Op(c.op), c.name, " v "); why != c.why {
			t.Errorf("%s: %q", c.name, why)
		}
	}
	if why := f.Put(Answers{}, headers.Set, "Content-Length", "5"); why == "" {
		t.Error("Content-Length is set")
	}
	up := Fields{Requests: true}
	for _, name := range []string{"Connection", "Via"} {
		if why := up.Put(Answers{}, headers.Set, name, "x"); why == "" {
			t.Errorf("%s of a request is set", name)
		}
	}
	f.Put(Answers{}, headers.Set, "X-A", "other")
	if !f.Has("X-A") || f.Has("Link") || !up.Empty() {
		t.Error("what is set")
	}
	const want = `remove: [X-Powered-By]
set: {X-A: other}
add: {Link: v}
default: {X-D: v}
when: [{protocol: https, set: {Strict-Transport-Security: v}}]
`
	if got := f.Node().String(); got != want {
		t.Errorf("got\n%s", got)
	}
}
