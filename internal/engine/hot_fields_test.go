package engine_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"millrace/internal/engine"
	"millrace/internal/observe/accesslog"
	"millrace/internal/process/servertest"
)

// dependent are the fields of the server of TestFieldsThatCount, each with the paths whose
// answers depend on it. To the other paths it must not matter.
var dependent = map[string][]string{
	"X-Field-Rule":      {"/rule/"},
	"X-Field-Table":     {"/table/"},
	"X-Field-Template":  {"/template/"},
	"X-Field-Key":       {"/key/"},
	"X-Field-Vary":      {"/vary/", "/key/"},
	"X-Field-Rate":      {"/rate/"},
	"Sec-Ch-Width":      {"/rule/"},
	"X-Field-Client":    {"*"},
	"X-Field-Id":        {"*"},
	"X-Field-Unrelated": nil,
	"Via":               nil,
}

// dependentKeys are all keys of the config that name header fields. Those that name fields of
// requests have a part in TestFieldsThatCount, with "".
var dependentKeys = map[string]string{
	"admit_Rate.header":             "",
	"guard_Rule.header":             "",
	"key_Options.headers":           "",
	"server_Options.client_header":  "",
	"trace_IDOptions.header":        "",
	"cache_Options.header_bytes":    "a size",
	"cache_Options.header_timeout":  "a time",
	"cache_Options.request_headers": "what upstreams get",
	"cache_Options.tag_headers":     "of an upstream's answer",
	"config_Route.headers":          "of answers",
	"config_Site.headers":           "of answers",
	"config_Snippet.headers":        "of answers",
	"headers_CORSOptions.headers":   "for preflights, which are not GET",
	"proxy_Canary.header":           "nothing that a proxy sends is kept, and a cache has one answer whichever server it asked",
	"proxy_Options.header_bytes":    "a size",
	"proxy_Options.header_timeout":  "a time",
	"proxy_Options.request_headers": "what upstreams get",
	"server_Options.header_bytes":   "a size",
	"server_Options.header_timeout": "a time",
	"signin_Options.user_header":    "what upstreams get",
	"trace_Options.headers":         "what the collector gets",
}

// TestFieldsAreCounted: a new key for a header field needs a place in dependentKeys, and if it
// is for a field of requests, one in TestFieldsThatCount.
func TestFieldsAreCounted(t *testing.T) {
	text, err := os.ReadFile("../../docs/millrace.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for of, def := range schema.Defs {
		for key := range def.Properties {
			if strings.Contains(key, "header") {
				found[of+"."+key] = true
			}
		}
	}
	if want, got := slices.Sorted(maps.Keys(dependentKeys)), slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("the config has %q, not %q", got, want)
	}
}

// fieldServer starts the server of TestFieldsThatCount, with the fast lane or without.
func fieldServer(t *testing.T, off bool, cert, key, log string) *engine.Server {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Vary", "X-Field-Vary")
		_, _ = fmt.Fprintf(w, "vary %q, key %q", r.Header["X-Field-Vary"], r.Header["X-Field-Key"])
	}))
	t.Cleanup(up.Close)
	files := folder(t, map[string]string{
		"a.html": "plain", "ruled.html": "ruled", "one.html": "one", "two.html": "two", "templ.html": "no field", "templ1.html": "1", "templ2.html": "2",
	})
	cfg := parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
tls: {listen: ["127.0.0.1:0"], cert: %q, key: %q, redirect: false, http3: true}
lane: {off: %v}
limits: {trusted_proxies: [127.0.0.1], client_header: X-Field-Client}
request_id: X-Field-Id
tables: {t: {key: '{header.X-Field-Table}', values: {'1': /two}, default: /one}}
sites:
- rules:
  - {path: /rule/, header: {X-Field-Rule: '*'}, rewrite: /files/ruled.html}
  - {path: /rule/, header: {Sec-CH-Width: '*'}, rewrite: /files/two.html}
  - {path: /rule/, rewrite: /files/a.html}
  - {path: /table/, rewrite: '/files{table.t}.html'}
  - {path: /template/, rewrite: '/files/templ{header.X-Field-Template}.html'}
  routes:
    /files/: {static: {root: %q}}
    /rate/: {static: {root: %q}, rate_limit: {rate: 20/h, header: X-Field-Rate}}
    /key/: {cache: {to: %s, key: {headers: [X-Field-Key]}}}
    /vary/: {cache: %s}
`, cert, key, off, files, files, up.URL, up.URL))
	cfg.Log = accesslog.Options{File: log, Format: "json"}
	return start(t, cfg)
}

// fieldPaths are what TestFieldsThatCount asks for.
var fieldPaths = []string{"/rule/a.html", "/table/a.html", "/template/a.html", "/key/a", "/vary/a", "/files/a.html"}

// ownID matches a request's id in an error.
var ownID = regexp.MustCompile(`\nRequest id: \w+`)

// TestFieldsThatCount: a page that has become hot without a field is not sent to a request
// that has it, if the page depends on it. All that the lane answers is what a server without
// it would have, and other fields leave a request hot.
func TestFieldsThatCount(t *testing.T) {
	cert, key, pool := certificate(t)
	logs := [2]string{filepath.Join(t.TempDir(), "lane"), filepath.Join(t.TempDir(), "no-lane")}
	var servers [2]*engine.Server
	for i, log := range logs {
		servers[i] = fieldServer(t, i == 1, cert, key, log)
	}
	conf := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	type sent struct {
		text string
		id   bool   // it says its id
		cold bool   // the lane must not answer it
		hot  string // of all with this text it must answer one; "": it need not
	}
	var asked []sent
	for _, protocol := range protocols {
		ways := [2]*way{wayTo(t, protocol, servers[0], conf), wayTo(t, protocol, servers[1], conf)}
		both := func(hot string, cold bool, path string, head ...string) {
			t.Helper()
			var got [2]string
			for i, w := range ways {
				res, body := w.ask("GET", path, "", append([]string{"Referer", strconv.Itoa(len(asked))}, head...)...)
				got[i] = fmt.Sprintf("%d %s, Vary %q, %s", res.StatusCode, ownID.ReplaceAllString(body, ""), res.Header["Vary"], res.Header.Get("Content-Type"))
			}
			text := fmt.Sprintf("%s %s %v", protocol, path, head)
			asked = append(asked, sent{text, slices.Contains(head, "X-Field-Id"), cold, hot})
			if got[0] != got[1] {
				t.Errorf("%s:\nwith the lane    %s\nwithout the lane %s", text, got[0], got[1])
			}
		}
		for range 3 {
			for _, path := range fieldPaths {
				both("", false, path)
			}
		}
		for _, field := range slices.Sorted(maps.Keys(dependent)) {
			for _, value := range []string{"1", "2", "198.51.100.1"} {
				for _, path := range fieldPaths {
					cold := slices.ContainsFunc(dependent[field], func(at string) bool { return at == "*" || strings.HasPrefix(path, at) })
					hot := protocol + " " + path + " " + field
					if cold {
						hot = ""
					}
					both(hot, cold, path, field, value)
					both(hot, cold, path, "X-Another", "x", field, value, "X-Another", "y")
					both(protocol+" "+path, false, path, "X-Another", "", "Te", "trailers")
				}
			}
		}
		for range 2 {
			both("", false, "/rate/a.html", "X-Another", "x")
		}
		for _, spelling := range []string{"X-Field-Rate", "x-field-rate", "X_Field_Rate"} { // of one limit
			for range 8 {
				both("", false, "/rate/a.html", spelling, protocol, "X-Another", "x")
			}
		}
	}
	var lines [2]map[string]fieldLine
	for i, log := range logs {
		servertest.Eventually(t, "all lines of the log", func() bool {
			text, err := os.ReadFile(log)
			if err != nil || bytes.Count(text, []byte("\n")) < len(asked) {
				return false
			}
			lines[i] = map[string]fieldLine{}
			for line := range bytes.Lines(text) {
				var one fieldLine
				if err := json.Unmarshal(line, &one); err != nil {
					t.Fatal(err)
				}
				lines[i][one.Referer] = one
			}
			return true
		})
	}
	hot := map[string]bool{}
	for i, q := range asked {
		with, without := lines[0][strconv.Itoa(i)], lines[1][strconv.Itoa(i)]
		if with.Remote != without.Remote || with.Status != without.Status || q.id && with.ID != without.ID {
			t.Errorf("%s: the log has %+v, and without the lane %+v", q.text, with, without)
		}
		if q.cold && with.Lane == "fast" {
			t.Errorf("%s: was answered by the lane", q.text)
		}
		hot[q.hot] = hot[q.hot] || with.Lane == "fast"
	}
	for of, was := range hot {
		if !was && of != "" {
			t.Errorf("%s: the lane has answered nothing", of)
		}
	}
}

// fieldLine is a line of the log.
type fieldLine struct {
	Referer, Remote, Lane string
	Status                int
	ID                    string `json:"request_id"`
}

// TestFieldsWhileOffered: while a page without a field is being offered, nobody with it gets
// it.
func TestFieldsWhileOffered(t *testing.T) {
	cert, key, pool := certificate(t)
	srv := fieldServer(t, false, cert, key, filepath.Join(t.TempDir(), "log"))
	conf := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var all sync.WaitGroup
			for n := range 4 {
				w := wayTo(t, protocol, srv, conf)
				all.Go(func() {
					for i := range 60 {
						for path, c := range map[string]struct{ field, with, without string }{
							"/rule/a.html":  {"X-Field-Rule", "ruled", "plain"},
							"/table/a.html": {"X-Field-Table", "two", "one"},
							"/key/a":        {"X-Field-Key", `vary [], key ["1"]`, `vary [], key []`},
							"/vary/a":       {"X-Field-Vary", `vary ["1"], key []`, `vary [], key []`},
						} {
							head, want := []string{"X-Another", "1"}, c.without
							if (n+i)%3 == 0 {
								head, want = append(head, c.field, "1"), c.with
							}
							res, body, err := w.try("GET", fmt.Sprintf("%s?%d", path, i/4), "", headOf(head))
							if err != nil || res.StatusCode != http.StatusOK || body != want {
								t.Errorf("%s %v: %v %q, want %q", path, head, err, body, want)
								return
							}
						}
					}
				})
			}
			all.Wait()
		})
	}
}

func headOf(head []string) http.Header {
	h := http.Header{}
	for i := 0; i < len(head); i += 2 {
		h.Add(head[i], head[i+1])
	}
	return h
}

// TestHotConditionsAndRanges: 304 and 206 from the lane have every field that they have
// without it, whichever job has made the answer.
func TestHotConditionsAndRanges(t *testing.T) {
	cert, key, pool := certificate(t)
	text := strings.Repeat("a text that can be compressed well\n", 1000)
	const date, later, earlier = "Mon, 06 May 2024 07:08:09 GMT", "Tuesday, 07-May-24 07:08:09 GMT", "Sun May  5 07:08:09 2024"
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Last-Modified", date)
		w.Header().Set("Etag", `"t"`)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(up.Close)
	files := folder(t, map[string]string{"a.txt": text, "short.txt": "short", "large.bin": strings.Repeat("0123456789abcdef", 20_000)})
	log := filepath.Join(t.TempDir(), "log")
	var servers [2]*engine.Server
	for i := range servers {
		cfg := parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
tls: {listen: ["127.0.0.1:0"], cert: %q, key: %q, redirect: false, http3: true}
lane: {off: %v}
sites:
- headers: {set: {X-Rule: '{host}'}, remove: [X-Content-Type-Options], add: {Vary: X-Rule}, security: on}
  routes:
    /: {static: {root: %q}, cors: '*'}
    /api: {cache: {to: %s}}
    /text: {respond: {text: a text that is long enough}}
`, cert, key, i == 1, files, up.URL))
		if i == 0 {
			cfg.Log = accesslog.Options{File: log, Format: "json"}
		}
		servers[i] = start(t, cfg)
	}
	conf := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	paths := []string{"/a.txt", "/short.txt", "/large.bin", "/api", "/text"}
	for _, protocol := range protocols {
		ways := [2]*way{wayTo(t, protocol, servers[0], conf), wayTo(t, protocol, servers[1], conf)}
		tags := map[string]string{}
		both := func(method, path string, head ...string) {
			t.Helper()
			var got [2]string
			for i, w := range ways {
				res, body := w.ask(method, path, "", append([]string{"Host", "localhost"}, head...)...)
				for _, name := range []string{"Date", "Age", "Cache-Status", "Alt-Svc"} {
					delete(res.Header, name)
				}
				if res.StatusCode == http.StatusOK {
					tags[path] = res.Header.Get("Etag")
				}
				got[i] = fmt.Sprintf("%d %q %d bytes %x", res.StatusCode, res.Header, len(body), sha256.Sum256([]byte(body)))
			}
			if got[0] != got[1] {
				t.Errorf("%s %s %s %v:\nwith the lane    %s\nwithout the lane %s", protocol, method, path, head, got[0], got[1])
			}
		}
		for _, path := range paths {
			for _, accept := range []string{"", "br", "gzip, deflate, br, zstd"} {
				with := func(head ...string) []string {
					if accept != "" {
						head = append(head, "Accept-Encoding", accept)
					}
					return head
				}
				for _, w := range ways { // until everything is stored and encoded
					servertest.Eventually(t, "the encoded answer", func() bool {
						res, _ := w.ask("GET", path, "", with("Host", "localhost")...)
						if path == "/api" && !strings.Contains(res.Header.Get("Cache-Status"), "hit") {
							return false
						}
						return accept == "" || path != "/a.txt" && path != "/api" || res.Header.Get("Content-Encoding") != ""
					})
				}
				for range 3 {
					both("GET", path, with()...)
				}
				tag := tags[path]
				for _, head := range [][]string{
					{"If-None-Match", tag},
					{"If-None-Match", `"x", ` + tag},
					{"If-None-Match", "W/" + strings.TrimPrefix(tag, "W/")},
					{"If-None-Match", "*"},
					{"If-None-Match", `"x"`},
					{"If-None-Match", tag, "Range", "bytes=0-1"},
					{"If-None-Match", `"x"`, "If-Modified-Since", later},
					{"If-Modified-Since", date},
					{"If-Modified-Since", later},
					{"If-Modified-Since", earlier},
					{"If-Modified-Since", "never"},
					{"Range", "bytes=0-1"},
					{"Range", "bytes=2-"},
					{"Range", "bytes=-3"},
					{"Range", "bytes=0-"},
					{"Range", "bytes=30000-40000"},
					{"Range", "bytes=1000000-"},
					{"Range", "bytes=x"},
					{"Range", "bytes=5-4"},
					{"Range", "bytes=0-1", "If-Range", tag},
					{"Range", "bytes=0-1", "If-Range", `"x"`},
					{"Range", "bytes=0-1", "If-Range", date},
					{"Range", "bytes=0-1", "If-Match", tag},
					{"Range", "bytes=0-1", "If-Match", `"x"`},
				} {
					both("GET", path, with(head...)...)
					if accept == "br" {
						both("HEAD", path, with(head...)...)
					}
				}
			}
		}
	}
	var parts, notModified int
	servertest.Eventually(t, "the log has parts and 304 from the lane", func() bool {
		text, err := os.ReadFile(log)
		parts, notModified = 0, 0
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(`"lane":"fast"`)) {
				parts += bytes.Count(line, []byte(`"status":206`))
				notModified += bytes.Count(line, []byte(`"status":304`))
			}
		}
		return err == nil && parts > 100 && notModified > 100
	})
	t.Logf("%d parts and %d times 304 from the lane", parts, notModified)
}

// TestVariantsThatVaryApart: of two stored answers for one URL that vary on different fields,
// the latest one that a request selects is meant (RFC 9111, 4.1), also where the other is hot.
func TestVariantsThatVaryApart(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		by := "Accept-Language"
		if r.Header.Get("X-By") != "" {
			by = "X-By"
		}
		w.Header().Set("Vary", by)
		_, _ = io.WriteString(w, by)
	}))
	t.Cleanup(up.Close)
	everyWay(t, "sites:\n- routes:\n    /: {cache: "+up.URL+"}\n", func(w *way) {
		path := "/" + w.protocol
		for _, c := range []struct{ by, language, want string }{
			{"", "de", "Accept-Language"},
			{"1", "fr", "X-By"}, // both are stored
			{"", "de", "Accept-Language"},
			{"", "de", "Accept-Language"},
			{"", "de", "Accept-Language"},
			{"1", "de", "X-By"},
			{"1", "de", "X-By"},
			{"", "de", "Accept-Language"},
		} {
			head := []string{"Accept-Language", c.language}
			if c.by != "" {
				head = append(head, "X-By", c.by)
			}
			if _, got := w.ask("GET", path, "", head...); got != c.want {
				t.Errorf("%s %v: the answer varies on %s, not on %s", w.protocol, head, got, c.want)
			}
		}
	})
}

// TestOtherSpellingsAreCounted: a limit by X_Api_Key counts X-Api-Key as well, for hot pages,
// too.
func TestOtherSpellingsAreCounted(t *testing.T) {
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /: {static: {root: %q}, rate_limit: {rate: 5/h, header: X_Api_Key}}\n", folder(t, map[string]string{"a.html": "a"})), func(w *way) {
		for range 2 {
			w.ask("GET", "/a.html", "", "X_Api_Key", w.protocol)
		}
		w.ask("GET", "/a.html", "")
		for i := range 8 {
			want := http.StatusOK
			if i >= 3 {
				want = http.StatusTooManyRequests
			}
			if res, _ := w.ask("GET", "/a.html", "", "X-Api-Key", w.protocol); res.StatusCode != want {
				t.Errorf("%s, lane off %v, request %d: %d, want %d", w.protocol, w.off, i, res.StatusCode, want)
			}
		}
	})
}

// TestHeadsAreNotKept: what is kept of a page does not hold on to the head of the request that
// has asked for it first. Its strings are parts of one piece of memory.
func TestHeadsAreNotKept(t *testing.T) {
	const pages, atMost = 1000, 1 << 10 // bytes that a page may take more because of a long head
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		w.Header().Set("Vary", "Accept-Language")
	}))
	t.Cleanup(up.Close)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools have two generations
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var took [2]int64
	for i, referer := range []string{"short", strings.Repeat("r", 3400)} {
		srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
sites:
- headers: {set: {X-Rule: '{host}{path}'}}
  routes: {/: {cache: {to: %s, cors: {origins: ['https://a.test']}}}}
`, up.URL)))
		w := wayTo(t, "h1", srv, nil)
		w.ask("GET", "/first", "")
		before := heap()
		for range 2 { // the second time they are offered to the lane
			for n := range pages {
				w.ask("GET", fmt.Sprintf("/%d", n), "", "Referer", referer, "Origin", "https://a.test", "Accept-Language", "de")
			}
		}
		took[i] = (heap() - before) / pages
	}
	t.Logf("a page takes %d bytes, and %d where the head was long", took[0], took[1])
	if took[1] > took[0]+atMost {
		t.Errorf("a page takes %d bytes, but %d where the head was long", took[0], took[1])
	}
}
