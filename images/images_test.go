package images

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/jpeg"
	"millrace/images/params"
	"millrace/images/worker"
	"millrace/internal/process/servertest"
	"millrace/static/original"
	"millrace/store/disk"
	"millrace/store/memory"
)

func TestNegotiation(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	data := photo(t, 64, 48, 1)
	r.write("a.jpg", data, time.Hour)
	r.write("page.html", []byte("<p>hello"), time.Hour)
	for _, test := range []struct{ accept, kind, status string }{
		{"", "image/jpeg", "original; reason=accept"},
		{"*/*", "image/jpeg", "original; reason=accept"},
		{"image/png,image/*;q=0.8", "image/jpeg", "original; reason=accept"},
		{takesBoth, "image/avif", "avif"}, // first: once there is one, another format comes later
		{takesWebP, "image/webp", "webp"},
		{"image/webp, image/avif;q=0", "image/webp", "webp"},
		{"image/avif;q=0.5,image/webp;q=0", "image/avif", "avif"},
		{"image/webp;q=0", "image/jpeg", "original; reason=accept"},
	} {
		res := r.get("/a.jpg", test.accept)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != test.kind || status(res) != test.status {
			t.Errorf("Accept %q: %d %s %q, want %s %q", test.accept, res.StatusCode, res.Header.Get("Content-Type"), status(res), test.kind, test.status)
		}
		if res.Header.Get("Vary") != "Accept" {
			t.Errorf("Accept %q: Vary %q", test.accept, res.Header.Get("Vary"))
		}
		if res.Header.Get("Cache-Control") != "max-age=300" || res.Header.Get("Etag") == "" {
			t.Errorf("Accept %q: %v", test.accept, res.Header)
		}
	}
	if n := r.converter.count(); n != 2 {
		t.Errorf("%d conversions for two variants", n)
	}
	if res := r.get("/page.html", takesBoth); res.StatusCode != 200 || res.Header.Get("Vary") != "" {
		t.Errorf("a page is the source's affair: %v", res.Header)
	}
	if res := r.get("/none.jpg", takesBoth); res.StatusCode != 404 {
		t.Errorf("an image that is not there: %d", res.StatusCode)
	}
}

// A profile that does not end in what is read of a file at first is not taken for broken:
// its size counts for the memory that is needed.
func TestProfileBeyondTheHead(t *testing.T) {
	const size = 432 << 10
	profile := make([]byte, size)
	binary.BigEndian.PutUint32(profile, size)
	copy(profile[36:], "acsp")
	file := []byte("RIFF----WEBPVP8X\x0a\x00\x00\x00\x20\x00\x00\x00\x07\x00\x00\x07\x00\x00ICCP")
	file = append(binary.LittleEndian.AppendUint32(file, size), profile...)
	file = append(file, "VP8 \x0a\x00\x00\x00\x10\x00\x00\x9d\x01\x2a\x08\x00\x08\x00"...)
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	r := newRig(t, Options{}, newFake(bothTools))
	info, err := r.readHeader(original.File{Size: int64(len(file)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(file)), nil
	}})
	if err != nil || info.ProfileSize != size || info.BrokenICC {
		t.Errorf("a profile of %d bytes, broken: %t, %v", info.ProfileSize, info.BrokenICC, err)
	}
}

// Weights order the formats, and the original (RFC 9110, 12.5.1); among equals the
// smallest is sent. The AVIF is a third of the original here, the WebP a half.
func TestWeights(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for _, accept := range []string{"image/avif", takesWebP} {
		r.get("/a.jpg", accept)
	}
	for accept, want := range map[string]string{
		takesBoth:                                              "avif",
		"image/avif;q=0.5, image/webp":                         "webp",
		"image/avif;q=0.8, image/webp;q=0.9":                   "webp",
		"image/avif;q=0.5, image/webp;q=0.5":                   "avif",
		"image/webp;q=0.5, image/*":                            "original; reason=accept",
		"image/webp;q=0.5, */*":                                "original; reason=accept",
		"image/jpeg, image/avif;q=0.9":                         "original; reason=accept",
		"image/jpeg;q=0.5, image/avif;q=0.9, */*":              "avif",
		"image/jpeg;q=0.8, image/avif;q=0.5, image/webp;q=0.9": "webp",
	} {
		if got := status(r.get("/a.jpg", accept)); got != want {
			t.Errorf("Accept %q: %q, want %q", accept, got, want)
		}
	}
	// Until what weighs more is made, what is there is sent.
	r.write("b.jpg", photo(t, 64, 48, 2), time.Hour)
	r.get("/b.jpg", "image/avif")
	r.converter.gate = make(chan struct{})
	const accept = "image/avif;q=0.5, image/webp"
	if got := status(r.get("/b.jpg", accept)); got != "avif" {
		t.Errorf("%q before there is a WebP", got)
	}
	close(r.converter.gate)
	servertest.Eventually(t, "the WebP", func() bool { return status(r.get("/b.jpg", accept)) == "webp" })
}

func TestEntityTagsTellVariantsApart(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	tags := map[string]bool{}
	for _, accept := range []string{"", takesBoth, takesWebP} {
		res := r.get("/a.jpg", accept)
		tags[res.Header.Get("Etag")] = true
		req := httptest.NewRequest(http.MethodGet, "/a.jpg", nil)
		req.Header.Set("Accept", accept)
		req.Header.Set("If-None-Match", res.Header.Get("Etag"))
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != http.StatusNotModified || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q: revalidation gives %d, Vary %q", accept, w.Code, w.Header().Get("Vary"))
		}
	}
	if len(tags) != 3 {
		t.Errorf("entity tags %v", tags)
	}
}

func TestSmallestWins(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	r.converter.failing = func(_ []byte, s convert.Spec) error {
		if s.Format == codec.AVIF {
			return convert.ErrNoGain
		}
		return nil
	}
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesBoth)
	servertest.Eventually(r.t, "the other format", func() bool { return status(r.get("/a.jpg", takesBoth)) == "webp" })
	r.converter.failing = func([]byte, convert.Spec) error { return convert.ErrNoGain }
	r.write("b.jpg", photo(t, 64, 48, 2), time.Hour)
	servertest.Eventually(r.t, "the decision", func() bool { return status(r.get("/b.jpg", takesBoth)) == "original; reason=smaller" })
	if res := r.get("/b.jpg", takesBoth); res.Header.Get("Cache-Control") != "max-age=300" {
		t.Errorf("a decision that is final has %q", res.Header.Get("Cache-Control"))
	}
}

func TestKeptOverRestart(t *testing.T) {
	dir, s := t.TempDir(), memory.New(64<<20)
	first := newFake(bothTools)
	first.failing = func(data []byte, _ convert.Spec) error {
		if bytes.Equal(data, photo(t, 64, 48, 2)) {
			return convert.ErrNoGain
		}
		return nil
	}
	r := newRigIn(t, Options{NoBest: true}, first, dir, s, nil)
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.write("b.jpg", photo(t, 64, 48, 2), time.Hour)
	r.get("/a.jpg", takesWebP)
	r.get("/b.jpg", takesWebP)
	_ = r.Close()
	second := newFake(bothTools)
	r = newRigIn(t, Options{NoBest: true}, second, dir, s, nil)
	if got := status(r.get("/a.jpg", takesWebP)); got != "webp" {
		t.Errorf("after a restart: %q", got)
	}
	if got := status(r.get("/b.jpg", takesWebP)); got != "original; reason=smaller" {
		t.Errorf("after a restart, the decision: %q", got)
	}
	if second.count() != 0 {
		t.Errorf("%d conversions after a restart", second.count())
	}
	r = newRigIn(t, Options{NoBest: true, Quality: 50}, second, dir, s, nil)
	r.get("/a.jpg", takesWebP)
	if second.count() != 1 {
		t.Error("another quality needs another conversion")
	}
}

func TestOneConversionHoweverManyAsk(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.converter.gate = make(chan struct{})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if res := r.get("/a.jpg", takesWebP); status(res) != "webp" {
				t.Errorf("got %q", status(res))
			}
		})
	}
	servertest.Eventually(r.t, "the conversion", func() bool { return r.converter.count() == 1 })
	r.converter.gate <- struct{}{}
	all.Wait()
	if n := r.converter.count(); n != 1 {
		t.Errorf("%d conversions", n)
	}
}

func TestNeverInTheWay(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Wait: 50 * time.Millisecond}, newFake(bothTools))
	r.converter.gate = make(chan struct{}, 1)
	data := photo(t, 64, 48, 1)
	r.write("a.jpg", data, time.Hour)
	res := r.get("/a.jpg", takesWebP)
	body, _ := io.ReadAll(res.Body)
	if !bytes.Equal(body, data) || res.Header.Get("Cache-Control") != "max-age=5" || !strings.HasPrefix(status(res), "original; reason=") {
		t.Errorf("while it is converted: %d bytes, %q, %v", len(body), status(res), res.Header)
	}
	r.converter.gate <- struct{}{}
	servertest.Eventually(r.t, "the variant", func() bool { return status(r.get("/a.jpg", takesWebP)) == "webp" })

	slow := newRig(t, Options{NoBest: true, Wait: -1}, newFake(bothTools))
	slow.write("a.jpg", data, time.Hour)
	if res := slow.get("/a.jpg", takesWebP); status(res) != "original; reason=converting" {
		t.Errorf("with no patience at all: %q", status(res))
	}
	servertest.Eventually(slow.t, "the variant", func() bool { return status(slow.get("/a.jpg", takesWebP)) == "webp" })
}

func TestSlowFormatComesLater(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothEmbedded))
	r.converter.gate, r.converter.gated = make(chan struct{}, 1), codec.AVIF
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	if got := status(r.get("/a.jpg", takesBoth)); got != "webp" {
		t.Errorf("the first visitor got %q", got)
	}
	r.converter.gate <- struct{}{}
	servertest.Eventually(r.t, "AVIF", func() bool { return status(r.get("/a.jpg", takesBoth)) == "avif" })
	if r.converter.count() != 2 {
		t.Errorf("%d conversions", r.converter.count())
	}
}

func TestMoreEffortWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Formats: []string{"webp"}}, newFake(bothTools))
		r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
		before := r.get("/a.jpg", takesWebP)
		if counted(&r.meters.Converted, "webp tools") != 1 {
			t.Fatal("not converted")
		}
		servertest.Eventually(r.t, "the smaller one", func() bool {
			return r.get("/a.jpg", takesWebP).ContentLength < before.ContentLength
		})
		if after := r.get("/a.jpg", takesWebP); after.Header.Get("Etag") == before.Header.Get("Etag") {
			t.Error("other bytes under the same entity tag")
		}
	})
}

func TestOriginalChanges(t *testing.T) {
	r := newRig(t, Options{NoBest: true}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	before, _ := io.ReadAll(r.get("/a.jpg", takesWebP).Body)
	servertest.Eventually(r.t, "one variant kept", func() bool { return r.store.Stats().Objects == 1 })
	r.write("a.jpg", photo(t, 64, 48, 2), time.Minute)
	servertest.Eventually(r.t, "the old variant to go", func() bool { return r.store.Stats().Objects == 0 })
	after, _ := io.ReadAll(r.get("/a.jpg", takesWebP).Body)
	if bytes.Equal(before, after) || !bytes.HasPrefix(after, []byte("webp")) {
		t.Error("the new original's variant is the old one's")
	}
	if err := os.Remove(filepath.Join(r.dir, "a.jpg")); err != nil {
		t.Fatal(err)
	}
	r.files.changed("a.jpg", false)
	servertest.Eventually(r.t, "all to go", func() bool { return r.store.Stats().Objects == 0 })
	if res := r.get("/a.jpg", takesWebP); res.StatusCode != 404 {
		t.Errorf("a deleted original: %d", res.StatusCode)
	}
	if n := r.meters.Dropped.Load(); n != 2 {
		t.Errorf("%d dropped", n)
	}
}

func TestChangesWhileConverted(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Wait: -1}, newFake(bothTools))
	r.converter.gate = make(chan struct{}, 2)
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.get("/a.jpg", takesWebP)
	servertest.Eventually(r.t, "the conversion", func() bool { return r.converter.count() == 1 })
	r.write("a.jpg", photo(t, 64, 48, 2), time.Minute)
	r.converter.gate <- struct{}{}
	r.converter.gate <- struct{}{}
	servertest.Eventually(r.t, "the new variant", func() bool { return status(r.get("/a.jpg", takesWebP)) == "webp" })
	want := append([]byte("webp"), photo(t, 64, 48, 2)...)
	got, _ := io.ReadAll(r.get("/a.jpg", takesWebP).Body)
	if !bytes.HasPrefix(want, got) {
		t.Error("the variant is of the content before")
	}
}

func TestFailureIsRemembered(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { return fmt.Errorf("%w: %w", codec.ErrFailed, errTest) }
	data := photo(t, 64, 48, 1)
	r.write("a.jpg", data, time.Hour)
	for range 5 {
		res := r.get("/a.jpg", takesWebP)
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 200 || !bytes.Equal(body, data) || status(res) != "original; reason=encoder" && status(res) != "original; reason=converting" {
			t.Fatalf("%d %q, %d bytes", res.StatusCode, status(res), len(body))
		}
	}
	if r.converter.count() != 1 || counted(&r.meters.Failed, "encoder") != 1 || r.logged.lines() != 1 {
		t.Errorf("%d conversions, %d counted, %d lines", r.converter.count(), counted(&r.meters.Failed, "encoder"), r.logged.lines())
	}
	r.converter.failing = nil
	for _, rec := range r.table.all() { // ten minutes later
		rec.mu.Lock()
		for _, v := range rec.variants {
			v.until = time.Now().Add(-time.Second)
		}
		rec.mu.Unlock()
	}
	servertest.Eventually(r.t, "another try", func() bool { return status(r.get("/a.jpg", takesWebP)) == "webp" })
}

func TestBadPictures(t *testing.T) {
	r := newRig(t, Options{NoBest: true, MaxSize: 100 << 10}, newFake(bothTools))
	bomb := photo(t, 16, 16, 1)
	i := bytes.Index(bomb, []byte{0xff, 0xc0}) // SOF0: height and width follow its length and precision
	copy(bomb[i+5:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty.jpg":  {nil, "not an image"},
		"text.png":   {[]byte("this is not an image at all"), "not an image"},
		"bomb.jpg":   {bomb, "too large"},
		"large.webp": {make([]byte, 200<<10), "large file"},
	} {
		r.write(name, test.data, time.Hour)
		for range 2 {
			res := r.get("/"+name, takesBoth)
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != 200 || !bytes.Equal(body, test.data) || status(res) != "original; reason="+test.want {
				t.Errorf("%s: %d %q, %d bytes", name, res.StatusCode, status(res), len(body))
			}
		}
	}
	if r.converter.count() != 0 {
		t.Errorf("%d conversions", r.converter.count())
	}
	if n := counted(&r.meters.Failed, cause(header.ErrUnknown)); n != 2 {
		t.Errorf("%d counted", n)
	}
}

func TestYoungFilesAreServedAsTheyAre(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.files.changed("a.jpg", true)
	res := r.get("/a.jpg", takesWebP)
	if res.StatusCode != 200 || status(res) != "original; reason=new" || res.Header.Get("Cache-Control") != "max-age=5" || res.Header.Get("Vary") != "Accept" {
		t.Errorf("%d %q %v", res.StatusCode, status(res), res.Header)
	}
	r.files.changed("a.jpg", false)
	if got := status(r.get("/a.jpg", takesWebP)); got != "webp" {
		t.Errorf("when it has settled: %q", got)
	}
}

func TestSizes(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Params: params.Options{Widths: []int{100, 200}}}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for _, q := range []string{"", "?w=100", "?w=200", "?w=100&utm_source=x"} {
		if res := r.get("/a.jpg"+q, takesWebP); status(res) != "webp" {
			t.Errorf("%q: %q", q, status(res))
		}
	}
	if r.converter.count() != 3 {
		t.Errorf("%d conversions for three sizes", r.converter.count())
	}
	if res := r.get("/a.jpg?w=101", takesWebP); res.StatusCode != 400 {
		t.Errorf("a width that is not on the list: %d", res.StatusCode)
	}
}

func TestOnlyImages(t *testing.T) {
	r := newRig(t, Options{OnlyImages: true}, newFake(bothTools))
	r.write("a.txt", []byte("text"), time.Hour)
	res := r.get("/a.txt", takesWebP)
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 400 || string(body) != "File extension not allowed!\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestSharedStore(t *testing.T) {
	dir, shared := t.TempDir(), memory.New(64<<20)
	one := newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, memory.New(64<<20), shared)
	one.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	one.get("/a.jpg", takesWebP)
	two := newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, memory.New(64<<20), shared)
	if got := status(two.get("/a.jpg", takesWebP)); got != "webp" || two.converter.count() != 0 {
		t.Errorf("the second machine: %q, %d conversions", got, two.converter.count())
	}
	_ = shared.Close()
	two.write("b.jpg", photo(t, 64, 48, 2), time.Hour)
	if got := status(two.get("/b.jpg", takesWebP)); got != "webp" {
		t.Errorf("without the bucket: %q", got)
	}
}

func TestAheadAndCleanUp(t *testing.T) {
	dir := t.TempDir()
	disk, err := disk.Open(disk.Options{Dir: filepath.Join(t.TempDir(), "kept"), Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	r := newRigIn(t, Options{NoBest: true}, newFake(bothTools), dir, disk, nil)
	for i := range 5 {
		r.write(fmt.Sprintf("sub/%d.jpg", i), photo(t, 64, 48, i), time.Hour)
	}
	r.write("broken.png", []byte("no"), time.Hour)
	r.write("notes.txt", []byte("not an image"), time.Hour)
	var last Progress
	s, err := r.Ahead(context.Background(), AheadOptions{Progress: func(p Progress) { last = p }})
	if err != nil || s.Pictures != 6 || s.Formats["webp"].Made != 5 || s.Formats["avif"].Made != 5 || len(s.Failed) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if last.Done != 6 || last.Total != 6 {
		t.Errorf("progress %+v", last)
	}
	if s, err = r.Ahead(context.Background(), AheadOptions{}); err != nil || s.Formats["webp"].Kept != 5 || s.Formats["webp"].Made != 0 {
		t.Errorf("again: %+v, %v", s, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Ahead(ended, AheadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	inv, err := ReadInventory(context.Background(), disk)
	if err != nil || inv.Originals != 5 || inv.Formats["webp"].Kept != 5 || inv.Formats["webp"].Bytes >= inv.Formats["webp"].Of {
		t.Errorf("%+v, %v", inv, err)
	}
	if err := os.Remove(filepath.Join(dir, "sub/0.jpg")); err != nil {
		t.Fatal(err)
	}
	_ = r.Close() // nobody follows any more
	cleaned, err := r.CleanUp(context.Background())
	if err != nil || cleaned.Removed > 2 {
		t.Errorf("%+v, %v", cleaned, err)
	}
	if inv, err = ReadInventory(context.Background(), disk); err != nil || inv.Originals != 4 {
		t.Errorf("after tidying: %+v, %v", inv, err)
	}
}

func TestCauses(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("a: %w", convert.ErrUnsupported):                        "unsupported",
		fmt.Errorf("a: %w", icc.ErrUnsupported):                            "unsupported",
		fmt.Errorf("a: %w", jpeg.ErrFormat):                                "broken",
		fmt.Errorf("a: %w", header.ErrTooLarge):                            "too large",
		fmt.Errorf("%w: %w", worker.ErrCrashed, errTest):                   "crashed",
		fmt.Errorf("a: %w: %w", codec.ErrFailed, context.DeadlineExceeded): "encoder",
		errTest: "failed",
	} {
		if got := cause(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestNoWorkerIsNoFaultOfThePicture(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { return fmt.Errorf("%w: %w", worker.ErrNotStarted, errTest) }
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	if res := r.get("/a.jpg", takesWebP); status(res) != "original; reason=busy" || !strings.Contains(res.Header.Get("Cache-Control"), "max-age=5") {
		t.Errorf("%q %v", status(res), res.Header)
	}
	if n := counted(&r.meters.Failed, "busy"); n != 0 {
		t.Errorf("counted as %d failures", n)
	}
}

func TestCheck(t *testing.T) {
	for key, o := range map[string]Options{
		"formats":        {Formats: []string{"jxl"}},
		"quality":        {Quality: 101},
		"extensions":     {Extensions: []string{"svg"}},
		"engine":         {Engine: "vips"},
		"background":     {Background: "never"},
		"near_lossless":  {NearLossless: 101},
		"max_megapixels": {MaxMegapixels: -1},
		"wait":           {Wait: time.Hour},
		"workers":        {Workers: 10_000},
		"memory":         {Memory: 1 << 20},
	} {
		if o.Check()[key] == nil {
			t.Errorf("%s: nothing is wrong with %+v", key, o)
		}
	}
	if faults := (Options{}).Check(); len(faults) > 0 {
		t.Errorf("the zero value: %v", faults)
	}
}
