package images

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/params"
	"millrace/internal/process/servertest"
	"millrace/store/memory"
)

// A client that has gone must not make the original the answer for all.
func TestClientThatHasGone(t *testing.T) {
	dir, s := t.TempDir(), memory.New(64<<20)
	r := newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, s, nil)
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesWebP)
	_ = r.Close()
	r = newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, s, nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	req := httptest.NewRequestWithContext(gone, http.MethodGet, "/a.jpg", nil)
	req.Header.Set("Accept", takesWebP)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if got := status(w.Result()); got != "webp" && w.Header().Get("Cache-Control") != "max-age=5" {
		t.Errorf("%q for %q", got, w.Header().Get("Cache-Control"))
	}
}

func TestPassingKeepsWhatIsPrivatePrivate(t *testing.T) {
	for control, want := range map[string]string{
		"private, max-age=600":      "private, max-age=5",
		"no-store":                  "no-store",
		"max-age=31536000, public":  "public, max-age=5",
		"max-age=60000, immutable ": "max-age=5",
	} {
		r := newRig(t, Options{NoBest: true, Wait: -1}, newFake(bothTools))
		r.files.control = control
		r.converter.gate = make(chan struct{})
		r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
		r.write("b.jpg", photo(t, 64, 48, 1), time.Hour)
		r.files.changed("b.jpg", true)
		for _, name := range []string{"/a.jpg", "/b.jpg"} {
			if res := r.get(name, takesWebP); res.Header.Get("Cache-Control") != want {
				t.Errorf("%s, %q: %q %q, want %q", name, control, status(res), res.Header.Get("Cache-Control"), want)
			}
		}
		close(r.converter.gate)
	}
}

// What a client has of the original must not be completed by a variant.
func TestRangesOfTheOriginalEndWithIt(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	before := r.get("/a.jpg", "")
	for _, validator := range []string{before.Header.Get("Etag"), before.Header.Get("Last-Modified")} {
		req := httptest.NewRequest(http.MethodGet, "/a.jpg", nil)
		req.Header.Set("Accept", takesWebP)
		req.Header.Set("Range", "bytes=100-")
		req.Header.Set("If-Range", validator)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != http.StatusOK || validator == "" {
			t.Errorf("If-Range %q: %d", validator, w.Code)
		}
	}
	req := httptest.NewRequest(http.MethodGet, "/a.jpg", nil)
	req.Header.Set("Accept", takesWebP)
	req.Header.Set("If-Modified-Since", before.Header.Get("Last-Modified"))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Errorf("If-Modified-Since of the original: %d", w.Code)
	}
	variant := r.get("/a.jpg", takesWebP)
	req = httptest.NewRequest(http.MethodGet, "/a.jpg", nil)
	req.Header.Set("Accept", takesWebP)
	req.Header.Set("Range", "bytes=4-7")
	req.Header.Set("If-Range", variant.Header.Get("Etag"))
	w = httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != http.StatusPartialContent || w.Header().Get("Vary") != "Accept" || w.Body.Len() != 4 {
		t.Errorf("a part of the variant: %d %v", w.Code, w.Header())
	}
}

// After its first answer an image may be the lane's, so nobody may ask again.
func TestTheOtherFormatIsOrderedAtOnce(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesBoth)
	servertest.Eventually(r.t, "both formats", func() bool { return r.converter.count() == 2 })
}

func TestMoreEffortNeedsNoVisitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Formats: []string{"webp"}}, newFake(bothTools))
		r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
		before := r.get("/a.jpg", takesWebP)
		servertest.Eventually(r.t, "the smaller one", func() bool { return counted(&r.meters.Converted, "webp tools") == 2 })
		servertest.Eventually(r.t, "its answer", func() bool {
			return r.get("/a.jpg", takesWebP).Header.Get("Etag") != before.Header.Get("Etag")
		})
	})
}

func TestNothingIsReadForWhatIsThere(t *testing.T) {
	dir, s := t.TempDir(), memory.New(64<<20)
	r := newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, s, nil)
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesWebP)
	_ = r.Close()
	r = newRigIn(t, Options{}, newFake(bothTools), dir, s, nil)
	if got := status(r.get("/a.jpg", takesWebP)); got != "webp" {
		t.Errorf("%q", got)
	}
	if n := r.files.opened.Load(); n != 0 {
		t.Errorf("the original was opened %d times before the visitor had his answer", n)
	}
}

func TestUnreadableIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
		r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
		r.files.unreadable.Store(true)
		if res := r.get("/a.jpg", takesWebP); status(res) != "original; reason=unreadable" || res.Header.Get("Cache-Control") != "max-age=5" {
			t.Errorf("%q %q", status(res), res.Header.Get("Cache-Control"))
		}
		r.files.unreadable.Store(false)
		servertest.Eventually(r.t, "the variant", func() bool { return status(r.get("/a.jpg", takesWebP)) == "webp" })
	})
}

// What the queue gave up, or never took, is ordered again.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{NoBest: true, Wait: -1, Queue: 1, Formats: []string{"webp"}}, newFake(bothTools))
		r.converter.gate = make(chan struct{})
		const pictures = 8
		for i := range pictures {
			r.write(fmt.Sprintf("%d.jpg", i), photo(t, 64, 48, i), time.Hour)
			if res := r.get(fmt.Sprintf("/%d.jpg", i), takesWebP); res.StatusCode != 200 || res.Header.Get("Cache-Control") != "max-age=5" {
				t.Errorf("%d: %d %q", i, res.StatusCode, status(res))
			}
		}
		if n := r.meters.Shed.Load(); n == 0 {
			t.Fatal("nothing was shed")
		}
		shed := r.meters.Shed.Load()
		r.get(fmt.Sprintf("/%d.jpg", pictures-1), takesWebP)
		if r.meters.Shed.Load() != shed {
			t.Error("a full queue is asked again at once")
		}
		close(r.converter.gate)
		for i := range pictures {
			servertest.Eventually(r.t, "each of them", func() bool { return status(r.get(fmt.Sprintf("/%d.jpg", i), takesWebP)) == "webp" })
		}
	})
}

func TestManySizes(t *testing.T) {
	o := params.Options{}
	for i := range maxVariants + 20 {
		o.Widths = append(o.Widths, i+10)
	}
	r := newRig(t, Options{NoBest: true, Params: o}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 3 {
		for _, w := range o.Widths {
			if got := status(r.get(fmt.Sprintf("/a.jpg?w=%d", w), takesBoth)); got != "webp" && got != "avif" {
				t.Fatalf("%d wide: %q", w, got)
			}
		}
	}
	servertest.Eventually(r.t, "each size once in each format", func() bool { return r.converter.count() == 2*len(o.Widths) })
	for _, rec := range r.table.all() {
		rec.mu.Lock()
		if n := len(rec.variants); n > maxVariants {
			t.Errorf("%d variants are remembered", n)
		}
		rec.mu.Unlock()
	}
}

// A panic in a conversion is a failure like any other: remembered.
func TestPanickingConversion(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { panic("a test wants it so") }
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 5 {
		if res := r.get("/a.jpg", takesWebP); res.StatusCode != 200 {
			t.Errorf("%d", res.StatusCode)
		}
	}
	if n := r.converter.count(); n != 1 || r.logged.lines() != 1 {
		t.Errorf("%d conversions, %d lines in the log", n, r.logged.lines())
	}
}

func TestFailuresAreToldOnce(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { return codec.ErrFailed }
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesWebP)
	for range 3 {
		rec := r.table.all()[0]
		rec.mu.Lock()
		var rest time.Duration
		for _, v := range rec.variants {
			rest, v.until = time.Until(v.until), time.Now().Add(-time.Second)
		}
		rec.mu.Unlock()
		tried := r.converter.count()
		r.get("/a.jpg", takesWebP)
		if n := r.converter.count(); n != tried+1 {
			t.Errorf("%d conversions after %d", n, tried)
		}
		rec.mu.Lock()
		for _, v := range rec.variants {
			if again := time.Until(v.until); again < rest+failedFor/2 {
				t.Errorf("remembered for %s, then %s", rest, again)
			}
		}
		rec.mu.Unlock()
	}
	if n := r.logged.lines(); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// Nothing is held by a handler that is closed, whatever was asked meanwhile.
func TestCloseUnderLoad(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	const pictures = 20
	for i := range pictures {
		r.write(fmt.Sprintf("%d.jpg", i), photo(t, 64, 48, i), time.Hour)
	}
	var all sync.WaitGroup
	for c := range 16 {
		all.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("%d.jpg", (c+i)%pictures)
				switch {
				case c == 0:
					r.files.changed(name, false)
				case c == 1:
					r.write(name, photo(t, 64, 48, i), time.Duration(i)*time.Minute)
				case c == 2 && i%20 == 0:
					if _, err := r.Ahead(t.Context(), AheadOptions{}); err != nil {
						t.Error(err)
					}
				case c == 3 && i == 60:
					_ = r.Close()
				default:
					if res := r.get("/"+name, takesBoth); res.StatusCode != 200 {
						t.Errorf("%d %q", res.StatusCode, status(res))
					}
				}
			}
		})
	}
	all.Wait()
	_ = r.Close()
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if r.table.memory.Held() != 0 || r.table.open != 0 || len(r.table.records) != 0 {
		t.Errorf("%d bytes, %d descriptors, %d records are held", r.table.memory.Held(), r.table.open, len(r.table.records))
	}
}

// A look at a file that has changed since must not undo what a later look found.
func TestLateLook(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	early, err := r.files.Original(httptest.NewRequest(http.MethodGet, "/a.jpg", nil))
	if err != nil {
		t.Fatal(err)
	}
	r.write("a.jpg", photo(t, 64, 48, 2), time.Minute)
	r.get("/a.jpg", takesWebP)
	if rec, before := r.table.record(early); rec != nil || before != nil {
		t.Error("the early look counts")
	}
	if got := status(r.get("/a.jpg", takesWebP)); got != "webp" || r.converter.count() != 1 {
		t.Errorf("%q after %d conversions", got, r.converter.count())
	}
}
