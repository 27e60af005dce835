package report

import (
	"strings"
	"testing"
	"time"

	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/wrk"
)

// imageSample is a run of two rounds in which vips costs 100 ms a megapixel, in
// the second round twice as much, and millrace so many times of that.
func imageSample(ours float64) *record.Run {
	r := &record.Run{
		Scenario: "images", Seed: 42, Rounds: 2, Slot: time.Second,
		Machine: proc.Machine{CPU: "Some CPU", Cores: 2, Kernel: "Linux 6", Memory: 4e9},
		Arms:    []record.Arm{{Name: "nginx", Title: "nginx"}, {Name: "millrace", Title: "millrace, tools", Ours: true}},
		Images: &record.Images{
			Photos:   []record.Photo{{Name: "a.jpg", Package: "p", Kind: "baseline 4:2:0", Width: 2000, Height: 1000, Megapixels: 2, Bytes: 5e5}},
			Scores:   []record.Score{{Photo: "a.jpg", Hash: "millrace", Value: 71.7}, {Photo: "a.jpg", Hash: "vips", Value: 72}},
			Cached:   []record.CachedPhoto{{Workload: "w", Photo: "a.jpg", Bytes: 70_000}},
			Commands: []record.ImageCommand{{Name: "vips", Command: "vips webpsave IN OUT --Q 80"}, {Name: "millrace", Command: "bin/millrace serve --config DIR/millrace.yaml", Config: "sites: []\n"}},
		},
	}
	m := r.Images
	for round := 1; round <= 2; round++ {
		for name, times := range map[string]float64{"millrace": ours, "vips": 1} {
			cpu := time.Duration(times * float64(round) * 200e6)
			m.Conversions = append(m.Conversions, record.Conversion{Round: round, Arm: name, Photo: "a.jpg", CPU: cpu, Bytes: 90_000, Picture: 80_000, Hash: name})
			m.Folders = append(m.Folders, record.FolderRun{Round: round, Arm: name, CPU: cpu, Harness: cpu / 10, Busy: cpu * 12 / 10, Wall: time.Second})
		}
		for name, cost := range map[string]time.Duration{"millrace": 5 * time.Microsecond, "nginx": 10 * time.Microsecond} {
			r.Small = append(r.Small, record.Small{
				Cell: record.Cell{Workload: "w", Title: "a WebP", Connections: 50}, Round: round, Arm: name,
				Wrk: wrk.Result{Requests: 1000, Duration: time.Second}, Server: proc.CPU{Total: 1000 * cost}, Wall: time.Second,
			})
		}
		for name, what := range map[string]string{"nginx": "nginx, nothing", "millrace": "millrace, nothing"} {
			m.Refusals = append(m.Refusals, record.Refusal{Round: round, Arm: name, Case: what, Status: 404, Requests: 1000, Kept: 1000, Rate: 1e4, CPU: 10 * time.Millisecond})
		}
	}
	line := record.Timeline{Arm: "millrace", Photos: 1, Took: time.Second, Server: proc.Memory{RSS: 30e6}, Settled: 5 * time.Second}
	row := record.Thousand{Arm: "millrace", Asked: 100, Distinct: 25, Counted: 100}
	for i := range 100 {
		use := record.ImageUse{At: time.Duration(i) * 50 * time.Millisecond, Done: i, CPU: time.Duration(i) * 25 * time.Millisecond, Server: 30e6 + uint64(i)*10_000, All: 60e6}
		line.Readings, row.Readings = append(line.Readings, use), append(row.Readings, use)
	}
	m.Timelines, m.Thousands = []record.Timeline{line}, []record.Thousand{row}
	m.Crowds = []record.Crowd{{
		Arm: "millrace", Clients: 64, Pictures: 50, Requests: 640, Converted: 50, Budget: 512 << 20, Peak: record.ImageUse{All: 256 << 20},
		Idle: record.Latency{Requests: 100, P99: time.Millisecond}, During: record.Latency{Requests: 100, P99: 3 * time.Millisecond},
	}}
	return r
}

func TestImages(t *testing.T) {
	text := Images(imageSample(0.5), []string{"w"})
	for _, want := range []string{
		"# Results of `bench/run images`",
		"| millrace, tools: CPU a megapixel of vips', the folder | ≤ 0.60 | 0.50 (0.50–0.50) | pass |",
		"| millrace, tools: bytes of vips', without profiles and metadata, the folder | ≤ 1.06 | 1.00 (1.00–1.00) | pass |",
		"| millrace, tools: SSIMULACRA2 above vips', mean (least–greatest) of the photographs | ≥ -0.50 | -0.30 | pass |",
		"| millrace, tools: memory of the server 5s after the folder | ≤ 40.0 MB | 30.0 MB | pass |",
		"| CPU per request of nginx's, a WebP that is ready, 50 connections | ≤ 0.75 | 0.50 (0.50–0.50) | pass |",
		"conversions too many or too few | ≤ 0 | 0 | pass |",
		"p99 of a small file meanwhile, of idle | ≤ 2.00 | 3.00 | **fail** |",
		"| millrace, tools: a.jpg | SSIMULACRA2 | vips | 71.70 | 72.00 |",
		"rises by 10.0 MB a thousand conversions for the server alone, 0.0 MB with its workers",
		"91.7 %", // accounted for
		"vips            vips webpsave IN OUT --Q 80",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "NaN") {
		t.Errorf("no figure is shown as one:\n%s", text)
	}
	if missed, measured := Missed(imageSample(0.7), []string{"w"}); missed != 2 || measured < 10 {
		t.Errorf("%d of %d bars are missed", missed, measured)
	}
}

// TestImagesOfNothing: a run of other parts has no figures, and says so.
func TestImagesOfNothing(t *testing.T) {
	r := imageSample(1)
	r.Small, r.Images = nil, &record.Images{Photos: r.Images.Photos, Notes: []string{"cached ended early"}}
	text := Images(r, []string{"w"})
	if strings.Contains(text, "pass") || strings.Contains(text, "NaN") || !strings.Contains(text, "**cached ended early.**") {
		t.Error(text)
	}
	if charts, err := ImageCharts(r); err != nil || len(charts) != 0 {
		t.Errorf("%d charts, %v", len(charts), err)
	}
}

// TestUnknownScores: a mean of some photographs is not that of all.
func TestUnknownScores(t *testing.T) {
	r := imageSample(1)
	r.Images.Photos = append(r.Images.Photos, record.Photo{Name: "b.jpg"})
	if _, above := scores(r, "millrace"); above.Valid() {
		t.Errorf("%+v", above)
	}
}

func TestImageCharts(t *testing.T) {
	charts, err := ImageCharts(imageSample(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{memoryChart, cpuChart} {
		if text := string(charts[name]); !strings.HasPrefix(text, "<svg") || !strings.Contains(text, "millrace, tools") {
			t.Errorf("%s: %.200s", name, text)
		}
	}
}
