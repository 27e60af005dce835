package dictionary

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// example is a hash as a request names it.
const example = ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:"

func TestAsked(t *testing.T) {
	const both = "gzip, br, dcb, dcz"
	for _, c := range []struct {
		dictionary, accept, site string
		want                     string
	}{
		{example, both, "same-origin", "dcb dcz"},
		{example, both, "", "dcb dcz"},
		{example, both, "none", "dcb dcz"},
		{example, "DCB;q=0.5, dcz;q=0", "same-origin", "dcb"},
		{example, "dcz; q=1", "same-origin", "dcz"},
		{example, "dcb;q=x", "same-origin", ""},
		{example, both, "cross-site", ""},
		{example, both, "same-site", ""},
		{example, both, "same-origin, same-origin", ""},
		{example, "gzip, br, *", "same-origin", ""},
		{example, "", "same-origin", ""},
		{"", both, "same-origin", ""},
		{"pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=", both, "same-origin", ""},
		{":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG=:", both, "same-origin", ""},
		{":" + strings.Repeat("A", 44) + ":", both, "same-origin", ""}, // 33 bytes
		{example + ";x", both, "same-origin", ""},
		{":", both, "same-origin", ""},
		{strings.Repeat(":", 46), both, "same-origin", ""},
	} {
		h := http.Header{}
		for name, value := range map[string]string{Header: c.dictionary, "Accept-Encoding": c.accept, "Sec-Fetch-Site": c.site} {
			if value != "" {
				h[name] = []string{value}
			}
		}
		a, ok := Asked(h)
		var got []string
		for coding := range Codings {
			if ok && a.Accepts[coding] {
				got = append(got, coding.String())
			}
		}
		if strings.Join(got, " ") != c.want || ok != (c.want != "") {
			t.Errorf("%+v: %v %v", c, got, ok)
		}
		if ok && fmt.Sprintf("%x", a.Hash[:4]) != "a591a6d4" {
			t.Errorf("the hash begins with %x", a.Hash[:4])
		}
	}
	if _, ok := Asked(http.Header{Header: {example, example}, "Accept-Encoding": {both}}); ok {
		t.Error("two dictionaries are one")
	}
}

func TestPack(t *testing.T) {
	old := bytes.Repeat([]byte("a version of some script; "), 100)
	plain := append([]byte("// new\n"), old...)
	var tools Tools
	hash := Of(old)
	for c, begins := range map[Coding]string{Brotli: "\xff\x44\x43\x42", Zstd: "\x5e\x2a\x4d\x18\x20\x00\x00\x00"} { // RFC 9842, 4 and 5
		packed, err := Pack(&tools, c, old, plain, nil)
		if err != nil || !bytes.HasPrefix(packed, append([]byte(begins), hash[:]...)) || len(packed) > 120 {
			t.Errorf("%s: %d bytes, %x…, %v", c, len(packed), packed[:min(len(packed), 8)], err)
		}
		if c != Zstd {
			continue
		}
		d, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, old))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if got, err := d.DecodeAll(packed, nil); err != nil || !bytes.Equal(got, plain) { // it skips what stands before
			t.Errorf("dcz: %d bytes, %v", len(got), err)
		}
	}
}

func TestRules(t *testing.T) {
	rules := Rules{"/assets/app-*.js", "/assets/*-vendor-*.css", "/exact.json"}
	if err := rules.Check(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/assets/app-1.js": 1, "/assets/app-.js": 1, "/assets/app-x/y.js": 1, "/assets/app-.jsx": 0, "/x/assets/app-1.js": 0, "/assets/app-js": 0,
		"/assets/a-vendor-1.css": 2, "/assets/-vendor-.css": 2, "/assets/-vendor.css": 0, "/exact.json": 3, "/exact.jsons": 0, "": 0,
	} {
		if got := rules.Of(path); got != want {
			t.Errorf("%q: rule %d, want %d", path, got, want)
		}
	}
	if got := rules.Match(1, "/sub"); got != `match="/sub/assets/app-*.js"` {
		t.Error(got)
	}
	for _, bad := range []string{"", "app.js", "*", "/*", "/", "/a**b", "/a?b", `/a"b`, "/{a}", "/:name", "/a\nb", "/ä", "https://a/b"} {
		if (Rules{bad}).Check() == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
	if make(Rules, maxRules+1).Check() == nil {
		t.Error("there may be any number")
	}
}

func TestKept(t *testing.T) {
	var k Kept
	content := func(i int) []byte { return fmt.Appendf(nil, "content %d", i) }
	for i := range keptForRule + 1 {
		k.Add(1, content(i))
	}
	if k.Has(1, Of(content(0))) || !k.Has(1, Of(content(1))) || !k.Has(1, Of(content(keptForRule))) {
		t.Error("the oldest is not the one that went")
	}
	k.Add(1, content(99)) // 1 was asked for since, 2 was not
	if !k.Has(1, Of(content(1))) || k.Has(1, Of(content(2))) {
		t.Error("what is asked for goes before what is not")
	}
	if k.Has(2, Of(content(1))) {
		t.Error("a rule has another's")
	}
	large := func(i int) []byte { return append(make([]byte, MaxSize), byte(i)) }
	for i := range 2 * keptBytes / MaxSize {
		k.Add(2+i%10, large(i))
	}
	if k.bytes > keptBytes || len(k.byName) != k.recent.Len() {
		t.Errorf("%d bytes are kept, %d names, %d contents", k.bytes, len(k.byName), k.recent.Len())
	}
}

func FuzzAsked(f *testing.F) {
	f.Add(example, "gzip, dcb", "same-origin")
	f.Fuzz(func(t *testing.T, dictionary, accept, site string) {
		a, ok := Asked(http.Header{Header: {dictionary}, "Accept-Encoding": {accept}, "Sec-Fetch-Site": {site}})
		if ok && (!a.Accepts[Brotli] && !a.Accepts[Zstd] || site != "same-origin" && site != "none" || len(dictionary) != len(example)) {
			t.Errorf("%q %q %q: %+v", dictionary, accept, site, a)
		}
	})
}
