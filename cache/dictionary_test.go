package cache

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"millrace/cache/key"
	"millrace/cache/purge"
	"millrace/internal/wire/dictionary"
)

func listing(page string) string {
	return strings.Repeat(`{"comments": 12, "url": "https://blog.example/post"}`, 100) + page
}

func named(content string) string {
	sum := sha256.Sum256([]byte(content))
	return ":" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// threads is an API whose answers vary by what a test says.
func threads(vary string) *origin {
	return &origin{answer: func(_ int, r *http.Request) *http.Response {
		pairs := []string{"Cache-Control", "public, max-age=60", "Content-Type", "application/json", "Etag", `"x"`}
		if vary != "" {
			pairs = append(pairs, "Vary", vary)
		}
		return say(200, listing(r.URL.RawQuery), pairs...)
	}}
}

// TestDictionaries: what clients have shortens what they get next.
func TestDictionaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := threads("Accept-Encoding")
		h := newCache(t, Options{Dictionaries: dictionary.Rules{"/items*"}}, up)
		defer h.Close()
		const both = "gzip, br, dcb, dcz"
		for range 2 {
			w := ask(h, "GET", "http://a.example/items?1", "Accept-Encoding", both)
			if got := w.Header().Get("Use-As-Dictionary"); got != `match="/items*"` {
				t.Fatalf("Use-As-Dictionary: %q", got)
			}
			synctest.Wait()
		}
		if asked := up.last.Load().Header.Get("Accept-Encoding"); asked != "" {
			t.Errorf("the upstream was asked for %q", asked)
		}
		get := func(target string, pairs ...string) (coding, body string) {
			for range 3 {
				w := ask(h, "GET", target, pairs...)
				coding, body = w.Header().Get("Content-Encoding"), w.Body.String()
				synctest.Wait()
			}
			return coding, body
		}
		coding, body := get("http://a.example/items?2", "Accept-Encoding", both, "Available-Dictionary", named(listing("1")))
		if !strings.HasPrefix(coding, "dc") || len(body) > 100 {
			t.Errorf("%d bytes of %q", len(body), coding)
		}
		// That it can be decoded is tested by the engine, with zstd and a browser.
		if coding, _ = get("http://a.example/items?2", "Accept-Encoding", "dcz", "Available-Dictionary", named(listing("1"))); coding != "dcz" {
			t.Errorf("who takes dcz alone gets %q", coding)
		}
		if w := ask(h, "GET", "http://a.example/items?2", "Accept-Encoding", "dcz", "Available-Dictionary", named(listing("1")), "Range", "bytes=0-9"); w.Header().Get("Content-Encoding") != "" || w.Code != 206 {
			t.Errorf("a part: %d %v", w.Code, w.Header())
		}
		// Its own bytes are no secret to who has it, but with the cache emptied there
		// is nothing that it could be compressed with.
		if err := h.Purge(context.Background(), purge.Selector{All: true, Hard: true}); err != nil {
			t.Fatal(err)
		}
		if coding, _ := get("http://a.example/items?2", "Accept-Encoding", "dcz", "Available-Dictionary", named(listing("1"))); coding != "" {
			t.Errorf("after a purge of all: %q", coding)
		}
		// A purge of the answer alone is how the next version comes.
		get("http://a.example/items?3", "Accept-Encoding", both)
		if err := h.Purge(context.Background(), purge.Selector{URL: "http://a.example/items?3", Hard: true}); err != nil {
			t.Fatal(err)
		}
		if coding, _ := get("http://a.example/items?4", "Accept-Encoding", "dcz", "Available-Dictionary", named(listing("3"))); coding != "dcz" {
			t.Errorf("after a purge of the older version: %q", coding)
		}
	})
}

// TestDictionariesAreEverybodys: what may be somebody's is none, and is compressed with
// none.
func TestDictionariesAreEverybodys(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		vary    string
		asked   []string
	}{
		"key by cookie":    {Options{Key: key.Options{Cookies: []string{"lang"}}}, "", []string{"Cookie", "lang=de"}},
		"key by header":    {Options{Key: key.Options{Headers: []string{"Authorization"}}}, "", []string{"Authorization", "Bearer x"}},
		"vary by a header": {Options{}, "X-Api-Key", []string{"X-Api-Key", "k"}},
		"credentials":      {Options{Preset: "rfc9111"}, "", []string{"Authorization", "Bearer x"}},
		"bypass":           {Options{}, "", []string{"Cookie", "a=b"}},
		"another path":     {Options{Dictionaries: dictionary.Rules{"/other*"}}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.options.Dictionaries == nil {
					c.options.Dictionaries = dictionary.Rules{"/items*"}
				}
				h := newCache(t, c.options, threads(c.vary))
				defer h.Close()
				for page := range 3 {
					for range 3 {
						w := ask(h, "GET", fmt.Sprintf("http://a.example/items?%d", page),
							append(c.asked, "Accept-Encoding", "dcb, dcz", "Available-Dictionary", named(listing("0")))...)
						if w.Code != 200 || w.Header().Get("Use-As-Dictionary") != "" || w.Header().Get("Content-Encoding") != "" {
							t.Errorf("%d %v", w.Code, w.Header())
						}
						synctest.Wait()
					}
				}
			})
		})
	}
}

// TestDictionariesOfUpstreams: an upstream that knows dictionaries itself does not hear
// of those that are known here.
func TestDictionariesOfUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &origin{answer: func(_ int, r *http.Request) *http.Response {
			return say(200, listing(r.URL.RawQuery), "Cache-Control", "max-age=60", "Content-Type", "application/json", "Use-As-Dictionary", `match="/*"`)
		}}
		h := newCache(t, Options{Dictionaries: dictionary.Rules{"/items*"}}, up)
		defer h.Close()
		w := ask(h, "GET", "http://a.example/items?1", "Available-Dictionary", named("x"), "Accept-Encoding", "dcb")
		if got := w.Header()["Use-As-Dictionary"]; len(got) != 1 || got[0] != `match="/items*"` || up.last.Load().Header.Get("Available-Dictionary") != "" {
			t.Errorf("%q, asked with %v", got, up.last.Load().Header)
		}
		w = ask(h, "GET", "http://a.example/other", "Available-Dictionary", named("x"))
		if got := w.Header().Get("Use-As-Dictionary"); got != `match="/*"` || up.last.Load().Header.Get("Available-Dictionary") == "" {
			t.Errorf("of another path: %q, asked with %v", got, up.last.Load().Header)
		}
	})
}

func TestDictionaryOptions(t *testing.T) {
	for _, o := range []Options{{Dictionaries: dictionary.Rules{"items"}}, {Dictionaries: dictionary.Rules{"/items*"}, NoCompress: true}} {
		o.To = []string{"http://127.0.0.1:1"}
		if o.Check()["dictionaries"] == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
