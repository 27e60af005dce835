package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/static/original"
	"millrace/store"
	"millrace/store/memory"
)

// forgetful is a store that takes everything and has nothing.
type forgetful struct{ store.Store }

func (forgetful) Get(context.Context, string) (*store.Object, error) {
	return nil, store.ErrNotFound
}

func TestStoreThatForgets(t *testing.T) {
	r := newRigIn(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools), t.TempDir(), forgetful{memory.New(1 << 20)}, nil)
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 5 {
		if res := r.get("/a.jpg", takesWebP); res.StatusCode != 200 || status(res) != "original; reason=store" {
			t.Errorf("%d %q", res.StatusCode, status(res))
		}
	}
	if n := r.converter.count(); n != 1 {
		t.Errorf("%d conversions of what is never kept", n)
	}
}

// full is a store on a disk that has no room, or has.
type full struct {
	store.Store
	is atomic.Bool
}

func (f *full) Create(ctx context.Context, key string, size int64) (store.Writer, error) {
	if f.is.Load() {
		return nil, fmt.Errorf("%w: writing: %w", store.ErrFull, syscall.ENOSPC)
	}
	return f.Store.Create(ctx, key, size)
}

// A disk without room is not the image's fault: it is converted as soon as
// there is room again, and meanwhile not again and again in vain.
func TestDiskThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &full{Store: memory.New(1 << 20)}
		s.is.Store(true)
		r := newRigIn(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools), t.TempDir(), s, nil)
		for i := range 4 {
			r.write(fmt.Sprintf("%d.jpg", i), photo(t, 64, 48, i), time.Hour)
		}
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			for i := range 4 {
				if res := r.get(fmt.Sprintf("/%d.jpg", i), takesWebP); res.StatusCode != 200 || status(res) != "original; reason=store" {
					t.Fatalf("%d %q", res.StatusCode, status(res))
				}
			}
			time.Sleep(time.Second)
		}
		if n := r.converter.count(); n != 1 || r.logged.lines() != 1 {
			t.Errorf("%d conversions that cannot be kept, %d lines in the log", n, r.logged.lines())
		}
		s.is.Store(false)
		time.Sleep(refusedFor + soon)
		for i := range 4 {
			if res := r.get(fmt.Sprintf("/%d.jpg", i), takesWebP); status(res) != "webp" {
				t.Errorf("there is room again: %q", status(res))
			}
		}
		_ = r.Close()
		_ = r.engine.Close()
	})
}

func TestStoreThatIsDown(t *testing.T) {
	s := memory.New(1 << 20)
	r := newRigIn(t, Options{NoBest: true}, newFake(bothTools), t.TempDir(), s, nil)
	_ = s.Close()
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 5 {
		res := r.get("/a.jpg", takesBoth)
		if res.StatusCode != 200 || status(res) != "original; reason=store" || res.Header.Get("Cache-Control") != "max-age=5" {
			t.Errorf("%d %q %q", res.StatusCode, status(res), res.Header.Get("Cache-Control"))
		}
	}
	if n := r.converter.count(); n != 0 {
		t.Errorf("%d conversions that cannot be kept", n)
	}
}

func TestAheadStopsAtTheLimit(t *testing.T) {
	const pictures = 40
	s := memory.New(16 << 10)
	r := newRigIn(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools), t.TempDir(), s, nil)
	for i := range pictures {
		r.write(fmt.Sprintf("%d.jpg", i), photo(t, 64, 48, i), time.Hour)
	}
	for range 3 {
		if _, err := r.Ahead(t.Context(), AheadOptions{Jobs: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.converter.count(); n >= pictures || s.Stats().Evicted > 1 {
		t.Errorf("%d conversions into a store that has room for a few, %d evicted", n, s.Stats().Evicted)
	}
}

func TestAheadLeavesTheTableToVisitors(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	for i := range 5 {
		r.write(fmt.Sprintf("%d.jpg", i), photo(t, 64, 48, i), time.Hour)
	}
	if _, err := r.Ahead(t.Context(), AheadOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.table.all() {
		r.table.drop(rec, rec.file)
	}
	if s, err := r.Ahead(t.Context(), AheadOptions{}); err != nil || s.Formats["webp"].Kept != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := len(r.table.all()); n != 0 {
		t.Errorf("%d records of what nobody has asked for", n)
	}
}

// An image that cannot be converted is not news the second time.
func TestAheadFailsOnce(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { return errTest }
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 3 {
		s, err := r.Ahead(t.Context(), AheadOptions{})
		if err != nil || len(s.Failed["failed"]) != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if n := r.converter.count(); n != 1 || r.logged.lines() != 1 {
		t.Errorf("%d conversions, %d lines", n, r.logged.lines())
	}
}

func TestCausesAhead(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	r.write("a.jpg", []byte("not an image"), time.Hour)
	if s, err := r.Ahead(t.Context(), AheadOptions{}); err != nil || len(s.Failed["not an image"]) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Large AVIFs by libaom 3.6.0 were kept before anybody looked at them: no browser shows
// them. WebPs were turned by an orientation that browsers ignore. Both are dropped.
func TestStoredVariantsAreChecked(t *testing.T) {
	good, err := os.ReadFile("container/testdata/still.avif")
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(good)
	clear(bad[bytes.Index(bad, []byte("mdat"))+4:])
	for name, c := range map[string]struct {
		version int
		source  string
		format  codec.Format
		body    []byte
		found   bool
	}{
		"good": {1, "a.jpg", codec.AVIF, good, true}, "bad": {1, "a.jpg", codec.AVIF, bad, false},
		"checked when it was kept": {2, "a.jpg", codec.AVIF, bad, true}, "WebP": {1, "a.jpg", codec.WebP, bad, true},
		"of a WebP": {2, "a.WebP", codec.AVIF, good, false}, "of a WebP now": {metaVersion, "a.webp", codec.AVIF, good, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(1 << 20)
			f := original.File{Name: c.source, Size: 1, Modified: time.Unix(1_700_000_000, 0)}
			m := newMeta(f, wanted{id: "x", format: format2(c.format)}, &convert.Result{Data: c.body, Format: c.format})
			m.Version = c.version
			if err := put(t.Context(), s, "k", m, c.body); err != nil {
				t.Fatal(err)
			}
			_, o, err := get(t.Context(), s, "k", f)
			if err == nil {
				_ = o.Close()
			}
			if (err == nil) != c.found || err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if o, err := s.Get(t.Context(), "k"); (err == nil) != c.found {
				t.Errorf("in the store: %v, %v", o, err)
			}
		})
	}
}
