package millrace

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache"
	"millrace/internal/bytesize"
	"millrace/internal/config"
)

func TestPercentFor(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		budget, live bytesize.Size
		want         int
	}{
		{320 * MiB, 0, 100},
		{320 * MiB, 10 * MiB, 100},
		{320 * MiB, 100 * MiB, 48},
		{320 * MiB, 270 * MiB, 17},
		{320 * MiB, 600 * MiB, 15},
		{320 * MiB, 100 << 30, 15},
		{1 * MiB, 10 * MiB, 80},
		{1 << 40, 1 << 40, 15},
	} {
		if got := percentFor(c.budget, c.live); got < c.want-1 || got > c.want {
			t.Errorf("with a budget of %s and %s in use: %d %%, want %d", c.budget, c.live, got, c.want)
		}
	}
	// A full cache and its garbage stay below 1.3 times the budget.
	for b := bytesize.Size(256 * MiB); b <= 1<<40; b *= 2 {
		if peak := b + b*bytesize.Size(percentFor(b, b))/100; peak > b/100*120 {
			t.Errorf("a full cache of %s may grow to %s", b, peak)
		}
	}
}

func TestBudget(t *testing.T) {
	for yaml, want := range map[string]bytesize.Size{
		"{/: {deny: {}}}":                  0,
		"{/: {cache: http://127.0.0.1:1}}": (256 + 64) << 20,
		"{/: {cache: &c {to: http://127.0.0.1:1, memory: 8MiB}}, /a/: {cache: *c}}":              (8 + 64) << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}, /a/: {cache: http://127.0.0.1:1}}": (8 + 256 + 64) << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}}}]\nlane: {off: true}\n#":           8 << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}}}]\nlane: {memory: 1MiB}\n#":        9 << 20,
	} {
		cfg, err := config.Parse("x.yaml", []byte("sites: [{routes: "+yaml+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := budget(cfg); got != want {
			t.Errorf("%s: %s, want %s", yaml, got, want)
		}
	}
}

func gogc() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestCollectorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(90)
	defer debug.SetGCPercent(before)
	c := newCollector()
	c.set(200 << 20)
	until := func(what string, ok func(uint64) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !ok(gogc()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: GOGC is %d", what, gogc())
			}
			runtime.GC()
		}
	}
	until("a small heap", func(p uint64) bool { return p == goPercent })
	held := make([]byte, 200<<20)
	until("a full cache", func(p uint64) bool { return p == garbageShare || p == garbageShare-1 })
	runtime.KeepAlive(held) // up to here
	until("an empty one again", func(p uint64) bool { return p == goPercent })
	c.set(0)
	if gogc() != 90 {
		t.Errorf("given back as %d, was 90", gogc())
	}
	runtime.GC()
	c.set(200 << 20)
	c.set(0)
	if gogc() != 90 {
		t.Errorf("given back a second time as %d, was 90", gogc())
	}
}

func TestCollectorIsTheUsers(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			t.Setenv(name, "200")
			before := gogc()
			c := newCollector()
			c.set(200 << 20)
			if gogc() != before {
				t.Errorf("GOGC became %d although the user has said %s", gogc(), name)
			}
		})
	}
}

// TestLine: what comes before the cache is there waits for it, and what comes
// after it was closed is dropped.
func TestLine(t *testing.T) {
	answer := roundTripper(func(r *http.Request) (*http.Response, error) { return nil, errors.New("nobody is asked") })
	synctest.Test(t, func(t *testing.T) {
		o := cache.Options{Memory: 1 << 20}
		o.To = []string{"http://upstream.invalid"}
		h, err := cache.New(o, cache.Deps{Transport: answer})
		if err != nil {
			t.Fatal(err)
		}
		l := &line{ready: make(chan struct{})}
		told := make(chan bool)
		go func() {
			l.tell(func(got *cache.Handler) { told <- got == h })
			close(told)
		}()
		synctest.Wait()
		select {
		case <-told:
			t.Error("something was told before there was a cache")
		default:
		}
		l.connect(h, nil)
		if !<-told {
			t.Error("another cache was told")
		}
		<-told // closed
		l.changed([]string{"k"})
		l.message(nil, true)
		l.cut()
		l.tell(func(*cache.Handler) { t.Error("a cache that was closed is told something") })
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		failed := &line{ready: make(chan struct{})}
		failed.connect(nil, io.ErrUnexpectedEOF)
		failed.tell(func(*cache.Handler) { t.Error("a cache that was never opened is told something") })
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
