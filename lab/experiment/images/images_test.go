package images

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// encoded is a JPEG as image/jpeg writes it: baseline 4:2:0, or grey.
func encoded(t *testing.T, w, h int, grey bool) []byte {
	t.Helper()
	var m image.Image = image.NewGray(image.Rect(0, 0, w, h))
	if !grey {
		colours := image.NewNRGBA(m.Bounds())
		for y := range h {
			for x := range w {
				colours.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x * y), 255})
			}
		}
		m = colours
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDescribe(t *testing.T) {
	plain := encoded(t, 80, 50, false)
	p, err := describe(plain)
	if err != nil || p.kind != "baseline 4:2:0" || p.width != 80 || p.height != 50 || p.megapixels != 0.004 || p.profile || p.bytes != int64(len(plain)) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := describe(encoded(t, 8, 8, true)); err != nil || p.kind != "baseline, grey" {
		t.Errorf("%+v, %v", p, err)
	}
	// A profile before the frame, and the frame said to be a progressive 4:4:4.
	segment := []byte("\xff\xe2\x00\x10ICC_PROFILE\x00\x01\x01")
	profiled := slices.Concat(plain[:2], segment, plain[2:])
	if p, err := describe(profiled); err != nil || !p.profile {
		t.Errorf("%+v, %v", p, err)
	}
	frame := bytes.Index(plain, []byte{0xff, 0xc0})
	other := slices.Clone(plain)
	other[frame+1], other[frame+11] = 0xc2, 0x11
	if text, _, err := kind(other); err != nil || text != "progressive 4:4:4" {
		t.Errorf("%q, %v", text, err)
	}
	for _, bad := range [][]byte{nil, plain[:2], plain[:frame+8], []byte("\xff\xd8\x00\x00\x00\x00")} {
		if text, _, err := kind(bad); err == nil {
			t.Errorf("%d bytes are %q", len(bad), text)
		}
	}
}

func FuzzKind(f *testing.F) {
	f.Add([]byte("\xff\xd8\xff\xe2\x00\x10ICC_PROFILE\x00\x01\x01\xff\xc2\x00\x11\x08\x00\x10\x00\x10\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _, _ = kind(data) // must not panic
		pictureBytes(data)
	})
}

func TestPictureBytes(t *testing.T) {
	chunk := func(name string, n int) []byte {
		b := append([]byte(name), binary.LittleEndian.AppendUint32(nil, uint32(n))...)
		return append(b, make([]byte, n+n%2)...)
	}
	webp := slices.Concat([]byte("RIFF\x00\x00\x00\x00WEBP"), chunk("VP8X", 10), chunk("ICCP", 501), chunk("VP8 ", 99), chunk("EXIF", 40), chunk("XMP ", 7))
	if got, want := pictureBytes(webp), int64(12+18+108); got != want {
		t.Errorf("%d of %d bytes, want %d", got, len(webp), want)
	}
	if got := pictureBytes([]byte("GIF89a")); got != 6 {
		t.Errorf("what is not a WebP has %d bytes", got)
	}
}

// TestPhotos: the names are distinct, and a quick run has some, with large ones
// among them.
func TestPhotos(t *testing.T) {
	names, quick := map[string]bool{}, 0
	for _, p := range photos() {
		if names[p.name] {
			t.Errorf("%s is there twice", p.name)
		}
		names[p.name] = true
		if p.look {
			quick++
		}
	}
	if len(names) < 8 || quick == 0 || quick == len(names) {
		t.Errorf("%d photographs, %d in a quick run", len(names), quick)
	}
}

func TestMakeSmall(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.jpg")
	if err := os.WriteFile(from, encoded(t, 1300, 800, false), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := makeSmall(dir, []string{from, from}, 5)
	if err != nil || len(names) != 5 {
		t.Fatalf("%q, %v", names, err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		p, err := describe(data)
		if err != nil || p.megapixels < 0.5 || p.megapixels > 1 || seen[p.hash] {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		seen[p.hash] = true
	}
	links, err := spread(dir, []string{from}, 7, "x")
	if err != nil || len(links) != 7 || links[6] != "x-0006.jpg" {
		t.Errorf("%q, %v", links, err)
	}
}

func TestPlan(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		m := &measurement{size: sizeFor(mode), Stage: experiment.NewStage(experiment.Env{Mode: mode}, &record.Result{})}
		var arms []trial.Arm
		for _, name := range []string{vips, cwebp, cwebpFast, nginx, millrace, embedded, strict} {
			arms = append(arms, trial.Arm{Name: name})
		}
		p := m.newPlan(arms, m.workloads(), experiment.Env{Mode: mode})
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		known := map[string]bool{"cpu_ns": true, "requests_per_second": true}
		for _, metric := range p.Metrics {
			known[metric.Key] = true
		}
		for _, w := range p.Workloads {
			for _, key := range w.Decide {
				if !known[key] {
					t.Errorf("%s: the metric %s is not declared", w.Name, key)
				}
			}
			if w.Task == nil {
				w.Load.URL = "http://127.0.0.1:1/"
				if err := w.Load.Check(); err != nil {
					t.Errorf("%s: %v", w.Name, err)
				}
			}
		}
	}
}

func TestChoose(t *testing.T) {
	all := (&measurement{size: sizeFor(record.Full)}).workloads()
	if got, err := choose(all, nil); err != nil || len(got) != len(all) {
		t.Errorf("%d of %d, %v", len(got), len(all), err)
	}
	if got, err := choose(all, []string{"ready *", folder}); err != nil || len(got) != 4 {
		t.Errorf("%d, %v", len(got), err)
	}
	for _, bad := range []string{"convert", "["} {
		if got, err := choose(all, []string{bad}); err == nil {
			t.Errorf("%q is %d workloads", bad, len(got))
		}
	}
}

// fixture is a measurement of two small images, with their folder.
func fixture(t *testing.T) *measurement {
	t.Helper()
	dir := t.TempDir()
	m := &measurement{Servers: &experiment.Servers{Env: experiment.Env{Work: dir}, Site: dir}, samples: map[sample]string{}, commands: map[string]command{}}
	for _, name := range []string{"a.jpg", "b.jpg"} {
		data := encoded(t, 40, 30, name == "b.jpg")
		if err := writeOld(filepath.Join(dir, name), data); err != nil {
			t.Fatal(err)
		}
		p, err := describe(data)
		if err != nil {
			t.Fatal(err)
		}
		p.name = name
		m.photos = append(m.photos, p)
	}
	return m
}

// TestCommand: what a command used and wrote is told, and each result is kept
// once; one that fails is quoted.
func TestCommand(t *testing.T) {
	m := fixture(t)
	m.commands["copy"] = command{name: "copy", args: []string{"cp", inFile, outFile}}
	m.commands["none"] = command{name: "none", args: []string{"sh", "-c", "echo too bad >&2; exit 3"}}
	for range 2 {
		got, err := m.folder(t.Context(), trial.TaskSlot{Arm: "copy"})
		if err != nil || got.Done != 2 || got.Failed != 0 || got.Values[size80] != float64(m.photos[0].bytes+m.photos[1].bytes) {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, ok := got.Values[perMegapixel]; !ok {
			t.Errorf("%v", got.Values)
		}
	}
	if len(m.samples) != 2 {
		t.Errorf("%d samples", len(m.samples))
	}
	if _, err := m.folder(t.Context(), trial.TaskSlot{Arm: "none"}); err == nil || !strings.Contains(err.Error(), "too bad") {
		t.Errorf("%v", err)
	}
}

// converter answers every image as if it had converted it, but for one.
func converter(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/images/":
		_, _ = w.Write([]byte(`{"a":{"converted":2,"running":0},"b":{"converted":1,"failed":4}}`))
	case "/b.jpg":
		w.Header().Set("Content-Type", "image/jpeg")
		w.Header().Set(statusHeader, "converting")
		_, _ = w.Write([]byte("original"))
	default:
		w.Header().Set("Content-Type", "image/webp")
		_, _ = w.Write([]byte("webp of " + r.URL.Path))
	}
}

// TestServer: an original is a failure that says why, and what the server and its
// memory cost is told.
func TestServer(t *testing.T) {
	m := fixture(t)
	server := httptest.NewServer(http.HandlerFunc(converter))
	defer server.Close()
	target, err := record.Open(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	defer target.Close()
	slot := trial.TaskSlot{
		Arm: "x", URL: server.URL + "/", Target: target, Random: rand.New(rand.NewPCG(1, 2)), Window: func(bool) {},
		Instance: &trial.Instance{URL: map[string]string{"": server.URL + "/"}},
	}
	got, err := m.folder(t.Context(), slot)
	if err != nil || got.Done != 1 || got.Failed != 1 || !strings.Contains(got.FirstFailure, "converting") || got.Values[peak] <= 0 || got.Values[after] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	m.crops, m.size.passes = []string{"a.jpg"}, 2
	got, err = m.row(t.Context(), slot)
	if err != nil || got.Done != 2 || got.Failed != 0 || got.Values[growth] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	m.burstImages, m.clients, m.each = []string{"a.jpg", "b.jpg"}, 2, 2
	var crowd trial.TaskResult
	values := m.askAll(t.Context(), slot.URL, &crowd)
	if crowd.Done != 4 || crowd.Failed != 0 || values[originals] != 2 || values[slowest] <= 0 {
		t.Errorf("%+v, %v", crowd, values)
	}
	if p99, err := small(t.Context(), slot.URL, 300_000_000); err != nil || p99 <= 0 {
		t.Errorf("%v, %v", p99, err)
	}
	m.ready = map[string][]byte{}
	if err := m.askReady(t.Context(), slot.Instance); err != nil || len(m.ready) != len(readyPhotos()) {
		t.Errorf("%d, %v", len(m.ready), err)
	}
	m.ready[readyPhotos()[0].path()] = nil
	if err := m.askReady(t.Context(), slot.Instance); err == nil {
		t.Error("other bytes are not found")
	}
}

func TestCount(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(converter))
	socket := filepath.Join(t.TempDir(), "s")
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Skip(err)
	}
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	if n, err := allDone(t.Context(), "unix:"+socket); err != nil || n.Converted != 3 || n.Failed != 4 {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := count(context.WithoutCancel(t.Context()), "unix:"+socket+"x"); err == nil {
		t.Errorf("%+v", n)
	}
}

func TestScores(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out", "scores.json")
	if got := readScores(name); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if err := writeScores(name, map[string]float64{"a b": 71.5}); err != nil {
		t.Fatal(err)
	}
	if got := readScores(name); got["a b"] != 71.5 {
		t.Errorf("%v", got)
	}
	m := &measurement{photos: []photograph{{name: "a.jpg"}, {name: "b.jpg"}}}
	table := m.scoreTable(map[string]map[string]float64{vips: {"a.jpg": 72.5}})
	if len(table.Rows) != 2 || table.Rows[0][1] != "72.50" || table.Rows[1][1] != "–" {
		t.Errorf("%v", table.Rows)
	}
}
