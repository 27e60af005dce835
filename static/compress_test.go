package static

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/process/servertest"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/negotiate"
)

func unpack(t *testing.T, encoding string, body []byte) string {
	t.Helper()
	var r io.Reader
	var err error
	switch encoding {
	case "br":
		r = brotli.NewReader(bytes.NewReader(body))
	case "gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(body)); err == nil {
			defer d.Close()
			r = d
		}
	default:
		return string(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCompressedOnceInTheBackground(t *testing.T) {
	dir := t.TempDir()
	small := strings.Repeat("a { color: red }\n", 100)
	large := strings.Repeat("b { color: blue; margin: 0 }\n", heldBytes/20)
	write(t, dir, map[string]string{"small.css": small, "large.css": large})
	h := open(t, dir, Options{})
	for target, plain := range map[string]string{"/small.css": small, "/large.css": large} {
		w := ask(h, "GET", target)
		if w.Header().Get("Vary") != "Accept-Encoding" || w.Body.String() != plain {
			t.Fatalf("%s at first: Vary %q", target, w.Header().Get("Vary"))
		}
		servertest.Eventually(t, target+" is compressed", func() bool {
			return ask(h, "GET", target, "Accept-Encoding", "br").Header().Get("Content-Encoding") == "br"
		})
	}
	eachProtocol(t, h, func(t *testing.T, ask func(method, target string, kv ...string) (*http.Response, string)) {
		for target, plain := range map[string]string{"/small.css": small, "/large.css": large} {
			tags := map[string]bool{}
			for _, encoding := range []string{"", "gzip", "zstd", "br"} {
				res, body := ask("GET", target, "Accept-Encoding", encoding)
				if res.Header.Get("Content-Encoding") != encoding || res.Header.Get("Vary") != "Accept-Encoding" {
					t.Errorf("%s for %q: %v", target, encoding, res.Header)
				}
				if unpack(t, encoding, []byte(body)) != plain || encoding != "" && len(body) > len(plain)/2 {
					t.Errorf("%s for %q: %d bytes are not it", target, encoding, len(body))
				}
				if res.Header.Get("Content-Type") != "text/css; charset=utf-8" || res.ContentLength != int64(len(body)) {
					t.Errorf("%s for %q: %v", target, encoding, res.Header)
				}
				tags[res.Header.Get("ETag")] = true
			}
			if len(tags) != 4 {
				t.Errorf("%s: %d entity tags for 4 encodings", target, len(tags))
			}
		}
	})
	e := h.table.get("small.css")
	first := e.snapshot.Load().answers
	for range 5 {
		ask(h, "GET", "/small.css", "Accept-Encoding", "br")
		h.sweep()
	}
	if e.snapshot.Load().answers != first {
		t.Error("compressed again, or answers not shared by pointer")
	}
}

func TestCompressionVoidsTheLanesPlainAnswer(t *testing.T) {
	css := strings.Repeat("a { color: red }\n", 100)
	h := serveFS(t, fstest.MapFS{"a.css": {Data: []byte(css), ModTime: past}}, Options{NoCompress: false})
	ask(h, "GET", "/a.css")
	servertest.Eventually(t, "compression", func() bool { return h.table.get("a.css").snapshot.Load().available.Has(negotiate.Brotli) })
	e := h.table.get("a.css")
	s := e.snapshot.Load()
	if !s.valid() {
		t.Error("the published snapshot is not valid")
	}
	if e.gen.Now() != s.version || e.edit.Now() != s.read {
		t.Error("the versions are not valid")
	}
	// It was invalidated: a version taken before is not valid any more.
	if n := fmt.Sprint(e.gen.Now()) == fmt.Sprint(e.edit.Now()); n {
		t.Error("publishing voided nothing")
	}
}

func TestAnEditDuringCompressionIsNotPublished(t *testing.T) {
	css := strings.Repeat("a { color: red }\n", 100)
	files := &lockedFS{files: fstest.MapFS{}}
	files.set("a.css", css, past)
	h := serveFS(t, files, Options{NoCompress: true}) // no worker: the test is it
	h.options.NoCompress = false
	ask(h, "GET", "/a.css")
	e := h.table.get("a.css")
	s := e.snapshot.Load()
	made := [negotiate.Codings][]byte{negotiate.Gzip: []byte("old bytes")}
	add := func(next *snapshot) { h.addEncodings(next, made) }
	// Unheard of until publish looks.
	files.set("a.css", css+"/* new */", past.Add(1))
	h.publish(e, s, add)
	if now := e.snapshot.Load(); now != s || s.valid() {
		t.Error("published encodings of what the file no longer holds")
	}
	if w := ask(h, "GET", "/a.css", "Accept-Encoding", "gzip"); w.Body.String() != css+"/* new */" {
		t.Errorf("%.40q", w.Body)
	}
	// Heard of, and already read again.
	s = e.snapshot.Load()
	e.void()
	ask(h, "GET", "/a.css")
	h.publish(e, s, add)
	if e.snapshot.Load().available != 0|negotiate.Set(1) {
		t.Error("published encodings of an earlier snapshot")
	}
}

func TestWhatDoesNotPayIsNotKept(t *testing.T) {
	noise := make([]byte, 4000)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	h := serveFS(t, fstest.MapFS{
		"noise.txt": {Data: noise}, "tiny.css": {Data: []byte("a{}")}, "photo.jpg": {Data: make([]byte, 4000)},
		"huge.txt": {Data: make([]byte, compress.MaxSize+1)},
	}, Options{})
	for _, name := range []string{"noise.txt", "tiny.css", "photo.jpg", "huge.txt"} {
		ask(h, "GET", "/"+name)
	}
	e := h.table.get("noise.txt")
	s := e.snapshot.Load()
	if !s.queued.Load() {
		t.Fatal("not even tried")
	}
	servertest.Eventually(t, "the queue is empty", func() bool { return len(h.background.jobs) == 0 })
	h.Close() // waits for the worker
	if s.available != 1 || len(s.answers[0].Header["Vary"]) == 0 {
		t.Errorf("noise has encodings %b", s.available)
	}
	other := serveFS(t, fstest.MapFS{"tiny.css": {Data: []byte("a{}")}, "photo.jpg": {Data: make([]byte, 4000)}}, Options{})
	for _, name := range []string{"tiny.css", "photo.jpg"} {
		if w := ask(other, "GET", "/"+name); w.Header().Get("Vary") != "" || other.table.get(name).snapshot.Load().queued.Load() {
			t.Errorf("%s: Vary %q", name, w.Header().Get("Vary"))
		}
	}
}

func TestCompressionStopsAtTheBudget(t *testing.T) {
	css := []byte(strings.Repeat("a { color: red }\n", 3000))
	h := serveFS(t, fstest.MapFS{"a.css": {Data: css}}, Options{Memory: 60_000, NoCompress: true})
	h.options.NoCompress = false
	ask(h, "GET", "/a.css")
	s := h.table.get("a.css").snapshot.Load()
	h.compressOne(h.table.get("a.css"), s, new(compress.Tools))
	if now := h.table.get("a.css").snapshot.Load(); now != s || s.queued.Load() && len(h.background.jobs) == 0 {
		t.Error("compressed without room, or never to be tried again")
	}
}

// In a crowded table only what is asked for again and again is worth compressing.
func TestACrowdedTableCompressesWhatIsUsed(t *testing.T) {
	css := []byte(strings.Repeat("a { color: red }\n", 500))
	files := fstest.MapFS{}
	for i := range 40 {
		files[fmt.Sprintf("%d.css", i)] = &fstest.MapFile{Data: css}
	}
	h := serveFS(t, files, Options{Memory: 150_000, NoCompress: true})
	for i := range 40 {
		ask(h, "GET", fmt.Sprintf("/%d.css", i))
	}
	if !h.table.crowded() {
		t.Fatal("not crowded")
	}
	e := h.table.get("39.css")
	s := e.snapshot.Load()
	s.compressible = true
	h.wantCompressed(e, s)
	if s.queued.Load() {
		t.Error("compressed although most files go before they are asked for again")
	}
	for range usesToCompress {
		ask(h, "GET", "/39.css")
		h.sweep()
	}
	servertest.Eventually(t, "compression", func() bool { return e.snapshot.Load().available.Has(negotiate.Brotli) })
	if held := h.table.memory.Held(); held > 150_000 {
		t.Errorf("%d bytes held", held)
	}
}
