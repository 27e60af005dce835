package experiment

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/lab/result"
)

func TestSendfilePlan(t *testing.T) {
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		s := bareServers(t, mode)
		plan := sendfilePlan(s.downloadArms(t.Context()), Env{Mode: mode}, sendfileSize)
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

func TestSendfileFigures(t *testing.T) {
	res := &result.Result{Arms: []result.Arm{
		{Name: "ServeFile"},
		{Name: "wrapped"},
		{Name: "millrace"},
		{Name: "nginx", Skipped: "not here"},
		{Name: "ServeFile′", Placebo: "ServeFile"},
	}}
	for arm, rate := range map[string]float64{"ServeFile": 6e9, "wrapped": 3e9, "ServeFile′": 6e9} {
		res.Samples = append(res.Samples, result.Sample{Arm: arm, Workload: "tcp", Values: map[string]float64{
			"bytes_per_second": rate, "cpu_ns_per_mb": 6e14 / rate,
		}})
	}
	table := sendfileFigures(res)
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
