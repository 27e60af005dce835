package rulefile

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const redirectsFile = `# where the old addresses lead
/home              /
/blog/my-post.php  /blog/my-post
/news              /blog 302   # for a while
/authors/c%C3%A9line /authors/celine
/news/:month/:date/:year/:slug  /blog/:year/:month/:date/:slug
/articles id=:id tag=:tag /posts/:tag/:id 301
/store id=7        /special?from=store 302
/store             /shop
/app/*             /app/index.html 200
/forced            /other 301!
/closed/*          /closed.html 404
/ext/*             https://example.com/:splat 307
/slash             /slash/
http://blog.example.org/*  https://www.example.org/blog/:splat 301!
/file-:name.html   /files/:name
/late              /late-first
/late              /late-second
/a/*/z             /az/:splat
/frag              /page#part
/say/:word         /search?q=:word
`

func TestRedirects(t *testing.T) {
	r, wrong := ParseRedirects([]byte(strings.ReplaceAll(redirectsFile, "\n", "\r\n")))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	for _, c := range []struct{ asked, want string }{
		{"/home", "301 /"},
		{"/home/", "301 /"},
		{"/home?a=b", "301 /?a=b"},
		{"/homes", ""},
		{"/blog/my-post.php", "301 /blog/my-post"},
		{"/news", "302 /blog"},
		{"/authors/céline", "301 /authors/celine"},
		{"/news/02/12/2004/my-story", "301 /blog/2004/02/12/my-story"},
		{"/news/02/12/2004", ""},
		{"/articles?tag=x y&id=1", "301 /posts/x%20y/1?tag=x y&id=1"},
		{"/articles?id=1", ""},
		{"/store?id=7", "302 /special?from=store"},
		{"/store?id=8", "301 /shop?id=8"},
		{"/app", "200 /app/index.html"},
		{"/app/", "200 /app/index.html"},
		{"/app/deep/er", "200 /app/index.html"},
		{"/apple", ""},
		{"/closed/door", "404 /closed.html"},
		{"/ext/a b/c", "307 https://example.com/a%20b/c"},
		{"/ext//evil.test", "307 https://example.com//evil.test"},
		{"/slash", "301 /slash/"},
		{"/slash/", ""}, // it would lead to itself
		{"/file-a.html", "301 /files/a"},
		{"/file-.html", ""},
		{"/late", "301 /late-first"},
		{"/a/b/c/z", "301 /az/b/c"},
		{"/frag?x=1", "301 /page?x=1#part"},
		{"/say/a&b=c", "301 /search?q=a%26b%3Dc"},
		{"/say/a\r\nX: y", "301 /search?q=a%0D%0AX%3A+y"},
		{"/forced", "301 /other"},
	} {
		path, query, _ := strings.Cut(c.asked, "?")
		got, ok, _ := r.Find(Asked{Path: path, Query: query, Host: "example.net"}, false)
		if text := fmt.Sprint(got.Status, " ", got.To); ok && text != c.want || !ok && c.want != "" {
			t.Errorf("%s: %v %q, want %q", c.asked, ok, text, c.want)
		}
	}
}

func TestForcedRedirects(t *testing.T) {
	r, _ := ParseRedirects([]byte(redirectsFile))
	if _, ok, _ := r.Find(Asked{Path: "/home"}, true); ok {
		t.Error("a rule that is not forced is found among those that are")
	}
	if got, ok, _ := r.Find(Asked{Path: "/forced"}, true); !ok || got.Line != 11 {
		t.Errorf("the forced rule: %v, %+v", ok, got)
	}
	if got, ok, _ := r.Find(Asked{Path: "/x/y", Host: "blog.example.org"}, true); !ok || got.To != "https://www.example.org/blog/x/y" {
		t.Errorf("the rule for a host: %v, %+v", ok, got)
	}
	if _, ok, _ := r.Find(Asked{Path: "/x/y", Host: "blog.example.org", Secure: true}, true); ok {
		t.Error("a rule for http is followed over https")
	}
	if !r.Hosts() {
		t.Error("a forced rule for a host goes unnoticed")
	}
	r, _ = ParseRedirects([]byte("/q id=:id /r 301!\n/* https://www.example.org/:splat 301!\n"))
	if _, ok, byQuery := r.Find(Asked{Path: "/q", Host: "www.example.org", Secure: true}, true); ok || !byQuery {
		t.Errorf("no parameter: found %v, by query %v", ok, byQuery)
	}
	if _, ok, _ := r.Find(Asked{Path: "/x", Host: "www.example.org", Secure: true}, true); ok {
		t.Error("a rule leads to the address that was asked for")
	}
}

func TestNobodyIsLedAway(t *testing.T) {
	r, wrong := ParseRedirects([]byte("/go/* /:splat\n/to/:x /:x/\n"))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	for _, path := range []string{"/go//evil.test", `/go/\evil.test`, "/go/\tevil.test", `/to/\evil.test`} {
		got, ok, _ := r.Find(Asked{Path: path}, false)
		if ok && (len(got.To) < 2 || got.To[0] != '/' || got.To[1] == '/' || got.To[1] == '\\') {
			t.Errorf("%q leads to %q", path, got.To)
		}
	}
}

func TestBadRedirects(t *testing.T) {
	for line, want := range map[string]string{
		"/a":                                   "a second path",
		"home /":                               "no path",
		"/a /b 999":                            "the status 999",
		"/a /b 302 Country=de":                 "the condition Country=",
		"/a /b Language=de":                    "the condition Language=",
		"/admin/* /.netlify/x 200! Role=admin": "the condition Role=",
		"/a /b soon":                           `"soon" is not understood`,
		"/api/* https://api.example.com/* 200": "would be a proxy",
		"/a //evil.test":                       "one slash",
		"/x/* https://example.com:splat":       "must be plain",
		"/x/:h https://:h/":                    "must be plain",
		"/a/*/b/* /c":                          "only one star",
		"/:a/:a /c":                            "twice",
		"/a?b=c /d":                            "neither a query",
		"/a /b/:splat":                         "no star",
		"/a " + strings.Repeat("/b", maxLine):  "bytes: at most",
		"https://user@example.com/ /b":         "plain name",
		"/a%zz /b":                             "invalid URL escape",
		"/a what /b":                           "neither a path nor a parameter",
	} {
		_, wrong := ParseRedirects([]byte("# one\n" + line + "\n/fine /good\n"))
		if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), want) || !strings.HasPrefix(wrong[0].Error(), "_redirects:2: ") {
			t.Errorf("%s: %v, want %q", line, wrong, want)
		}
	}
}

func TestBounds(t *testing.T) {
	var b strings.Builder
	for i := range maxStatic + maxFaults + 7 {
		fmt.Fprintf(&b, "/old-%d /new-%d\n", i, i)
	}
	r, wrong := ParseRedirects([]byte(b.String()))
	if len(wrong) != maxFaults+1 || !strings.Contains(wrong[maxFaults].Error(), "7 more") {
		t.Errorf("%d reports, the last one %v", len(wrong), wrong[len(wrong)-1])
	}
	if _, ok, _ := r.Find(Asked{Path: "/old-1999"}, false); !ok {
		t.Error("the last rule that fits does not hold")
	}
	if _, ok, _ := r.Find(Asked{Path: "/old-2000"}, false); ok {
		t.Error("one too many holds")
	}
	h, wrong := ParseHeaders([]byte(strings.Repeat("/x\n  A: b\n", maxHeaderRules+1)))
	if len(wrong) != 1 || len(h.rules) != maxHeaderRules {
		t.Errorf("%d rules, %v", len(h.rules), wrong)
	}
}

const headersFile = `# for all
/*
  X-Frame-Options: DENY
  Referrer-Policy: no-referrer
  Cache-Control: max-age=60

/assets/*
  cache-control: public
  Vary: Origin
  ! Referrer-Policy
/movies/:title
  X-Movie: watching ":title"; style https:
/secret/*
  Basic-Auth: someone:password
`

func TestHeaders(t *testing.T) {
	h, wrong := ParseHeaders([]byte(headersFile))
	if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), "_headers:14: Basic-Auth is not followed") {
		t.Errorf("reports: %v", wrong)
	}
	for _, c := range []struct {
		path string
		file bool
		want http.Header
	}{
		{"/", true, http.Header{"X-Frame-Options": {"DENY"}, "Referrer-Policy": {"no-referrer"}, "Cache-Control": {"max-age=60"}, "Vary": {"Accept"}}},
		{"/", false, http.Header{"X-Frame-Options": {"DENY"}, "Referrer-Policy": {"no-referrer"}, "Cache-Control": {"no-cache"}, "Vary": {"Accept"}}},
		{"/assets/a.js", true, http.Header{"X-Frame-Options": {"DENY"}, "Cache-Control": {"max-age=60, public"}, "Vary": {"Accept", "Origin"}}},
		{"/movies/a\nb", false, http.Header{"X-Frame-Options": {"DENY"}, "Referrer-Policy": {"no-referrer"}, "Cache-Control": {"no-cache"}, "Vary": {"Accept"}, "X-Movie": {`watching "a%0Ab"; style https:`}}},
	} {
		got := http.Header{"Cache-Control": {"no-cache"}, "Vary": {"Accept"}}
		h.Apply(got, c.path, c.file)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.path, diff)
		}
	}
	if _, closed := h.Closed("/secret/plan"); !closed {
		t.Error("what wants a password is open")
	}
	if _, closed := h.Closed("/"); closed {
		t.Error("everything is closed")
	}
}

func TestBadHeaders(t *testing.T) {
	for line, want := range map[string]string{
		"Content-Length: 3":    "belongs to the connection",
		"Content-Encoding: br": "how the content is to be read",
		"Set-Cookie: a=b":      "the same cookie",
		"no colon":             "is not a field",
		"Na me: x":             "is not a field",
		"X: a\x01b":            "no header may have",
		"! Na me":              "not the name",
		"! Date":               "stays",
		"X: " + strings.Repeat("y", maxHeaderLine): "bytes: at most",
	} {
		h, wrong := ParseHeaders([]byte("/*\n  " + line + "\n  X-Good: yes\n"))
		if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), want) || wrong[0].Line != 2 {
			t.Errorf("%s: %v, want %q", line, wrong, want)
		}
		got := http.Header{}
		if h.Apply(got, "/", true); got.Get("X-Good") != "yes" {
			t.Errorf("%s: the next line does not hold", line)
		}
	}
	if h, wrong := ParseHeaders([]byte("X-Early: 1\nhttps://x.test/*\n  X-Robots-Tag: noindex\n")); len(wrong) != 2 || len(h.rules) != 0 {
		t.Errorf("%v", wrong)
	}
}

// A password that somebody asked for closes its paths also where a line of the rule
// does not hold.
func TestClosed(t *testing.T) {
	many := strings.Repeat("/x\n  A: b\n", maxHeaderRules)
	for text, paths := range map[string][2]string{ // one that is closed, one that is not
		"/a/*\n  Basic-Auth: " + strings.Repeat("u:p ", maxHeaderLine):   {"/a/b", "/b"},
		"/a/*/b/*\n  X: y\n  basic-auth: u:p":                            {"/a/c/b/d", "/b"},
		"/a?x=1\n  Basic-Auth: u:p":                                      {"/a", "/b"},
		"/a/%zz\n  Basic-Auth: u:p":                                      {"/a/q", "/b"},
		"https://x.example/a/*\n  Basic-Auth: u:p":                       {"/a", "/b"},
		many + "/a\n  Basic-Auth : u:p":                                  {"/a", "/b"},
		"/a/" + strings.Repeat("q", maxHeaderLine) + "\n  Basic-Auth: x": {"/a/" + strings.Repeat("q", maxHeaderLine), "/b"},
	} {
		h, wrong := ParseHeaders([]byte(text))
		if _, closed := h.Closed(paths[0]); !closed || len(wrong) == 0 {
			t.Errorf("%.40q: %.20s is open; %v", text, paths[0], wrong)
		}
		if _, closed := h.Closed(paths[1]); closed {
			t.Errorf("%.40q: %s is closed", text, paths[1])
		}
	}
}

// Whatever the files say, a Location stays on the host that the operator has
// written, and no field has a line of its own.
func FuzzRules(f *testing.F) {
	f.Add(redirectsFile, headersFile, "/news/1/2/3/4", "a=b")
	f.Add("/go/* /:splat\n/q a=:a /b?c=:a 302!", "/:a\n X: :a", "/go//evil.test", "a=%0a")
	f.Add("/* https://example.com/:splat 301!", "/*\n Vary: a\n ! Vary", "//", "")
	f.Fuzz(func(t *testing.T, redirects, headers, path, query string) {
		r, _ := ParseRedirects([]byte(redirects))
		for _, forced := range []bool{false, true} {
			got, ok, _ := r.Find(Asked{Path: path, Query: strings.Map(printable, query), Host: "example.org"}, forced)
			if !ok {
				continue
			}
			if !address(got.To) || strings.HasPrefix(got.To, "//") || strings.HasPrefix(got.To, `/\`) || strings.ContainsAny(got.To, "\r\n\t ") {
				t.Errorf("%q by %q leads to %q", path, redirects, got.To)
			}
		}
		h, _ := ParseHeaders([]byte(headers))
		header := http.Header{"Cache-Control": {"no-cache"}}
		h.Apply(header, path, true)
		for name, values := range header {
			for _, v := range values {
				if strings.ContainsAny(name+v, "\r\n\x00") {
					t.Errorf("%q: %q", name, v)
				}
			}
		}
	})
}

// printable is what net/http lets into a query.
func printable(c rune) rune {
	if c <= ' ' || c == 0x7f {
		return -1
	}
	return c
}

func BenchmarkFind(b *testing.B) {
	var text strings.Builder
	for i := range maxStatic {
		fmt.Fprintf(&text, "/old-%d /new-%d\n", i, i)
	}
	for i := range maxDynamic {
		fmt.Fprintf(&text, "/part-%d/:year/* /new-%d/:splat\n", i, i)
	}
	r, wrong := ParseRedirects([]byte(text.String()))
	if len(wrong) > 0 {
		b.Fatal(wrong)
	}
	for name, path := range map[string]string{"none": "/assets/app.js", "static": "/old-1999", "dynamic": "/part-99/2004/x"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Find(Asked{Path: path}, false)
			}
		})
	}
}
