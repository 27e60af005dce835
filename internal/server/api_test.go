package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
	"millrace/internal/wire/send"
)

// apiAnswer is an answer as a cache keeps it: with a Date that is not ours.
func apiAnswer(status int, body string) *send.Answer {
	a := page(body)
	a.Status, a.ETag = status, `"api"`
	a.Header["Etag"] = []string{a.ETag}
	a.Header["Date"] = []string{lastChange.Format(http.TimeFormat)}
	if status == http.StatusNoContent {
		delete(a.Header, "Content-Length")
		a.Body, a.Size = nil, 0
	}
	return a
}

// aged serves an answer as a cache does, with its age, and offers it.
func aged(a *send.Answer, rule lane.Rule) http.HandlerFunc {
	age := func(now int64) int64 { return now - lastChange.Unix() }
	rule.Lines = func(b []byte, now int64) []byte {
		return fmt.Appendf(b, "Age: %d\r\nCache-Status: millrace; hit; ttl=%d\r\n", age(now), -age(now))
	}
	return func(w http.ResponseWriter, r *http.Request) {
		lane.Offer(r, a, rule)
		now := time.Now().Unix()
		w.Header()["Age"] = []string{strconv.FormatInt(age(now), 10)}
		w.Header()["Cache-Status"] = []string{fmt.Sprintf("millrace; hit; ttl=%d", -age(now))}
		send.Serve(w, r, a)
	}
}

const apiQuery = "/api/query?a=%zz&b=<c>"

var apiPaths = []string{apiQuery, "/api/gone", "/api/nothing", "/api/moved", "/api/directed"}

// newAPI is a site as a cache makes one: everything below /api/ is offered with
// its query, under two versions, and ages.
func newAPI() http.Handler {
	var gen, also lane.Generation
	all := func() lane.Rule { return lane.Rule{Version: gen.Now(), Also: also.Now(), WithQuery: true} }
	statuses := map[string]int{"/api/query": 200, "/api/gone": 410, "/api/nothing": 204, "/api/moved": 301}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rule := all()
		if r.URL.Path == "/api/directed" {
			rule.VaryOn = []string{"Cache-Control", "Pragma"}
			aged(apiAnswer(200, fmt.Sprintf("%q %q\n", r.Header["Cache-Control"], r.Header["Pragma"])), rule)(w, r)
			return
		}
		status := statuses[r.URL.Path]
		if status == 0 {
			http.NotFound(w, r)
			return
		}
		aged(apiAnswer(status, r.RequestURI+"\n"), rule)(w, r)
	})
}

// asked sends a request and says which lane answered.
func (r *rig) asked(t *testing.T, c *client, method, target string, headers ...string) (resp *http.Response, body string, fast bool) {
	t.Helper()
	before, all := r.fast(), r.fast()+r.slow()
	c.write(request(method, target, headers...))
	resp, body = c.answer(method)
	servertest.Eventually(t, "the answer is counted", func() bool { return r.fast()+r.slow() == all+1 })
	return resp, body, r.fast() > before
}

// Every status is replayed as it was sent first, whatever conditions are asked.
func TestStatusesInBothLanes(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		aged(apiAnswer(status, "status "+r.URL.Path[1:]+"\n"), lane.Rule{})(w, r)
	})
	r := start(t, plan{handler: h})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		for _, status := range []int{200, 203, 204, 301, 308, 404, 410, 451, 503, 599} {
			path := fmt.Sprint("/", status)
			first, body, _ := r.asked(t, c, "GET", path)
			for _, method := range []string{"GET", "HEAD"} {
				for _, header := range []string{"DNT: 1", `If-None-Match: "api"`, "If-Modified-Since: Mon, 06 May 2024 07:08:09 GMT"} {
					resp, got, fast := r.asked(t, c, method, path, header)
					want, wantStatus, length := body, status, first.Header.Get("Content-Length")
					if status == 200 && header != "DNT: 1" {
						want, wantStatus, length = "", 304, ""
					}
					if method == "HEAD" {
						want = ""
					}
					if resp.StatusCode != wantStatus || got != want || !fast || resp.Header.Get("Content-Length") != length {
						t.Errorf("%s %s with %s: %s, %q, length %q, by the lane %t", method, path, header, resp.Status, got, resp.Header["Content-Length"], fast)
					}
					volatile := []string{"Age", "Cache-Status", "Content-Length", "Content-Type", "Accept-Ranges"}
					if a, b := fmt.Sprint(headersBut(first.Header, volatile)), fmt.Sprint(headersBut(resp.Header, volatile)); a != b {
						t.Errorf("%s %s with %s:\n%s, net/http has\n%s", method, path, header, b, a)
					}
				}
			}
		}
	})
}

// Age goes on by itself; Date stays.
func TestAgeInTheLane(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		r.asked(t, c, "GET", apiQuery)
		for _, header := range []string{"DNT: 1", `If-None-Match: "api"`} {
			before := time.Now().Unix() - lastChange.Unix()
			resp, _, fast := r.asked(t, c, "GET", apiQuery, header)
			age, err := strconv.ParseInt(resp.Header.Get("Age"), 10, 64)
			if err != nil || age < before || age > time.Now().Unix()-lastChange.Unix() || !fast {
				t.Errorf("%s: Age %q, by the lane %t", header, resp.Header["Age"], fast)
			}
			if d := resp.Header["Date"]; len(d) != 1 || d[0] != lastChange.Format(http.TimeFormat) {
				t.Errorf("%s: Date %q", header, d)
			}
			if s := resp.Header["Cache-Status"]; len(s) != 1 || s[0] != fmt.Sprintf("millrace; hit; ttl=%d", -age) {
				t.Errorf("%s: Cache-Status %q", header, s)
			}
		}
	})
}

// A header that an answer varies on keeps classes apart; any other does nothing.
func TestVaryingHeaders(t *testing.T) {
	names := []string{
		"Accept", "Accept-Language", "Origin", "Cache-Control", "Pragma", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-For",
		"Referer", "User-Agent",
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[1:]
		rule := lane.Rule{VaryOn: []string{name}}
		if name == "none" {
			rule.VaryOn = nil
		}
		a := page(fmt.Sprintf("%q\n", r.Header[name]))
		lane.Offer(r, a, rule)
		send.Serve(w, r, a)
	})
	r := start(t, plan{handler: h})
	c := r.dial(t, "tcp")
	r.asked(t, c, "GET", "/none")
	for _, name := range names {
		if _, _, fast := r.asked(t, c, "GET", "/none", name+": x"); !fast {
			t.Errorf("%s keeps the lane from an answer that does not vary on it", name)
		}
		path := "/" + name
		for _, q := range []struct {
			headers []string
			want    string
			fast    bool
		}{
			{[]string{name + ": x"}, `["x"]`, false},
			{[]string{name + ": x"}, `["x"]`, true},
			{[]string{strings.ToLower(name) + ": x"}, `["x"]`, true},
			{nil, `[]`, false},
			{nil, `[]`, true},
			{[]string{name + ": X"}, `["X"]`, false},
			{[]string{name + ": x"}, `["x"]`, true},
			{[]string{name + ": x", name + ": x"}, `["x" "x"]`, false},
			{[]string{name + ": x, x"}, `["x, x"]`, false},
			{[]string{name + ":"}, `[""]`, false},
			{nil, `[]`, true},
		} {
			if _, body, fast := r.asked(t, c, "GET", path, q.headers...); body != q.want+"\n" || fast != q.fast {
				t.Errorf("%s with %q: %q, by the lane %t; want %s, %t", path, q.headers, body, fast, q.want, q.fast)
			}
		}
	}
}

// The key of an answer that says so is the target as it was sent.
func TestRawTargets(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := page(r.RequestURI + "\n")
		lane.Offer(r, a, lane.Rule{WithQuery: true})
		send.Serve(w, r, a)
	})
	r := start(t, plan{handler: h})
	overAll(t, func(t *testing.T, transport string) {
		for target, lane := range map[string]bool{
			"/p": true, "/p?": true, "/p?a=b": true, "/p?b=a": true, "/p?a=%62": true, "/p?a=%6": true, "/p?a=b&": true, "/p?a=b+c": true,
			"/p?a[]=1&a[]=2": true, "/p?url=https://a.example/?x=y": true, "/p?%00": true, `/p?"<>\^{|}`: true, "/p??": true,
			"/p?" + strings.Repeat("q", 3000): true,
			"/p%3Fa=b":                        true, "/p%20": true, "/p%C3%A4": true, "/%70": false, "/p%c3%a4": false, "/p%2Fa": false, "/ä?a": false, "/p?ä": false,
			"/p?" + strings.Repeat("q", 5000): false,
		} {
			c := r.dial(t, transport) // the lane leaves some for good
			target = strings.Replace(target, "/p", "/"+transport, 1)
			for i := range 3 {
				_, body, fast := r.asked(t, c, "GET", target)
				if body != target+"\n" || fast != (lane && i > 0) {
					t.Errorf("%.50s, time %d: %.50q, by the lane %t", target, i, body, fast)
				}
			}
		}
	})
}

// A HEAD request teaches the lane the answer to GET, body and all.
func TestOfferFromHead(t *testing.T) {
	r := start(t, plan{})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		target := "/api/query?" + transport
		r.asked(t, c, "HEAD", target)
		if _, body, fast := r.asked(t, c, "GET", target); body != target+"\n" || !fast {
			t.Errorf("%q, by the lane %t", body, fast)
		}
	})
}

// A body that begins inside a file, as in the files of a cache on disk.
func TestBodyInsideAFile(t *testing.T) {
	const before = 4096
	mux := http.NewServeMux()
	bodies := map[string]string{"/small": smallBody, "/big": bigBody, "/huge": hugeBody}
	for path, body := range bodies {
		name := filepath.Join(t.TempDir(), "object")
		if err := os.WriteFile(name, []byte(strings.Repeat("#", before)+body+"# more"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		a := page(body)
		a.Body, a.File, a.Base = nil, send.NewFile(f), before
		t.Cleanup(a.File.Release)
		mux.Handle(path, offering(a, lane.Rule{}))
	}
	r := start(t, plan{handler: mux})
	overAll(t, func(t *testing.T, transport string) {
		c := r.dial(t, transport)
		for path, want := range bodies {
			for i := range 3 {
				if _, body, fast := r.asked(t, c, "GET", path); body != want || i > 0 && !fast {
					t.Errorf("%s, time %d: %d bytes, by the lane %t", path, i, len(body), fast)
				}
			}
			if resp, body, _ := r.asked(t, c, "GET", path, "Range: bytes=2-4"); resp.StatusCode != 206 || body != want[2:5] {
				t.Errorf("a range of %s: %s, %q", path, resp.Status, body)
			}
		}
	})
}

// versions is an API whose answers change. A query is the number of a run and
// that of an object; every run begins at version 0.
func versions() http.Handler {
	type object struct {
		own     lane.Generation
		version int
	}
	var mu sync.Mutex
	var all lane.Generation
	var run string
	var objects map[string]*object
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if now, _, _ := strings.Cut(r.URL.RawQuery, "."); now != run {
			run, objects = now, map[string]*object{}
		}
		o := objects[r.URL.RawQuery]
		if o == nil {
			o = &object{}
			objects[r.URL.RawQuery] = o
		}
		switch r.URL.Path {
		case "/v":
			rule := lane.Rule{Version: o.own.Now(), Also: all.Now(), WithQuery: true}
			aged(apiAnswer(200, fmt.Sprintln(o.version)), rule)(w, r)
		case "/edit":
			o.version++
			o.own.Invalidate()
			_, _ = io.WriteString(w, "edited\n")
		case "/purge": // everything is another one, and nobody says so of each
			for _, o := range objects {
				o.version++
			}
			all.Invalidate()
			_, _ = io.WriteString(w, "purged\n")
		}
	})
}

// Whatever the order of requests, edits and purges on a pipelined connection,
// no answer is older than the last change before its request.
func FuzzChanges(f *testing.F) {
	f.Add([]byte{0, 0, 6, 0, 0, 3, 0, 0})
	f.Add([]byte{0, 1, 2, 0, 1, 2, 6, 0, 1, 2, 0, 1, 2, 4, 1, 1})
	f.Add([]byte{0, 9, 0, 19, 0, 6, 10, 16, 0})
	r := start(f, plan{handler: versions()})
	run := 0
	f.Fuzz(func(t *testing.T, ops []byte) {
		run++
		var stream strings.Builder
		var want []string
		version := map[byte]int{}
		for _, op := range ops[:min(len(ops), 64)] {
			i := op % 10 % 3
			target, answer := fmt.Sprintf("?%d.%d", run, i), "edited\n"
			_, known := version[i]
			switch op % 10 {
			case 3, 4, 5:
				target = "/edit" + target
				version[i]++
			case 6:
				target, answer = fmt.Sprintf("/purge?%d.3", run), "purged\n"
				for i := range version {
					version[i]++
				}
			default:
				if !known {
					version[i] = 0
				}
				target, answer = "/v"+target, fmt.Sprintln(version[i])
			}
			stream.WriteString(request("GET", target))
			want = append(want, answer)
		}
		c := r.dial(t, "unix")
		go func() { _, _ = io.WriteString(c, stream.String()) }() // ends with the connection
		for i, w := range want {
			if _, body := c.answer("GET"); body != w {
				t.Fatalf("answer %d of %v is %q, want %q", i, ops, body, w)
			}
		}
		_ = c.Close()
	})
}
