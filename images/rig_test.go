package images

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/sandbox"
	"millrace/images/worker"
	"millrace/internal/observe/meter"
	"millrace/store"
	"millrace/store/memory"
)

// fakeConverter "converts" to the first bytes of the source: what these tests
// are about is when it is asked, and for what.
type fakeConverter struct {
	levels  map[codec.Format]string
	gate    chan struct{} // when set, a conversion waits for one value
	gated   codec.Format  // only to this format; empty: to any
	failing func(src []byte, s convert.Spec) error

	mu    sync.Mutex
	calls []convert.Spec
}

func newFake(levels map[codec.Format]string) *fakeConverter { return &fakeConverter{levels: levels} }

func (f *fakeConverter) Convert(ctx context.Context, src worker.Source, s convert.Spec, _ bool) (*convert.Result, error) {
	data, err := io.ReadAll(src)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.calls = append(f.calls, s)
	f.mu.Unlock()
	if f.gate != nil && (f.gated == "" || f.gated == s.Format) {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.failing != nil {
		if err := f.failing(data, s); err != nil {
			return nil, err
		}
	}
	share := cmp.Or(map[codec.Format]int{codec.WebP: 2, codec.AVIF: 3}[s.Format], 2)
	if s.Effort == codec.Best {
		share++
	}
	out := append([]byte(s.Format), data[:len(data)/share]...)
	return &convert.Result{Data: out, Format: s.Format, Width: 8, Height: 8, Level: f.levels[s.Format], Wall: time.Millisecond, CPU: time.Millisecond}, nil
}

func (f *fakeConverter) Abilities() worker.Abilities {
	a := worker.Abilities{Level: "fake", Formats: map[codec.Format]worker.EncoderInfo{}}
	for format, level := range f.levels {
		a.Formats[format] = worker.EncoderInfo{Level: level, By: "a test"}
	}
	return a
}

func (f *fakeConverter) Sandbox() sandbox.Report { return nil }
func (f *fakeConverter) Stats() worker.Stats     { return worker.Stats{} }
func (f *fakeConverter) Close() error            { return nil }

// count is how many conversions there were, those with the most effort aside.
func (f *fakeConverter) count() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.calls {
		if s.Effort == codec.Fast {
			n++
		}
	}
	return n
}

var (
	bothTools    = map[codec.Format]string{codec.WebP: "tools", codec.AVIF: "tools"}
	bothEmbedded = map[codec.Format]string{codec.WebP: "embedded", codec.AVIF: "embedded"}
)

// rig is a handler over a folder.
type rig struct {
	*Handler
	t         *testing.T
	dir       string
	files     *folder
	converter *fakeConverter
	store     store.Store
	meters    *meter.Images
	logged    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), "\n")
}

func newRig(t *testing.T, o Options, c *fakeConverter) *rig {
	t.Helper()
	return newRigIn(t, o, c, t.TempDir(), memory.New(64<<20), nil)
}

func newRigIn(t *testing.T, o Options, c *fakeConverter, dir string, s, shared store.Store) *rig {
	t.Helper()
	if o.Wait == 0 {
		o.Wait = 20 * time.Second // the machine may be slow
	}
	source := &folder{dir: dir}
	engine := newEngine(c, EngineOptions{Workers: 2, Memory: int64(o.Memory), Queue: o.Queue}, 2)
	t.Cleanup(func() { _ = engine.Close() })
	r := &rig{t: t, dir: dir, files: source, converter: c, store: s, meters: &meter.Images{}, logged: &lockedBuffer{}}
	var err error
	r.Handler, err = New(o, Deps{
		Source: source, Engine: engine, Store: s, Shared: shared, Scope: "test", Meters: r.meters,
		ErrorLog: slog.New(slog.NewTextHandler(r.logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// photo is a JPEG that differs with seed.
func photo(t testing.TB, width, height, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			m.Set(x, y, color.RGBA{uint8(x*7 + 40*seed), uint8(y * 5), uint8(x ^ y), 255})
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write puts a file of some age into the folder.
func (r *rig) write(name string, data []byte, age time.Duration) {
	r.t.Helper()
	p := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, data, 0o644); err != nil {
		r.t.Fatal(err)
	}
	date := time.Now().Add(-age)
	if err := os.Chtimes(p, date, date); err != nil {
		r.t.Fatal(err)
	}
	r.files.changed(name, false)
}

func (r *rig) get(path, accept string) *http.Response {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Result()
}

// counted is how often a reason was counted.
func counted(r *meter.Reasons, reason string) (n uint64) {
	r.Each(func(name string, count uint64) {
		if name == reason {
			n = count
		}
	})
	return n
}

// status is the reason or the format that an answer names.
func status(res *http.Response) string { return res.Header.Get(statusHeader) }

const (
	takesBoth = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
	takesWebP = "image/webp,*/*;q=0.8"
)

var errTest = errors.New("a test wants it so")
