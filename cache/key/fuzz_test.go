package key

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// parts is what a key says, read back from it.
type parts struct {
	front  string
	fields map[string][]string // "h:Name", "c:name", "C", "o"
}

// parse reads a key. It is the proof that no part can be mistaken for another.
func parse(t *testing.T, key string) parts {
	front, rest, more := strings.Cut(key, "\n")
	p := parts{front: front, fields: map[string][]string{}}
	for more {
		kind := rest[:1]
		rest = rest[2:]
		if kind == "h" || kind == "c" {
			var name string
			name, rest, _ = strings.Cut(rest, ":")
			kind += ":" + name
		}
		for {
			if strings.HasPrefix(rest, "-") {
				p.fields[kind], rest = append(p.fields[kind], ""), rest[1:]
			} else {
				digits, after, _ := strings.Cut(rest, ":")
				n, err := strconv.Atoi(digits)
				if err != nil || n > len(after) {
					t.Fatalf("key %q: no length in %q", key, rest)
				}
				p.fields[kind], rest = append(p.fields[kind], after[:n]), after[n:]
			}
			if !strings.HasPrefix(rest, ",") {
				break
			}
			rest = rest[1:]
		}
		more = rest != ""
		if more && rest[0] != '\n' {
			t.Fatalf("key %q: %q follows a value", key, rest)
		}
		rest = strings.TrimPrefix(rest, "\n")
	}
	return p
}

func FuzzKey(f *testing.F) {
	f.Add("example.org", "/a?b=1", "v", "lang=de", "1")
	f.Add("h\nh:X:1:a", "/\nh:X:1:a", "1:a\nc:lang:1:x", "lang=1:x\no:1:y; lang=", "1\n")
	f.Add("a*", "*", "", `lang="a;b"`, "")
	f.Add("*", "b?c", "", "lang;lang=;;", "")
	f.Add("h%2f/", "http://x/y", ",3:", "lang=-", ":")
	f.Fuzz(func(t *testing.T, host, target, header, cookie, class string) {
		m := maker(t, Options{Headers: []string{"X", "Y"}, Cookies: []string{"lang"}})
		q := of(&http.Request{
			Method: http.MethodGet, Host: host, RequestURI: target, URL: &url.URL{Path: "/"},
			Header: http.Header{"X": {header, "last"}, "Cookie": {cookie}},
		})
		p := parse(t, m.Key(q, class))
		if got := p.fields["h:X"]; !slices.Equal(got, []string{header, "last"}) || p.fields["h:Y"] != nil {
			t.Errorf("headers %q, %q came out for %q", got, p.fields["h:Y"], header)
		}
		if got := p.fields["o"]; class != "" && !slices.Equal(got, []string{class}) || class == "" && got != nil {
			t.Errorf("class %q came out for %q", got, class)
		}
		if ambiguous(cookie) {
			if got := p.fields["C"]; !slices.Equal(got, []string{cookie}) {
				t.Errorf("cookies %q came out for %q", got, cookie)
			}
		} else if got := p.fields["c:lang"]; !slices.Equal(got, simpleCookies(cookie)) {
			t.Errorf("cookies %q came out for %q", got, cookie)
		}
		want := of(&http.Request{Host: host, RequestURI: target, URL: &url.URL{Path: "/"}})
		if front := m.Key(want, ""); p.front != front || strings.ContainsAny(front, "\n\x00") {
			t.Errorf("front %q, want %q", p.front, front)
		}
	})
}

func simpleCookies(line string) (values []string) {
	for pair := range strings.SplitSeq(line, ";") {
		if key, value, _ := strings.Cut(pair, "="); strings.Trim(key, " ") == "lang" {
			values = append(values, strings.Trim(value, " "))
		}
	}
	return values
}

// FuzzPair: two requests with one key are one, but for what has no meaning.
func FuzzPair(f *testing.F) {
	f.Add("a", "/b", "ab", "/")
	f.Add("a", "*", "a*", "")
	f.Add("a b", "*", "a", "b *")
	f.Add("A:80", "/%20", "a", "/ ")
	f.Add("a", "b", "a", " b")
	f.Add("a?", "/", "a", "?/")
	f.Fuzz(func(t *testing.T, host1, target1, host2, target2 string) {
		m := maker(t, Options{})
		one, _ := m.ForURL("http", host1, target1)
		two, _ := m.ForURL("http", host2, target2)
		same := meaning(host1) == meaning(host2) && spelt(target1) == spelt(target2)
		if (one == two) != same {
			t.Errorf("%q %q and %q %q: %q and %q", host1, target1, host2, target2, one, two)
		}
	})
}

// meaning is a host without what tells no two of them apart.
func meaning(host string) string {
	b := []byte(host)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && (host[i:] == ":" || host[i:] == ":80") {
		b = b[:i]
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// spelt encodes what cannot stand in a request line.
func spelt(target string) string {
	if target == "" {
		return "/"
	}
	return encode(target)
}

// FuzzQuery: whatever the query, the options leave out only what they say, and
// the rest stays as it came.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"", "a=1", "b&a", "utm_x=1&a=2", "utm_x=1;a=2", "%61=1&a=2&A=3", "a[]=1&a=2", "&&", "a=1&b=2&a=3", "gclid", "%", "a%00b", "+a=1", "q=1&r=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if len(query) > 10_000 {
			return
		}
		came := strings.Split(query, "&")
		for _, o := range []Options{{SortQuery: true}, {DropTracking: true}, {Query: []string{"q"}}, {SortQuery: true, DropTracking: true}} {
			e := newEditor(o)
			edited, found := e.edit(query)
			if again, _ := e.edit(edited); found && again != edited {
				t.Errorf("%+v: %q becomes %q, and that %q", o, query, edited, again)
			}
			left := strings.Split(edited, "&")
			if !found {
				left = nil
			}
			if strings.Contains(query, ";") || len(came) > maxParams {
				if edited != query {
					t.Errorf("%+v: %q becomes %q", o, query, edited)
				}
				continue
			}
			var want []string
			for _, p := range came {
				name, _, _ := strings.Cut(p, "=")
				if o.DropTracking && e.drop.has(name) || len(o.Query) > 0 && fold(name) != "q" {
					continue
				}
				want = append(want, p)
			}
			if query == "" {
				want = []string{""}
			}
			if !o.SortQuery && !slices.Equal(left, want) {
				t.Errorf("%+v: %q becomes %q", o, query, edited)
			}
			if slices.Sort(left); !slices.Equal(left, sorted(want)) {
				t.Errorf("%+v: %q becomes %q", o, query, edited)
			}
		}
	})
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func FuzzNormal(f *testing.F) {
	f.Add("/%7e%2f%")
	f.Add("/%25%37%65")
	f.Fuzz(func(t *testing.T, s string) {
		normal := Normal(s)
		before, err1 := url.PathUnescape(s)
		after, err2 := url.PathUnescape(normal)
		if err1 == nil && (err2 != nil || before != after || Normal(normal) != normal) {
			t.Errorf("%q becomes %q", s, normal)
		}
		if strings.Count(strings.ToUpper(s), "%2F") != strings.Count(normal, "%2F") && err1 == nil {
			t.Errorf("%q becomes %q: a slash has come or gone", s, normal)
		}
	})
}
