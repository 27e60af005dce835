package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	oneSitemap = `<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:i="urn:i">
<url><loc> http://a/1?x=1&amp;y=2
</loc><i:image><i:loc>http://a/no.png</i:loc></i:image><priority>1</priority></url>
<url><i:loc>http://a/no</i:loc><loc><![CDATA[http://a/2]]></loc></url></urlset>`
	oneIndex = `<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><sitemap><loc>http://a/s.xml</loc></sitemap></sitemapindex>`
)

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // into memory
	_ = w.Close()
	return b.String()
}

func TestReadAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		pages, maps []string
	}{
		"sitemap":        {oneSitemap, []string{"http://a/1?x=1&y=2", "http://a/2"}, nil},
		"zipped":         {zipped(oneSitemap), []string{"http://a/1?x=1&y=2", "http://a/2"}, nil},
		"index":          {oneIndex, nil, []string{"http://a/s.xml"}},
		"lines":          {"\ufeff# all\n\n  http://a/1  \r\n/2\nhttps://b/#c # a comment\n", []string{"http://a/1", "/2", "https://b/#c"}, nil},
		"zipped lines":   {zipped("http://a/1"), []string{"http://a/1"}, nil},
		"no namespace":   {"<urlset><url><loc>http://a/</loc></url></urlset>", []string{"http://a/"}, nil},
		"a mark and XML": {"\ufeff\n" + oneIndex, nil, []string{"http://a/s.xml"}},
		"nothing":        {"", nil, nil},
		"only comments":  {"# x\n#y\n", nil, nil},
	} {
		got, err := readAddresses(strings.NewReader(c.text))
		if err != nil || !slices.Equal(got.pages, c.pages) || !slices.Equal(got.maps, c.maps) {
			t.Errorf("%s: %q, %q, %v; want %q, %q", name, got.pages, got.maps, err, c.pages, c.maps)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"a page":        {"<!doctype html><html><body>x", "neither"},
		"JSON":          {`{"a": 1}`, "line 1"},
		"a word":        {"http://a/\nhello", "line 2"},
		"broken XML":    {"<urlset><url>", "reading a sitemap"},
		"not an URL":    {"<urlset><url><loc>ftp://a/</loc></url></urlset>", "no address"},
		"half a gzip":   {zipped(oneSitemap)[:60], "unexpected EOF"},
		"too deep":      {"<urlset>" + strings.Repeat("<a>", 100), "neither"},
		"too long line": {"/" + strings.Repeat("a", maxListLine), "too long"},
		"too many":      {strings.Repeat("/\n", maxAddresses+1), "more than"},
		"zip bomb":      {zipped(strings.Repeat("#", maxListLine-1) + strings.Repeat("\n", maxSitemap)), "larger than"},
	} {
		if _, err := readAddresses(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzReadAddresses: whatever a list holds, what comes out can be asked for.
func FuzzReadAddresses(f *testing.F) {
	for _, seed := range []string{oneSitemap, oneIndex, zipped(oneIndex), "/a\nhttp://b # c", "<a>", "\x1f\x8b", "\ufeff<"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readAddresses(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, page := range slices.Concat(a.pages, a.maps) {
			if !strings.HasPrefix(page, "/") && !isPage(page) {
				t.Errorf("%q cannot be asked for", page)
			}
		}
		if errors.Is(err, errNoList) && len(a.pages) > 0 {
			t.Error("no list, and yet pages")
		}
	})
}

func TestReadCacheStatus(t *testing.T) {
	for in, want := range map[string]cacheStatus{
		"":                                      {},
		"millrace; hit; ttl=10":                 {cached: true, hit: true},
		"millrace; fwd=uri-miss; stored":        {cached: true, stored: true},
		"millrace; fwd=miss; fwd-status=200":    {cached: true},
		"origin; hit, millrace; fwd=miss":       {cached: true},
		"a; fwd=miss\nmillrace; hit":            {cached: true, hit: true},
		`millrace; fwd=miss; detail="; hit, x"`: {cached: true},
		"hit":                                   {cached: true},
	} {
		h := http.Header{}
		for line := range strings.SplitSeq(in, "\n") {
			if line != "" {
				h.Add("Cache-Status", line)
			}
		}
		if got := readCacheStatus(h); got != want {
			t.Errorf("%q is read as %+v, want %+v", in, got, want)
		}
	}
}

func TestFrontAddresses(t *testing.T) {
	for in, want := range map[string]site{
		"http://127.0.0.1:8080":                        {"http://127.0.0.1:8080", false},
		"https://localhost:8443":                       {"https://localhost:8443", true},
		"http://127.0.0.1:80 https://localhost:443":    {"http://127.0.0.1:80", true},
		"http+unix:/run/web.sock":                      {"http://localhost", false},
		"http://[::1]:8080 http+unix:/run/web.sock":    {"http://[::1]:8080", false},
		"https+unix:/run/a.sock http://127.0.0.1:8080": {"https://localhost", true},
	} {
		f, err := newFront(strings.Fields(in))
		if err != nil || f.site != want {
			t.Errorf("%s: %+v, %v; want %+v", in, f, err, want)
		}
	}
	if _, err := newFront(nil); err == nil {
		t.Error("a front without an address")
	}
	plain, secure := site{home: "http://127.0.0.1:80"}, site{"https://a", true}
	for _, c := range []struct {
		at                  site
		text, asked, purged string
	}{
		{plain, "/x", "http://127.0.0.1:80/x", "http://127.0.0.1:80/x"},
		{plain, "https://b/x", "http://b/x", "b/x"},
		{plain, "http://b/x", "http://b/x", "http://b/x"},
		{plain, "//b/x", "//b/x", "//b/x"},
		{secure, "https://b/x", "https://b/x", "https://b/x"},
	} {
		if a, p := c.at.asked(c.text), c.at.purged(c.text); a != c.asked || p != c.purged {
			t.Errorf("%s at %+v: asked for as %s, purged as %s", c.text, c.at, a, p)
		}
	}
}

func TestForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234567 * time.Nanosecond: "1.23ms", 1500 * time.Millisecond: "1.5s", 5 * time.Minute: "5m", 2 * time.Hour: "2h",
		10 * time.Minute: "10m", time.Hour + time.Second: "1h0m1s", 90*time.Minute + 400*time.Millisecond: "1h30m", 70 * time.Second: "1m10s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234: "1.23 kB", 999_499: "999 kB", 999_999: "1 MB", 5_500_000_000: "5.5 GB"} {
		if got := amount(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

// TestBar: elsewhere than on a terminal there is no bar to wipe, and a short
// list says nothing at all.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	b := newBar(streams{err: &out}, 10)
	for i := range 10 {
		b.step(i, 0)
	}
	b.say("x: %d", 1)
	b.end()
	if out.String() != "x: 1\n" {
		t.Errorf("it said %q", out.String())
	}
	out.Reset()
	b.last = b.last.Add(-time.Minute)
	b.began = b.last
	b.step(5, 2)
	if got := out.String(); !strings.HasPrefix(got, "5 of 10, ") || !strings.HasSuffix(got, ", 2 failed\n") {
		t.Errorf("it said %q", got)
	}
	out.Reset()
	b.draw, b.last = true, b.began
	b.step(10, 0)
	b.end()
	if got := out.String(); !strings.Contains(got, "["+strings.Repeat("#", barWidth)+"] 10 of 10") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("it drew %q", got)
	}
}

func TestHeaderOf(t *testing.T) {
	h, err := headerOf([]string{"Cookie: a=b", "x-a:1", "X-A: 2"})
	if err != nil || fmt.Sprint(h) != "map[Cookie:[a=b] X-A:[1 2]]" {
		t.Errorf("%v, %v", h, err)
	}
	for _, line := range []string{"", "x", ": y", "a: b\r\nc: d"} {
		if h, err := headerOf([]string{line}); err == nil {
			t.Errorf("%q became %v", line, h)
		}
	}
}
