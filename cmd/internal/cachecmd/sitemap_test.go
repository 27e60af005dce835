package cachecmd

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
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
		"not a URL":     {"<urlset><url><loc>ftp://a/</loc></url></urlset>", "not an address"},
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
