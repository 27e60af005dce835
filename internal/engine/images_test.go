package engine_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/process/servertest"
)

// photo is a JPEG large enough for a variant to be smaller; it differs with seed.
func photo(t *testing.T, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 160, 120))
	for y := range 120 {
		for x := range 160 {
			m.Set(x, y, color.RGBA{uint8(x + 40*seed), uint8(2 * y), uint8((x / 8) ^ (y / 8)), 255})
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 98}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// place puts a file of an hour's age where another may be, by renaming.
func place(t *testing.T, path string, data []byte, age time.Duration) {
	t.Helper()
	next := path + ".next"
	date := time.Now().Add(-age)
	for _, err := range []error{os.WriteFile(next, data, 0o600), os.Chtimes(next, date, date), os.Rename(next, path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPicturesFollowTheirOriginals, on the fast lane too, below a prefix.
func TestPicturesFollowTheirOriginals(t *testing.T) {
	dir := t.TempDir()
	place(t, filepath.Join(dir, "a.jpg"), photo(t, 1), time.Hour)
	site := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /photos/: {static: {root: %q}, images: {formats: [webp], store: %q, wait: 20s, no_best: true}}\n",
		dir, filepath.Join(t.TempDir(), "kept"))
	srv := start(t, parse(t, site))
	get := func(accept string) (*http.Response, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.Addrs()[0]+"/photos/a.jpg", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Accept"], r.Header["User-Agent"] = []string{accept}, []string{"test"}
		if accept == "" {
			delete(r.Header, "Accept")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, body
	}
	defer http.DefaultClient.CloseIdleConnections()
	variant := func() (body []byte) {
		t.Helper()
		servertest.Eventually(t, "a variant", func() bool {
			var res *http.Response
			res, body = get("image/webp")
			return res.StatusCode == 200 && res.Header.Get("Content-Type") == "image/webp"
		})
		for range 3 { // from the lane
			if _, again := get("image/webp"); !bytes.Equal(again, body) {
				t.Error("another answer without a reason")
			}
			if res, plain := get(""); res.Header.Get("Content-Type") != "image/jpeg" || bytes.Equal(plain, body) || res.Header.Get("Vary") != "Accept" {
				t.Errorf("without Accept: %v", res.Header)
			}
		}
		return body
	}
	first := variant()
	place(t, filepath.Join(dir, "a.jpg"), photo(t, 2), time.Minute)
	servertest.Eventually(t, "the old variant is gone", func() bool { _, body := get("image/webp"); return !bytes.Equal(body, first) })
	second := variant()
	for range 2 {
		reload(t, srv, parse(t, site+"    /gone: {deny: {}}\n"))
		if got := variant(); !bytes.Equal(got, second) {
			t.Error("a reload that changes something else made another variant")
		}
		reload(t, srv, parse(t, site))
	}
	if err := os.Remove(filepath.Join(dir, "a.jpg")); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "404", func() bool { res, _ := get("image/webp"); return res.StatusCode == 404 })
}
