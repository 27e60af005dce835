package sendfile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/record"
)

func TestPlan(t *testing.T) {
	for _, mode := range []record.Mode{record.Quick, record.Full} {
		env := experiment.Env{Mode: mode, Work: t.TempDir()}
		m := &measurement{Stage: experiment.NewStage(env, &record.Result{}), Servers: &experiment.Servers{Env: env, Programs: &experiment.Programs{}}}
		plan := newPlan(m.arms(t.Context()), env, sizeFull)
		if err := plan.Check(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if plan.Arms[0].Name != "ServeFile" || len(plan.Arms) != 6 {
			t.Errorf("%s: %d arms, the first is %s", mode, len(plan.Arms), plan.Arms[0].Name)
		}
		if plan.Blocks[0] < 10 {
			t.Errorf("%s: %d blocks are fewer than the ten downloads as published", mode, plan.Blocks[0])
		}
		for _, w := range plan.Workloads {
			if w.Load.Connections != 1 || w.Load.Requests == 0 || plan.Warmup != 0 {
				t.Errorf("%s: windows of %s do not begin and end with downloads", mode, w.Name)
			}
		}
	}
}

func TestWriteZeros(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	if err := writeZeros(dir, 5<<20); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"zeros.bin": 5 << 20, "traced.bin": tracedSize} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() != size {
			t.Errorf("%s: %v (%v)", name, info, err)
		}
	}
}

func TestFigures(t *testing.T) {
	res := &record.Result{Arms: []record.Arm{
		{Name: "ServeFile"},
		{Name: "wrapped"},
		{Name: "millrace"},
		{Name: "nginx", Skipped: "not here"},
		{Name: "ServeFile′", Placebo: "ServeFile"},
	}}
	for arm, rate := range map[string]float64{"ServeFile": 6e9, "wrapped": 3e9, "ServeFile′": 6e9} {
		res.Samples = append(res.Samples, record.Sample{Arm: arm, Workload: "tcp", Values: map[string]float64{
			"bytes_per_second": rate, "cpu_ns_per_mb": 6e14 / rate,
		}})
	}
	table := figures(res)
	want := [][]string{
		{"ServeFile", "6.53", "6.00", "100", "4.65", "–", "–"},
		{"wrapped", "3.70 (−43.3 %)", "3.00 (−50.0 %)", "200 (+100.0 %)", "4.47 (−3.9 %)", "–", "–"},
		{"millrace", "–", "–", "–", "–", "–", "–"},
	}
	if !slices.EqualFunc(table.Rows, want, slices.Equal[[]string]) {
		t.Errorf("%q", table.Rows)
	}
	if len(table.Columns) != len(want[0]) {
		t.Errorf("%d columns", len(table.Columns))
	}
}

func TestDownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/zeros" {
			w.Write(make([]byte, 10_000))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	if err := download(t.Context(), "tcp", address, "/zeros", 10_000); err != nil {
		t.Error(err)
	}
	for path, size := range map[string]int64{"/zeros": 10_001, "/other": 10} {
		if err := download(t.Context(), "tcp", address, path, size); err == nil || !strings.Contains(err.Error(), "instead of 200") {
			t.Errorf("%s of %d bytes: %v", path, size, err)
		}
	}
	if err := download(t.Context(), "unix", filepath.Join(t.TempDir(), "s"), "/zeros", 1); err == nil {
		t.Error("a download from nobody")
	}
}

// cpuSamples are one block of CPU time per request on a workload.
func cpuSamples(workload string, cpu map[string]float64) (samples []record.Sample) {
	for arm, ns := range cpu {
		samples = append(samples, record.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": ns, "bytes_per_second": ns * 1e5}})
	}
	return samples
}

func TestAnswer(t *testing.T) {
	res := &record.Result{Samples: cpuSamples("tcp", map[string]float64{"ServeFile": 61_000, "wrapped": 37_000})}
	trace := record.Table{Rows: [][]string{
		{"ServeFile", "TCP", "3"}, {"ServeFile", "UNIX", "0"}, {"wrapped", "TCP", "0"}, {"wrapped", "UNIX", "0"}, {"millrace", "TCP", "2"}, {"millrace", "UNIX", "2"},
	}}
	want := "Over TCP sendfile is used by ServeFile and millrace; over UNIX sendfile is used by millrace; ServeFile sends 6.10 GB/s over TCP, wrapped, which copies, 3.70 GB/s"
	if got := answer(res, trace); got != want {
		t.Error(got)
	}
	if got := answer(&record.Result{}, record.Table{}); got != "" {
		t.Errorf("of nothing: %s", got)
	}
}
