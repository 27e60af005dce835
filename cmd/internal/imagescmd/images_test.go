package imagescmd

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/cmd/internal/cli"
	"millrace/images"
)

// What an operator reads after a run: columns that stand under their names,
// causes in words, no more than a few names each.
func TestConversionTable(t *testing.T) {
	r := conversion{
		imageFolder: imageFolder{name: "photos", dir: "/var/cache/photos"},
		took:        90 * time.Second,
		summary: images.Summary{
			Pictures: 7, Bytes: 20_000_000, Smallest: 5_000_000,
			Formats: map[string]images.Saving{
				"webp": {Made: 2, Kept: 1, Original: 1, Bytes: 7_500_000, Of: 15_000_000},
				"avif": {Made: 3, Bytes: 1_500_000, Of: 15_000_000},
			},
			Failed: map[string][]string{"broken": {"d.jpg", "c.jpg", "b.jpg", "a.jpg"}, "not an image": {"x.png"}},
		},
	}
	var out bytes.Buffer
	if err := r.conclude(t.Context(), cli.Streams{Out: &out, Err: &out}); err != nil {
		t.Fatal(err)
	}
	want := `photos: 7 images, 20 MB, in 1m30s

                   converted  found  original smaller  before   after  saved
  AVIF                     3      0                 0   15 MB  1.5 MB   90 %
  WebP                     2      1                 1   15 MB  7.5 MB   50 %
  smallest of all                                       20 MB    5 MB   75 %

  4 images: damaged: served as it is
    a.jpg, b.jpg, c.jpg and 1 more

  1 image: not an image, whatever the name says: served as it is
    x.png

  kept in /var/cache/photos
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What was under way when a run was stopped has not failed, and is not counted.
func TestConversionStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r := conversion{
		imageFolder: imageFolder{name: "photos"}, total: 9, cut: map[string]bool{"c.jpg": true},
		summary: images.Summary{
			Pictures: 3, Formats: map[string]images.Saving{"webp": {Made: 2, Bytes: 1, Of: 2}},
			Failed: map[string][]string{"failed": {"c.jpg"}},
		},
	}
	var out bytes.Buffer
	err := r.conclude(ctx, cli.Streams{Out: &out, Err: &out})
	if err == nil || err.Error() != "stopped after 2 of 9 images; what is done is kept" {
		t.Errorf("error %v", err)
	}
	if strings.Contains(out.String(), "c.jpg") || !strings.Contains(out.String(), "photos: 2 images") {
		t.Errorf("it says:\n%s", out.String())
	}
}

// A run that converted nothing has failed.
func TestConversionOfNothing(t *testing.T) {
	var out bytes.Buffer
	for want, sum := range map[string]images.Summary{
		"there are no images in photos":                   {},
		"none of the images of photos could be converted": {Pictures: 1, Failed: map[string][]string{"broken": {"a.jpg"}}},
	} {
		r := conversion{imageFolder: imageFolder{name: "photos"}, summary: sum}
		if err := r.conclude(t.Context(), cli.Streams{Out: &out, Err: &out}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestStatsTable(t *testing.T) {
	s := images.Stats{
		Level: "tools", Formats: map[string]string{"webp": "cwebp 1.2.4"}, Costs: map[string]float64{"jpeg>webp fast tools": 41.4},
		Running: 1, Waiting: 5, Workers: 2, WorkerBytes: 80_000_000, Converted: 33, BytesIn: 45_000_000, BytesOut: 12_000_000, CPUMilliseconds: 12_000,
		Kept:  images.Inventory{Originals: 2, Bytes: 4096, Formats: map[string]images.Saving{"webp": {Kept: 2, Bytes: 100, Of: 400}}},
		Limit: 10 << 30, Folder: "/kept",
	}
	var out bytes.Buffer
	if err := printStats(&out, "/", s, true); err != nil {
		t.Fatal(err)
	}
	want := `/
  engine   tools: WebP by cwebp 1.2.4
  now      1 running, 5 waiting; 2 processes with 80 MB
  since up 33 converted, 0 failed, 0 found no place in the queue
           45 MB became 12 MB, for 12s of CPU
  cost     jpeg to webp fast tools        41 ms a megapixel
  kept     2 variants of 2 images, 4.1 kB of 10GiB in /kept

        variants  original smaller  before  after  saved
  WebP         2                 0   400 B  100 B   75 %
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
