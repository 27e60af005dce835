package remote

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/static/original"
	"millrace/store"
	"millrace/store/disk"
	"millrace/store/memory"
)

func httptestRequest(path string) *http.Request {
	return httptest.NewRequest(http.MethodGet, path, nil)
}

// bubble is a source whose host is a function, so that time can be synctest's.
type bubble struct {
	*Source
	asked  int
	handle http.HandlerFunc
}

// RoundTrip implements http.RoundTripper.
func (b *bubble) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked++
	if b.handle == nil {
		return nil, errors.New("the host is down")
	}
	w := httptest.NewRecorder()
	b.handle(w, r)
	return w.Result(), nil
}

func newBubble(t *testing.T, o Options, keep store.Store, h http.HandlerFunc) *bubble {
	t.Helper()
	o.From = "https://pictures.example.org"
	s, err := New(o, keep, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &bubble{Source: s, handle: h}
	s.client.Transport = b
	return b
}

func (b *bubble) original(t *testing.T) original.File {
	t.Helper()
	f, err := b.Original(httptestRequest("/a.png"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// validated answers as a host with an ETag does.
func validated(tag, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		picture(text)(w, r)
	}
}

func TestRevalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{Fresh: time.Minute}, keep, validated(`"1"`, "one"))
		defer b.Close()
		first := b.original(t)
		time.Sleep(59 * time.Second)
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		if b.asked != 1 || !first.Generation.Valid() {
			t.Fatalf("asked %d times while it is fresh; the mark is %t", b.asked, first.Generation.Valid())
		}
		time.Sleep(2100 * time.Millisecond) // stale, and no sweep at this very moment: the lane must let a request through
		if first.Generation.Valid() {
			t.Error("the mark outlives the freshness")
		}
		second := b.original(t)
		synctest.Wait()
		if b.asked != 2 || second.Version != first.Version || !second.Generation.Valid() {
			t.Errorf("asked %d times; the mark is %t", b.asked, second.Generation.Valid())
		}
		time.Sleep(time.Hour) // long stale: who asks waits
		b.handle = validated(`"2"`, "two")
		third := b.original(t)
		if third.Version == first.Version || b.asked != 3 {
			t.Errorf("asked %d times, and still the old one", b.asked)
		}
		want(t, do(b.Source, "/a.png"), 200, png("two"))
		if _, err := first.Open(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("opening the file before: %v", err)
		}

		// Not long stale: the old one at once, and its generation is invalidated by the change.
		time.Sleep(61 * time.Second)
		b.handle = validated(`"3"`, "three")
		old := b.original(t)
		if old.Version != third.Version {
			t.Error("the one who asked waited")
		}
		synctest.Wait()
		if old.Generation.Valid() {
			t.Error("the mark is valid after the change")
		}
		want(t, do(b.Source, "/a.png"), 200, png("three"))
	})
}

// TestSame: a host that sends the same again without validators has not
// changed it.
func TestSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{Fresh: time.Minute}, keep, picture("one"))
		defer b.Close()
		first := b.original(t)
		time.Sleep(time.Minute + time.Millisecond)
		second := b.original(t)
		synctest.Wait()
		if b.asked != 2 || first.Version != second.Version || !second.Generation.Valid() {
			t.Errorf("asked %d times; the mark is %t", b.asked, second.Generation.Valid())
		}
	})
}

// TestHostDown: what is kept is served for a day, then no more; a file that is
// not kept is asked for again after a while.
func TestHostDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{Fresh: time.Minute}, keep, picture("one"))
		defer b.Close()
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		b.handle = nil
		want(t, do(b.Source, "/b.png"), 502, "")
		asked := b.asked
		want(t, do(b.Source, "/b.png"), 502, "")
		if b.asked != asked {
			t.Error("the failure was not remembered")
		}
		time.Sleep(again + time.Second)
		want(t, do(b.Source, "/b.png"), 502, "")
		if b.asked != asked+1 {
			t.Error("the failure was remembered for too long")
		}
		time.Sleep(time.Hour)
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		asked = b.asked
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		if b.asked != asked {
			t.Error("a host that is down is asked every time")
		}
		time.Sleep(23 * time.Hour)
		want(t, do(b.Source, "/a.png"), 502, "")
		b.handle = picture("one")
		time.Sleep(again)
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		b.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
		time.Sleep(time.Hour)
		want(t, do(b.Source, "/a.png"), 200, png("one"))
	})
}

// TestGone: a file that is deleted at its host, or that its host does not give
// us any more, is gone here, too.
func TestGone(t *testing.T) {
	for _, code := range []int{http.StatusGone, http.StatusForbidden, http.StatusUnauthorized, http.StatusUnavailableForLegalReasons} {
		t.Run(http.StatusText(code), func(t *testing.T) { testGone(t, code) })
	}
}

func testGone(t *testing.T, code int) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{Fresh: time.Minute}, keep, picture("one"))
		defer b.Close()
		f := b.original(t)
		b.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
		time.Sleep(time.Hour)
		want(t, do(b.Source, "/a.png"), 404, "")
		if f.Generation.Valid() {
			t.Error("the mark is valid")
		}
		if _, err := b.Lookup("a.png"); !errors.Is(err, original.ErrNone) {
			t.Errorf("looked up: %v", err)
		}
		if _, err := keep.Get(t.Context(), b.key("a.png")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("still kept: %v", err)
		}
		b.handle = picture("again")
		time.Sleep(noneAgain)
		want(t, do(b.Source, "/a.png"), 200, png("again"))
	})
}

// TestRestart: what is kept is used by the next process, fresh or not.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{Fresh: time.Minute}, keep, validated(`"1"`, "one"))
		f := b.original(t)
		b.Close()
		b = newBubble(t, Options{Fresh: time.Minute}, keep, validated(`"1"`, "one"))
		if l, err := b.Lookup("a.png"); err != nil || l.Version != f.Version {
			t.Errorf("looked up: %v", err)
		}
		if again := b.original(t); again.Version != f.Version || b.asked != 0 {
			t.Errorf("asked %d times while it is fresh", b.asked)
		}
		b.Close()
		time.Sleep(time.Hour)
		bodies := 0
		b = newBubble(t, Options{Fresh: time.Minute}, keep, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") == "" {
				bodies++
			}
			validated(`"1"`, "one")(w, r)
		})
		defer b.Close()
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		if b.asked != 1 || bodies != 0 {
			t.Errorf("asked %d times, %d for the whole", b.asked, bodies)
		}
	})
}

// TestEvicted: a file that the store has dropped is fetched anew.
func TestEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := memory.New(1 << 20)
		defer keep.Close()
		b := newBubble(t, Options{}, keep, validated(`"1"`, "one"))
		defer b.Close()
		f := b.original(t)
		if err := keep.Delete(t.Context(), b.key("a.png")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Open(); err == nil {
			t.Error("opened what is not there")
		}
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		if err := keep.Delete(t.Context(), b.key("a.png")); err != nil {
			t.Fatal(err)
		}
		want(t, do(b.Source, "/a.png"), 200, png("one"))
		if b.asked != 3 {
			t.Errorf("asked %d times", b.asked)
		}
	})
}

func TestFreshness(t *testing.T) {
	s := &Source{o: Options{Fresh: 5 * time.Minute}}
	now := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for want, headers := range map[time.Duration][]string{
		5 * time.Minute: {"", "Cache-Control: public", "Cache-Control: immutable"},
		time.Minute: {
			"Cache-Control: max-age=60", "Cache-Control: public, MAX-AGE=60", `Cache-Control: max-age="60"`,
			"Cache-Control: max-age=5, s-maxage=60", "Cache-Control: s-maxage=60\nCache-Control: max-age=5",
			"Cache-Control: max-age=100\nAge: 40", "Expires: " + at(time.Minute), "Expires: " + at(0) + "\nDate: " + at(-time.Minute),
		},
		leastFresh: {
			"Cache-Control: no-store", "Cache-Control: max-age=60, no-cache", "Cache-Control: private", "Cache-Control: max-age=0",
			"Cache-Control: max-age=-1", "Cache-Control: max-age=x", "Expires: 0", "Expires: " + at(-time.Hour), "Cache-Control: max-age=9\nAge: 10",
			`Cache-Control: max-age=999, x="a, no-store`,
		},
		mostFresh: {"Cache-Control: max-age=31536000", "Cache-Control: max-age=99999999999999999999"},
	} {
		for _, lines := range headers {
			h := http.Header{}
			for line := range strings.Lines(lines) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				h.Add(name, value)
			}
			if got := s.freshness(h, now); got != want {
				t.Errorf("%q: %v, want %v", lines, got, want)
			}
		}
	}
}

// TestForeignHead: what others keep under a key is not taken for a file.
func TestForeignHead(t *testing.T) {
	keep := memory.New(1 << 20)
	s := openWith(t, Options{From: "https://pictures.example.org"}, keep)
	for _, head := range []string{"", "{}", "x", `{"remote":1,"size":4,"url":"https://elsewhere/"}`, `{"remote":1,"size":5,"url":"https://pictures.example.org/a.png"}`} {
		w, err := keep.Create(t.Context(), s.key("a.png"), 4)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, "body")
		if err := w.Commit([]byte(head)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.load(t.Context(), "a.png"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", head, err)
		}
	}
}

// FuzzName: no path leads out of From, to another host or to a query.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"/a.png", "/a/b%20c", "/../x", "/%2e%2e/x", "//evil/x", "/a?b", "/a%3Fb#c", "/\\x", "/a;b", "/@evil", "/a%25b"} {
		f.Add(seed)
	}
	s, err := New(Options{From: "https://pictures.example.org/archive"}, memory.New(1<<20), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	var n atomic.Int64
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.NewRequest(http.MethodGet, "http://site"+path, nil)
		if err != nil {
			return
		}
		name, ok := nameOf(r.URL)
		if !ok {
			return
		}
		n.Add(1)
		text := s.url(name).String()
		u, err := http.NewRequest(http.MethodGet, text, nil)
		if err != nil {
			t.Fatalf("%q leads to %q: %v", path, text, err)
		}
		if u.URL.Host != "pictures.example.org" || u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "" ||
			u.URL.Path != "/archive/"+name || strings.Contains(u.URL.Path, "/../") || strings.HasSuffix(u.URL.Path, "/..") {
			t.Fatalf("%q leads to %q", path, text)
		}
	})
}

// TestDisk: larger files are sent from where they are kept, and a download
// goes on although the file is replaced meanwhile.
func TestDisk(t *testing.T) {
	disk, err := disk.Open(disk.Options{Dir: t.TempDir(), Limit: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("0123456789", 20_000)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { picture(content)(w, r) })
	s := openWith(t, Options{From: up.URL, Private: true}, disk)
	want(t, do(s, "/a.png"), 200, png(content))
	want(t, do(s, "/a.png", "Range", "bytes=100008-100012"), 206, content[100000:100005])
	f, err := s.Original(httptestRequest("/a.png"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.mu.Lock()
	s.forget("a.png")
	s.mu.Unlock()
	if err := disk.Delete(t.Context(), s.key("a.png")); err != nil {
		t.Fatal(err)
	}
	before := content
	content = strings.Repeat("another", 20_000)
	want(t, do(s, "/a.png"), 200, png(content))
	if b, err := io.ReadAll(r); err != nil || string(b) != png(before) {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}
