package tier

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/store"
	"millrace/store/memory"
)

// forgetful is a store that forgets objects, and is told what is used.
type forgetful struct {
	store.Store
	mu      sync.Mutex
	until   map[string]time.Time
	touched []string
	calls   int
}

// Create implements store.Store.
func (f *forgetful) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	w, err := f.Store.Create(ctx, key, size)
	return &expiring{w, f, key}, err
}

// Touch implements store.Toucher.
func (f *forgetful) Touch(_ context.Context, keys []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.touched = append(f.touched, keys...)
	return nil
}

type expiring struct {
	store.Writer
	f   *forgetful
	key string
}

// Expire implements store.Expiring.
func (e *expiring) Expire(after time.Duration) {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	e.f.until[e.key] = time.Now().Add(after)
}

type anyOrder struct{}

// Epoch implements Order.
func (anyOrder) Epoch(purge.Time) string { return "" }

// Time implements Order.
func (anyOrder) Time(string) (purge.Time, bool) { return 0, true }

// sharing makes the tiers of a machine with a shared store.
func sharing(t *testing.T, shared store.Store) *Tiers {
	t.Helper()
	tiers, err := New(Options{Budget: 1 << 20, Largest: 1 << 16, Shared: shared, Purges: purge.New(0), Order: anyOrder{}, Evicted: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	return tiers
}

func newForgetful() *forgetful {
	return &forgetful{Store: memory.New(1 << 20), until: map[string]time.Time{}}
}

// answer is one that was received at a time.
func answer(received time.Time, header http.Header, facts rfc9111.Facts) *object.Object {
	facts.Received = received
	return &object.Object{
		Status: 200, Fields: object.FieldsOf(header), Body: []byte("body"), Size: 4, Stamp: received.UnixNano(), Facts: facts,
		Vary: []string{}, By: []string{}, Owner: purge.Object{URL: "http://a.example/", Host: "a.example"},
	}
}

// TestLasts: the shared store keeps an answer as long as it may be used.
func TestLasts(t *testing.T) {
	now := time.Now()
	tagged := http.Header{"Etag": {`"1"`}}
	for _, c := range []struct {
		facts       rfc9111.Facts
		header      http.Header
		age         time.Duration
		unreachable bool
		want        time.Duration
	}{
		{facts: rfc9111.Facts{Fresh: time.Minute}, want: time.Minute},
		{facts: rfc9111.Facts{Fresh: 30 * 24 * time.Hour}, want: 30 * 24 * time.Hour},
		{facts: rfc9111.Facts{Fresh: time.Minute}, age: 50 * time.Second, want: 10 * time.Second},
		{facts: rfc9111.Facts{Fresh: time.Minute}, age: time.Hour, want: -59 * time.Minute},
		{facts: rfc9111.Facts{Fresh: time.Minute, StaleIfError: time.Hour, StaleWhileRevalidate: time.Minute}, want: 61 * time.Minute},
		{facts: rfc9111.Facts{NoCache: true, NoStale: true}, header: tagged, want: validated},
		{facts: rfc9111.Facts{Fresh: time.Minute, StaleIfError: 2 * time.Hour}, header: tagged, want: 2*time.Hour + time.Minute},
		{facts: rfc9111.Facts{Fresh: time.Minute}, unreachable: true, want: unreachable + time.Minute},
		{facts: rfc9111.Facts{Fresh: time.Minute, NoStale: true}, unreachable: true, want: time.Minute},
	} {
		tiers := &Tiers{o: Options{Unreachable: c.unreachable}}
		if got := tiers.lasts(answer(now.Add(-c.age), c.header, c.facts), now); got != c.want {
			t.Errorf("%+v: %v, want %v", c.facts, got, c.want)
		}
	}
}

// TestTouch: the store is told what is answered from memory, a bounded number in a second, and
// only as long as it is.
func TestTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newForgetful()
		tiers := sharing(t, shared)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		tiers.Write(ctx, running.Go)
		defer running.Wait()
		defer tiers.Stop()
		defer stop()
		var objects []*object.Object
		for range 3 * touchMost {
			o := answer(time.Now(), nil, rfc9111.Facts{Fresh: time.Hour})
			o.Kept.Store(true)
			objects = append(objects, o)
		}
		varied := objects[0]
		varied.Vary, varied.By = []string{"Accept-Language"}, []string{"en"}
		for i, o := range objects {
			tiers.Used(fmt.Sprint("key ", i), o)
		}
		time.Sleep(3*touchEvery + touchEvery/2)
		synctest.Wait()
		shared.mu.Lock()
		if shared.calls != 3 || len(shared.touched) != 3*touchMost+1 || !slices.Contains(shared.touched, "key 0") {
			t.Errorf("%d calls, %d keys", shared.calls, len(shared.touched))
		}
		shared.calls, shared.touched = 0, nil
		shared.mu.Unlock()

		time.Sleep(time.Minute) // nothing is used any more
		shared.mu.Lock()
		if shared.calls != 0 {
			t.Errorf("%d calls for what is not used", shared.calls)
		}
		shared.mu.Unlock()

		used := tiers.Used("key 7", objects[7])
		time.Sleep(touchEvery + touchEvery/2)
		used.Store(true) // by a fast lane
		time.Sleep(2 * touchEvery)
		synctest.Wait()
		shared.mu.Lock()
		if shared.calls != 2 || len(shared.touched) != 2 || shared.touched[0] != "key 7" {
			t.Errorf("one that is used again and again: %d calls, %q", shared.calls, shared.touched)
		}
		shared.mu.Unlock()
	})
}

// TestIndexLasts for a day, and as long as the variants that it leads to.
func TestIndexLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newForgetful()
		tiers := sharing(t, shared)
		write := func(language string, fresh time.Duration) {
			o := answer(time.Now(), nil, rfc9111.Facts{Fresh: fresh})
			o.Vary, o.By = []string{"Accept-Language"}, []string{language}
			tiers.write(t.Context(), entry{"key", o})
		}
		for _, c := range []struct {
			language    string
			fresh, want time.Duration
		}{{"en", time.Minute, indexLasts}, {"de", 30 * indexLasts, 30 * indexLasts}, {"fr", time.Minute, 30 * indexLasts}} {
			write(c.language, c.fresh)
			if got := time.Until(shared.until["key"]); got != c.want {
				t.Errorf("with %s for %v it lasts %v, want %v", c.language, c.fresh, got, c.want)
			}
		}
	})
}
