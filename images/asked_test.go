package images

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/params"
	"millrace/internal/process/servertest"
	"millrace/store/memory"
)

// realRig is a rig whose images are really converted, in this process.
func realRig(t *testing.T, o Options) *rig {
	t.Helper()
	o.Engine, o.NoBest, o.Wait = "embedded", true, 20*time.Second
	r := &rig{t: t, dir: t.TempDir(), store: memory.New(64 << 20)}
	r.files = &folder{dir: r.dir}
	var err error
	if r.Handler, err = New(o, Deps{Source: r.files, Store: r.store, Scope: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func body(t *testing.T, res *http.Response) []byte {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A client that takes neither WebP nor AVIF gets its size as well, and one that takes them
// makes no JPEG.
func TestSizesForEveryone(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Params: params.Options{Widths: []int{30}, Options: []string{"grayscale=1"}}}, newFake(bothTools))
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	if got := status(r.get("/a.jpg?w=30", takesWebP)); got != "webp" || r.converter.count() != 1 {
		t.Errorf("%q after %d conversions", got, r.converter.count())
	}
	for _, accept := range []string{"", "*/*", "image/png,image/*;q=0.8", "image/webp;q=0.5,*/*"} {
		if got := status(r.get("/a.jpg?w=30", accept)); got != "plain" {
			t.Errorf("Accept %q: %q", accept, got)
		}
	}
	if got := status(r.get("/a.jpg?grayscale=1", "")); got != "plain" || r.converter.count() != 3 {
		t.Errorf("%q after %d conversions", got, r.converter.count())
	}
	if got := status(r.get("/a.jpg", "*/*")); got != "original; reason=accept" {
		t.Errorf("as it is: %q", got)
	}
	// What cannot be a WebP is a JPEG for everyone.
	r.write("b.jpg", photo(t, 64, 48, 2), time.Hour)
	r.converter.failing = func(_ []byte, s convert.Spec) error {
		if s.Format == "webp" {
			return convert.ErrMemory
		}
		return nil
	}
	r.get("/b.jpg?w=30", takesWebP)
	if res := r.get("/b.jpg?w=30", takesWebP); status(res) != "plain" {
		t.Errorf("without a WebP: %q", status(res))
	}
}

// A format that the query names is the only one, whatever Accept says.
func TestFormatAsAsked(t *testing.T) {
	o := params.Options{Widths: []int{30}, Options: []string{"format=jpeg", "format=png", "format=webp", "format=avif"}}
	r := realRig(t, Options{Formats: []string{"webp"}, Params: o})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for query, want := range map[string]string{
		"?format=png": "image/png", "?format=jpeg&w=30": "image/jpeg", "?w=30": "image/jpeg",
		"?format=webp": "image/webp", "?format=webp&w=30": "image/webp", "?format=png&w=30": "image/png",
	} {
		res := r.get("/a.jpg"+query, "image/avif,*/*")
		data := body(t, res)
		info, err := header.Read(data)
		if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != want || "image/"+string(info.Format) != want {
			t.Errorf("%s: %d %v, %s, %v", query, res.StatusCode, res.Header, info.Format, err)
		}
		if width := map[bool]int{true: 30, false: 64}[strings.Contains(query, "w=30")]; info.Width != width {
			t.Errorf("%s: %d pixels wide", query, info.Width)
		}
	}
	// The variant that was asked for and the one that is only better are two: a tiny WebP is not
	// smaller than a tiny JPEG.
	r.write("b.jpg", photo(t, 4, 4, 1), time.Hour)
	if res := r.get("/b.jpg", takesWebP); res.Header.Get("Content-Type") == "image/png" {
		t.Errorf("%v", res.Header)
	}
	if res := r.get("/b.jpg?format=png", takesWebP); res.Header.Get("Content-Type") != "image/png" {
		t.Errorf("asked for PNG: %v", res.Header)
	}
}

// What cannot be had of an image is a 400 that says why, and nothing is stored.
func TestRefusedByTheImage(t *testing.T) {
	o := params.Options{Options: []string{"rect=50,0,20,20", "rect=0,0,64,48", "rotate=90"}}
	r := realRig(t, Options{Params: o})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for range 2 {
		res := r.get("/a.jpg?rect=50,0,20,20", takesWebP)
		if text := string(body(t, res)); res.StatusCode != 400 || !strings.Contains(text, "64 × 48") {
			t.Errorf("%d %q", res.StatusCode, text)
		}
	}
	if n := r.store.Stats().Objects; n != 0 {
		t.Errorf("%d objects are stored", n)
	}
	if res := r.get("/a.jpg?rect=0,0,64,48", "*/*"); res.StatusCode != 200 {
		t.Errorf("all of it: %d", res.StatusCode)
	}
	if res := r.get("/a.jpg?rotate=90", "*/*"); res.StatusCode != 200 {
		t.Errorf("turned: %d", res.StatusCode)
	} else if c, err := jpeg.DecodeConfig(res.Body); err != nil || c.Width != 48 || c.Height != 64 {
		t.Errorf("turned: %d × %d, %v", c.Width, c.Height, err)
	}
}

// Facts are sent instead of the image, and nothing else where there are none.
func TestFactsInstead(t *testing.T) {
	o := params.Options{Options: []string{"info", "blurhash", "thumbhash", "color", "lqip"}}
	r := realRig(t, Options{Params: o})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.write("no.jpg", []byte("<p>no image"), time.Hour)
	res := r.get("/a.jpg?info", takesBoth)
	var facts convert.Facts
	if err := json.Unmarshal(body(t, res), &facts); err != nil || res.Header.Get("Content-Type") != "application/json" || facts.Width != 64 || facts.Height != 48 {
		t.Errorf("%v %+v %v", res.Header, facts, err)
	}
	for _, q := range []string{"blurhash", "thumbhash", "color"} {
		res := r.get("/a.jpg?"+q, "")
		if text := body(t, res); res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") || len(text) < 7 {
			t.Errorf("%s: %d %v %q", q, res.StatusCode, res.Header, text)
		}
	}
	if res := r.get("/no.jpg?info", ""); res.StatusCode != 422 {
		t.Errorf("of a page: %d", res.StatusCode)
	}
	if info, err := header.Read(body(t, r.get("/a.jpg?lqip", ""))); err != nil || info.Width != 32 || info.Height != 24 {
		t.Errorf("a placeholder: %+v, %v", info, err)
	}
	if res := r.get("/a.jpg?info=1", ""); res.StatusCode != 200 || res.Header.Get("Content-Type") != "image/jpeg" {
		t.Errorf("another's parameter: %d %v", res.StatusCode, res.Header)
	}
	if res := r.get("/a.jpg?info&rotate=90", ""); res.StatusCode != 400 {
		t.Errorf("what is not listed: %d", res.StatusCode)
	}
}

// located is an EXIF block with a copyright and a place.
func located() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("II*\x00"), 8)
	b = le.AppendUint16(b, 3)
	entry := func(tag, kind uint16, count, value uint32) {
		b = le.AppendUint16(le.AppendUint16(b, tag), kind)
		b = le.AppendUint32(le.AppendUint32(b, count), value)
	}
	entry(0x0112, 3, 1, 6) // orientation
	entry(0x8298, 2, 4, 'm'|'e'<<8)
	entry(0x8825, 4, 1, 50) // 8 + 2 + 3·12 + 4
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, 2)
	entry(1, 2, 2, 'N')
	entry(2, 5, 3, 80) // 50 + 2 + 2·12 + 4
	b = le.AppendUint32(b, 0)
	for _, n := range []uint32{52, 1, 31, 1, 1234, 100} {
		b = le.AppendUint32(b, n)
	}
	return b
}

// withPlace is a photograph with a place in EXIF and in XMP.
func withPlace(t *testing.T, seed int) []byte {
	t.Helper()
	file := photo(t, 64, 48, seed)
	segment := func(marker byte, text string) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0xFF, marker}, uint16(len(text)+2)), text...)
	}
	const xmp = "http://ns.adobe.com/xap/1.0/\x00<rdf:Description exif:GPSLatitude=\"52,31.2N\" dc:title=\"kept\"><exif:GPSLongitude>13,24.3E</exif:GPSLongitude></rdf:Description>"
	return bytes.Join([][]byte{file[:2], segment(0xE1, "Exif\x00\x00"+string(located())), segment(0xE1, xmp), file[2:]}, nil)
}

// With strip_originals: gps no answer has the place, whichever it is; without, originals have.
func TestStripOriginals(t *testing.T) {
	place := func(b []byte) bool {
		return bytes.Contains(b, []byte("52,31.2N")) || bytes.Contains(b, []byte("13,24.3E")) || bytes.Contains(b, binary.LittleEndian.AppendUint32(nil, 1234))
	}
	file := withPlace(t, 1)
	if !place(file) {
		t.Fatal("the test's file has no place")
	}
	for _, strip := range []string{"", "gps"} {
		r := realRig(t, Options{StripOriginals: strip, MaxSize: 100_000, Params: params.Options{Widths: []int{30, 64}}})
		r.write("a.jpg", file, time.Hour)
		r.write("lying.jpg", append([]byte("ftypheic, or anything else "), located()...), time.Hour)
		r.write("raw.tif", append([]byte("no TIFF "), located()...), time.Hour)
		for other, kind := range map[string]string{"b.JPE": "image/jpeg", "b.jfif": "image/jpeg", "b.hif": "image/heif", "b.apng": "image/apng"} {
			r.write(other, file, time.Hour)
			if res := r.get("/"+other, ""); res.Header.Get("Content-Type") != kind {
				t.Errorf("%s: %v", other, res.Header)
			}
		}
		r.write("large.jpg", append(withPlace(t, 2), make([]byte, 100_000)...), time.Hour)
		r.write("without.jpg", photo(t, 64, 48, 3), time.Hour)
		for _, path := range []string{"/a.jpg", "/a.jpg?w=64", "/a.jpg?w=30", "/lying.jpg", "/raw.tif", "/large.jpg", "/b.JPE", "/b.jfif", "/b.hif", "/b.apng"} {
			for _, accept := range []string{"", takesBoth} {
				res := r.get(path, accept)
				if got := body(t, res); place(got) && strip != "" {
					t.Errorf("%s, Accept %q: the place is in the answer of %d bytes, %v", path, accept, len(got), res.Header)
				}
			}
		}
		res := r.get("/a.jpg", "")
		got := body(t, res)
		info, err := header.Read(got)
		if place(got) == (strip != "") || res.Header.Get("Content-Type") != "image/jpeg" || status(res) != "original; reason=accept" {
			t.Errorf("strip %q: %v", strip, res.Header)
		}
		if len(got) != len(file) || err != nil || info.Orientation != 6 || info.Copyright != "me" || !bytes.Contains(got, []byte(`dc:title="kept"`)) {
			t.Errorf("strip %q: %d bytes of %d, %+v, %v", strip, len(got), len(file), info, err)
		}
		if _, err := jpeg.Decode(bytes.NewReader(got)); err != nil {
			t.Error(err)
		}
		if res := r.get("/without.jpg", ""); res.StatusCode != 200 || !bytes.Equal(body(t, res), photo(t, 64, 48, 3)) {
			t.Errorf("strip %q: without a place: %d", strip, res.StatusCode)
		}
		if res := r.get("/large.jpg", ""); res.StatusCode != map[string]int{"": 200, "gps": 403}[strip] {
			t.Errorf("strip %q: larger than is looked at: %d", strip, res.StatusCode)
		}
		r.files.changed("a.jpg", true)
		if res := r.get("/a.jpg", ""); res.StatusCode != map[string]int{"": 200, "gps": 503}[strip] {
			t.Errorf("strip %q: changed this moment: %d", strip, res.StatusCode)
		}
		r.files.changed("a.jpg", false)
		req := httptest.NewRequest(http.MethodGet, "/a.jpg", nil)
		req.Header.Set("If-None-Match", res.Header.Get("Etag"))
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != http.StatusNotModified {
			t.Errorf("strip %q: revalidation: %d", strip, w.Code)
		}
	}
}

// All answers of the options are images that others read.
func TestEveryOption(t *testing.T) {
	secret := strings.Repeat("s", 20)
	r := realRig(t, Options{Formats: []string{"webp"}, Params: params.Options{Secret: secret}})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	for query, size := range map[string]image.Point{
		"w=30&h=30&fit=cover&gravity=attention":        {30, 30},
		"w=30&h=30&fit=cover&gravity=0.25:1":           {30, 30},
		"w=30&h=40&fit=pad&bg=00ff00&gravity=s":        {30, 40},
		"w=128&enlarge=1&blur=1.5":                     {128, 96},
		"rect=2,3,20,30&rotate=270&flip=v":             {30, 20},
		"trim=5&pad=1,2,3,4&sharpen=0.5&max_bytes=900": {70, 52},
		"grayscale=1&w=32":                             {32, 24},
	} {
		for _, accept := range []string{"", takesWebP} {
			res := r.get(params.Sign(secret, "/a.jpg?"+query), accept)
			data := body(t, res)
			info, err := header.Read(data)
			if err != nil || res.StatusCode != 200 || strings.Contains(query, "trim") == false && (info.Width != size.X || info.Height != size.Y) {
				t.Errorf("%s: %d %s, %d × %d, %v", query, res.StatusCode, data[:min(len(data), 200)], info.Width, info.Height, err)
			}
		}
		if res := r.get("/a.jpg?"+query, ""); res.StatusCode != 400 {
			t.Errorf("%s without a signature: %d", query, res.StatusCode)
		}
	}
}

// A drawing is sent without what runs, or not shown at all.
func TestSVG(t *testing.T) {
	const drawing, text = `<svg xmlns="http://www.w3.org/2000/svg" onload="x()"><script>x()</script><path d="M0 0"/></svg>`, "no drawing"
	for _, how := range []string{"", "sanitize", "download"} {
		r := realRig(t, Options{SVG: how})
		r.write("a.svg", []byte(drawing), time.Hour)
		r.write("no.svg", []byte(text), time.Hour)
		res := r.get("/a.svg", "")
		got := string(body(t, res))
		if res.StatusCode != 200 || strings.Contains(got, "x()") != (how != "sanitize") || !strings.Contains(got, `d="M0 0"`) || !strings.HasPrefix(res.Header.Get("Content-Type"), "image/svg+xml") {
			t.Errorf("%q: %d %v %s", how, res.StatusCode, res.Header, got)
		}
		if (res.Header.Get("Content-Disposition") == "attachment") != (how == "download") || (res.Header.Get("Content-Security-Policy") == svgPolicy) != (how != "") {
			t.Errorf("%q: %v", how, res.Header)
		}
		if res := r.get("/no.svg", ""); res.StatusCode != map[string]int{"": 200, "sanitize": 422, "download": 200}[how] {
			t.Errorf("%q: no drawing: %d", how, res.StatusCode)
		}
		if res := r.get("/none.svg", ""); res.StatusCode != 404 {
			t.Errorf("%q: no file: %d", how, res.StatusCode)
		}
		r.files.changed("a.svg", true)
		if res := r.get("/a.svg", ""); res.StatusCode != map[string]int{"": 200, "sanitize": 503, "download": 200}[how] {
			t.Errorf("%q: changed this moment: %d", how, res.StatusCode)
		}
	}
}

// An AVIF is no answer for a client that does not name it, and nothing is made of one for who does.
func TestAVIFOriginals(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"avif", "webp"}, Extensions: []string{"avif"}, Params: params.Options{Widths: []int{30}}}, newFake(bothTools))
	made := slices.Concat([]byte("\x00\x00\x00\x10ftypavif\x00\x00\x00\x00"), avifMeta(), make([]byte, 2000))
	r.write("a.avif", made, time.Hour)
	for _, c := range []struct{ query, accept, want string }{
		{"", "*/*", "plain"},
		{"", "image/webp,*/*", "webp"},
		{"", "", "plain"},
		{"", "image/avif,image/webp", "original; reason=accept"},
		{"?w=30", "*/*", "plain"},
		{"?w=30", "image/avif", "avif"},
	} {
		if got := status(r.get("/a.avif"+c.query, c.accept)); got != c.want {
			t.Errorf("%s, Accept %q: %q, want %q", c.query, c.accept, got, c.want)
		}
	}
}

// avifMeta is as much of an AVIF's meta box as tells its size.
func avifMeta() []byte {
	box := func(kind string, content ...[]byte) []byte {
		body := slices.Concat(content...)
		return slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(8+len(body))), []byte(kind), body)
	}
	zero := []byte{0, 0, 0, 0}
	return box("meta", zero, box("pitm", zero, []byte{0, 1}),
		box("iprp", box("ipco", box("ispe", zero, []byte{0, 0, 0, 64, 0, 0, 0, 48})), box("ipma", zero, []byte{0, 0, 0, 1, 0, 1, 1, 1})))
}

// A watermark is an image of the same folder; when it changes, so does what it is laid on.
func TestWatermark(t *testing.T) {
	o := params.Options{
		Options:    []string{"watermark=logo", "watermark=none", "watermark=large"},
		Watermarks: map[string]params.Watermark{"logo": {Image: "marks/logo.jpg", Position: "nw", Scale: 1}, "none": {Image: "none.png"}, "large": {Image: "large.jpg"}},
	}
	r := realRig(t, Options{Params: o})
	r.write("a.jpg", photo(t, 64, 48, 1), time.Hour)
	r.write("large.jpg", make([]byte, 40<<10), time.Hour)
	look := func() (c [3]uint8) {
		t.Helper()
		res := r.get("/a.jpg?watermark=logo", "")
		m, err := jpeg.Decode(res.Body)
		if err != nil {
			t.Fatal(res.StatusCode, err)
		}
		red, green, blue, _ := m.At(20, 20).RGBA()
		return [3]uint8{uint8(red >> 8), uint8(green >> 8), uint8(blue >> 8)}
	}
	near := func(a [3]uint8, red, green, blue int) bool {
		return max(red-int(a[0]), int(a[0])-red, green-int(a[1]), int(a[1])-green, blue-int(a[2]), int(a[2])-blue) < 12
	}
	even := func(red, green, blue uint8) []byte {
		m := image.NewNRGBA(image.Rect(0, 0, 16, 12))
		for i := 0; i < len(m.Pix); i += 4 {
			copy(m.Pix[i:], []byte{red, green, blue, 255})
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, m, nil); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	r.write("marks/logo.jpg", even(200, 30, 40), 2*time.Hour)
	if c := look(); !near(c, 200, 30, 40) {
		t.Errorf("%v is not the watermark's colour", c)
	}
	sent := r.table.all()[0].gen.Now() // what the lane has, it may send as long as this is valid
	r.write("marks/logo.jpg", even(20, 130, 240), time.Hour)
	servertest.Eventually(t, "the lane's answer to be no longer valid", func() bool { return !sent.Valid() })
	if c := look(); !near(c, 20, 130, 240) {
		t.Errorf("%v is not the new watermark's colour", c)
	}
	for _, name := range []string{"none", "large"} {
		if res := r.get("/a.jpg?watermark="+name, ""); res.StatusCode != 500 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	for key, wrong := range map[string]params.Options{
		"options[0]":             {Options: []string{"watermark=other"}},
		"presets[a].options":     {Presets: map[string]params.Preset{"a": {Options: "watermark=other"}}},
		"watermarks[a].image":    {Watermarks: map[string]params.Watermark{"a": {Image: "/etc/passwd"}}},
		"watermarks[a].position": {Watermarks: map[string]params.Watermark{"a": {Image: "a", Position: "up"}}},
		"watermarks[a].opacity":  {Watermarks: map[string]params.Watermark{"a": {Image: "a", Opacity: 2}}},
		"watermarks[a].scale":    {Watermarks: map[string]params.Watermark{"a": {Image: "a", Scale: -1}}},
		"watermarks[a].margin":   {Watermarks: map[string]params.Watermark{"a": {Image: "a", Margin: -1}}},
		"watermarks[a b]":        {Watermarks: map[string]params.Watermark{"a b": {Image: "a"}}},
	} {
		if wrong.Check()[key] == nil {
			t.Errorf("%s: %v", key, wrong.Check())
		}
	}
}
