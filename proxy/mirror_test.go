package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/internal/process/servertest"
	"millrace/internal/upstream"
)

// mirrored is a proxy with a mirror, and what that one got.
type mirrored struct {
	*rig
	copies  *Copies
	dropped atomic.Int32
	mu      sync.Mutex
	got     map[string]int
}

func newMirrored(t *testing.T, protocol string, m Mirror, back http.HandlerFunc) *mirrored {
	t.Helper()
	x := &mirrored{got: map[string]int{}}
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		x.got[fmt.Sprintf("%s %s %s %d %s", r.Method, r.URL, r.Header.Get("X-A"), r.ContentLength, b)]++
		x.mu.Unlock()
		if back != nil {
			back(w, r)
		}
	}))
	t.Cleanup(mirror.Close)
	m.To = []string{mirror.URL}
	pool, err := upstream.New(Options{Mirror: m}.OfMirror(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	x.copies = NewCopies(m, pool, func() { x.dropped.Add(1) })
	t.Cleanup(func() { x.copies.Close() })
	x.rig = newRig(t, protocol, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d %s", r.Method, r.ContentLength, b)
	}))
	x.Mirror(x.copies)
	return x
}

func TestMirror(t *testing.T) {
	servertest.OverProtocols(t, func(t *testing.T, protocol string) {
		x := newMirrored(t, protocol, Mirror{Body: 10}, nil)
		for _, c := range []struct {
			method, body string
			chunked      bool
		}{{"GET", "", false}, {"POST", "0123456789", false}, {"POST", "01234567890", false}, {"PUT", "abc", true}, {"PUT", "abcdefghijk", true}} {
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			if c.chunked {
				body = io.MultiReader(body)
			}
			_, got := x.do(x.request(c.method, "/p?q="+c.method, body, "X-A", "a"))
			if want := fmt.Sprintf("%s %d %s", c.method, len(c.body), c.body); got != want {
				t.Errorf("the client got %q, want %q", got, want)
			}
		}
		x.copies.running.Wait()
		x.mu.Lock()
		defer x.mu.Unlock()
		want := map[string]int{"GET /p?q=GET a 0 ": 1, "POST /p?q=POST a 10 0123456789": 1, "PUT /p?q=PUT a 3 abc": 1}
		if fmt.Sprint(x.got) != fmt.Sprint(want) {
			t.Errorf("the mirror got %v, want %v", x.got, want)
		}
	})
}

// TestMirrorHangs: nobody waits for a mirror that does not answer, and there are
// never more copies than mostCopies.
func TestMirrorHangs(t *testing.T) {
	hang := make(chan struct{})
	x := newMirrored(t, "h1", Mirror{}, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	for range mostCopies + 20 {
		if res, body := x.get("/"); res.StatusCode != 200 || body != "GET 0 " {
			t.Fatalf("%d %q", res.StatusCode, body)
		}
	}
	if n := x.dropped.Load(); n != 20 {
		t.Errorf("%d requests were not mirrored, want 20", n)
	}
	close(hang)
}

// TestMirrorHolds: copies hold no more than mostHeld of bodies, and give it back.
func TestMirrorHolds(t *testing.T) {
	x := newMirrored(t, "h1", Mirror{Body: 100}, nil)
	x.copies.bodyBytes.Store(mostHeld - 10)
	for _, body := range []string{"01234567890", "01234", "56789"} {
		x.do(x.request("POST", "/", strings.NewReader(body)))
		x.copies.running.Wait()
	}
	if n := x.dropped.Load(); n != 1 || x.got["POST / "+" 5 01234"] != 1 {
		t.Errorf("%d were not mirrored, want the first: %v", n, x.got)
	}
	if n := x.copies.bodyBytes.Load(); n != mostHeld-10 {
		t.Errorf("%d bytes are held in the end, want %d", n, mostHeld-10)
	}
}

func TestMirrorOptions(t *testing.T) {
	for key, change := range map[string]func(*Options){
		"":             func(*Options) {},
		"mirror.to":    func(o *Options) { o.Stream = true },
		"mirror.to[0]": func(o *Options) { o.Mirror.To = []string{"b"} },
		"mirror.share": func(o *Options) { o.Mirror.Share = -1 },
		"mirror.body":  func(o *Options) { o.Mirror.Body = 17 << 20 },
	} {
		o := to("http://a")
		o.Mirror = Mirror{To: []string{"http://b"}, Share: 10}
		change(&o)
		faults := o.Check()
		if key == "" && len(faults) > 0 || key != "" && faults[key] == nil {
			t.Errorf("%+v: %v, want a fault of %q", o.Mirror, faults, key)
		}
	}
}
