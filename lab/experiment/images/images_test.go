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

	"millrace/lab/experiment"
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
	if err != nil || p.width != 80 || p.height != 50 || p.megapixels != 0.004 || p.bytes != int64(len(plain)) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := describe([]byte("no picture")); err == nil {
		t.Errorf("%+v", p)
	}
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

// fixture is a measurement of two small images, with their folder, and of commands.
func fixture(t *testing.T) *measurement {
	t.Helper()
	spec := &experiment.Spec{Arms: []experiment.Arm{
		{Name: "copy", Once: true, Run: "cp {in} {out}"}, {Name: "none", Once: true, Run: "ls /too-bad"},
	}}
	m := &measurement{Run: experiment.NewRun(experiment.Env{Work: t.TempDir()}, spec, &record.Result{}), ready: map[string][]byte{}, samples: map[sample]string{}}
	if err := os.Mkdir(m.Site, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.jpg", "b.jpg"} {
		data := encoded(t, 40, 30, name == "b.jpg")
		if err := writeOld(filepath.Join(m.Site, name), data); err != nil {
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
	command := &trial.Instance{Reports: true}
	for range 2 {
		got, err := m.folder(t.Context(), trial.TaskSlot{Arm: "copy", Instance: command}, experiment.Workload{})
		if err != nil || got.Done != 2 || got.Failed != 0 || got.Values["webp_bytes"] != float64(m.photos[0].bytes+m.photos[1].bytes) {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, ok := got.Values["cpu_per_megapixel_ns"]; !ok {
			t.Errorf("%v", got.Values)
		}
	}
	if len(m.samples) != 2 {
		t.Errorf("%d samples", len(m.samples))
	}
	if _, err := m.folder(t.Context(), trial.TaskSlot{Arm: "none", Instance: command}, experiment.Workload{}); err == nil || !strings.Contains(err.Error(), "too-bad") {
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
	got, err := m.folder(t.Context(), slot, experiment.Workload{})
	if err != nil || got.Done != 1 || got.Failed != 1 || !strings.Contains(got.FirstFailure, "converting") || got.Values["peak_rss_bytes"] <= 0 || got.Values["after_rss_bytes"] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	m.crops = []string{"a.jpg"}
	got, err = m.row(t.Context(), slot, experiment.Workload{Count: 1})
	if err != nil || got.Done != 2 || got.Failed != 0 || got.Values["growth"] <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	m.burstImages = []string{"a.jpg", "b.jpg"}
	var crowd trial.TaskResult
	m.askAll(t.Context(), slot.URL, experiment.Workload{Connections: 2, Count: 2}, &crowd)
	if crowd.Done != 4 || crowd.Failed != 0 || crowd.Values["originals"] != 2 || crowd.Values["slowest_ns"] <= 0 {
		t.Errorf("%+v", crowd)
	}
	if p99, err := small(t.Context(), slot.URL, 300_000_000); err != nil || p99 <= 0 {
		t.Errorf("%v, %v", p99, err)
	}
	if err := m.askReady(t.Context(), slot.URL); err != nil || len(m.ready) != len(readyPhotos()) {
		t.Errorf("%d, %v", len(m.ready), err)
	}
	m.ready[readyPhotos()[0].path()] = nil
	if err := m.askReady(t.Context(), slot.URL); err == nil {
		t.Error("other bytes are not found")
	}
	if rows := m.photoTable().Rows; len(rows) != 2 || rows[0][2] != "40 × 30" {
		t.Errorf("%q", rows)
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
	table := m.scoreTable(map[string]map[string]float64{"vips": {"a.jpg": 72.5}})
	if len(table.Rows) != 2 || table.Rows[0][1] != "72.50" || table.Rows[1][1] != "–" {
		t.Errorf("%v", table.Rows)
	}
}
