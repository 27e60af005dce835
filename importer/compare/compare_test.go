package compare

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/importer/draft"
)

// answerOf reads "STATUS body", and fields as "Name: value" in the lines below.
func answerOf(text string) Answer {
	lines := strings.Split(text, "\n")
	a := Answer{Header: http.Header{}}
	status, body, _ := strings.Cut(lines[0], " ")
	for _, c := range status {
		a.Status = a.Status*10 + int(c-'0')
	}
	a.Body = []byte(body)
	for _, field := range lines[1:] {
		name, value, _ := strings.Cut(field, ": ")
		a.Header.Add(name, value)
	}
	return a
}

// TestDifferences: what is a difference, what is harmless, and what a strict client takes
// for one all the same.
func TestDifferences(t *testing.T) {
	const own = "404 <hr><center>nginx</center>\nContent-Type: text/html"
	s := Site{Host: "a.example", Theirs: "127.0.0.1:1001", Ours: "127.0.0.1:1002"}
	for _, c := range []struct{ target, theirs, ours, want, strict string }{
		{"/", "200 a\nServer: nginx\nDate: x\nEtag: a", "200 a\nServer: Millrace\nEtag: b", "", "Date Etag Server"},
		{"/", "200 a\nContent-Type: text/html; charset=UTF-8", "200 a\nContent-Type: text/html", "", "Content-Type"},
		{"/", "200 a\nContent-Type: text/html; charset=latin1", "200 a\nContent-Type: text/html", "Content-Type", "Content-Type"},
		{"/x.js", "200 a\nContent-Type: application/javascript", "200 a\nContent-Type: text/javascript; charset=utf-8", "", "Content-Type"},
		{"/", "200 a\nCache-Control: max-age=5, public", "200 a\nCache-Control: Public, max-age=5", "", "Cache-Control"},
		{"/", "200 a", "200 a\nCache-Control: no-cache", "", "Cache-Control"},
		{"/", "200 a\nCache-Control: no-cache", "200 a", "Cache-Control", "Cache-Control"},
		{"/", "200 a\nVary: a,B", "200 a\nVary: B, A", "", "Vary"},
		{"/", "200 a\nExpires: x\nCache-Control: a", "200 a\nCache-Control: a", "", "Expires"},
		{"/", "200 a\nExpires: x", "200 a", "Expires", "Expires"},
		{"/x", own, "404 not here", "", "Content-Type bytes"},
		{"/x", "404 the application's", "404 not here", "bytes", "bytes"},
		{"/d/", "403 <hr><center>nginx</center>", "404 not here", "", "bytes status"},
		{"/d", "301 <hr><center>nginx</center>\nLocation: http://a.example:1001/d/", "308 \nLocation: /d/", "", "Location bytes status"},
		{"/d", "301 \nLocation: http://a.example:1001/e", "301 \nLocation: /e", "", "Location"},
		{"/d", "301 \nLocation: http://a.example:1003/e", "301 \nLocation: /e", "Location", "Location"},
		{"/d", "302 \nLocation: /e?", "302 \nLocation: /e", "", "Location"},
		{"/", "401 \nWww-Authenticate: Basic realm=\"x\"", "401 \nWww-Authenticate: Basic realm=\"x\", charset=\"UTF-8\"", "", "Www-Authenticate"},
		{"/", "200 a", "200 a\nStrict-Transport-Security: max-age=1", "", "Strict-Transport-Security"},
		{"/", "200 a\nX-Own: 1", "200 a", "X-Own", "X-Own"},
	} {
		for strict, want := range map[bool]string{false: c.want, true: c.strict} {
			var names []string
			for _, d := range Differences(s, c.target, answerOf(c.theirs), answerOf(c.ours), strict) {
				names = append(names, d.What)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%q and %q, strict %v: %q, want %q", c.theirs, c.ours, strict, got, want)
			}
		}
	}
}

// TestQueue: each target once, up to a limit; links of a page, lines of a log, no other
// site's.
func TestQueue(t *testing.T) {
	taken := func(q *Queue) (list []string) {
		for {
			target, ok := q.Next()
			if !ok {
				return list
			}
			list = append(list, target)
		}
	}
	s := Site{Host: "a.example", Theirs: "127.0.0.1:1001"}
	q := NewQueue(10)
	for _, target := range []string{"/a", "/a", "b", "/c d", "/e"} {
		q.Add(target)
	}
	q.Links(s, "/dir/", answerOf("200 <a href='x'>x</a><img src=\"/y?a=1&amp;b=2\"><a href=//b.example/z><form action=http://a.example/w>\nContent-Type: text/html"))
	q.Links(s, "/dir/", answerOf("302 \nLocation: http://a.example:1001/to"))
	if err := q.Log(strings.NewReader("1.2.3.4 - - [x] \"GET /log?x HTTP/1.1\" 200 1\n1.2.3.4 - - [x] \"POST /post HTTP/1.1\" 200 1\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := taken(q), []string{"/a", "/e", "/dir/x", "/y?a=1&b=2", "/w", "/to", "/log?x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	few := NewQueue(2)
	for _, target := range []string{"/1", "/2", "/3"} {
		few.Add(target)
	}
	if got := taken(few); len(got) != 2 {
		t.Errorf("%q of two", got)
	}
}

// TestServerHosts: the hosts that a server block is asked for.
func TestServerHosts(t *testing.T) {
	for names, want := range map[string]string{
		"":                      "localhost",
		"_":                     "localhost",
		"a.example *.b.example": "a.example any.b.example",
		".c.example":            "any.c.example c.example",
		"d.*":                   "d.example.org",
		"~^(www\\.)?e\\.org$":   "e.org www.e.org",
		"~^x":                   "",
	} {
		d := &draft.Directive{Name: "server", Block: []*draft.Directive{{Name: "server_name", Args: strings.Fields(names)}}}
		got := serverHosts(d)
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %q, want %q", names, text, want)
		}
	}
}
