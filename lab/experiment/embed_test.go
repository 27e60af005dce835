package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/lab/result"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

const embeddedFiles = "../../bench/subjects/internal/site/embedded/files"

func TestSiteIsWhatTheSubjectsEmbed(t *testing.T) {
	for _, f := range siteFiles() {
		content := f.content()
		if len(content) != f.Size {
			t.Errorf("%s has %d bytes, not %d", f.Name, len(content), f.Size)
		}
		embedded, err := os.ReadFile(filepath.Join(embeddedFiles, filepath.FromSlash(f.Name)))
		if err != nil || !bytes.Equal(embedded, content) {
			t.Errorf("%s is another file in bench/subjects (%v)", f.Name, err)
		}
	}
	count := 0
	err := filepath.WalkDir(embeddedFiles, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			count++
		}
		return err
	})
	if err != nil || count != len(siteFiles()) {
		t.Errorf("bench/subjects embeds %d files, not %d (%v)", count, len(siteFiles()), err)
	}
}

func TestVerifyIsAsEncodingJSONWritesIt(t *testing.T) {
	for _, f := range siteFiles() {
		if f.Variable != "verifyJSON" {
			continue
		}
		var v struct {
			Verified bool   `json:"verified"`
			Note     string `json:"note"`
		}
		if err := json.Unmarshal(f.content(), &v); err != nil || !v.Verified || v.Note == "" {
			t.Fatalf("%+v, %v", v, err)
		}
		if again, err := json.Marshal(v); err != nil || !bytes.Equal(again, f.content()) {
			t.Errorf("encoded anew it is %s (%v)", again, err)
		}
	}
}

func TestWriteSite(t *testing.T) {
	dir := t.TempDir()
	files := append(siteFiles(), curveFile(4096))
	for range 2 { // the second time over what is there
		if err := writeSite(dir, files); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "size", "4096.bin"))
		if err != nil || len(got) != 4096 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := os.WriteFile(filepath.Join(dir, "size", "4096.bin"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLdflagsCanBeSplit(t *testing.T) {
	flags := ldflags(siteFiles(), "abc")
	if !strings.HasPrefix(flags, "-ldflags=-X '") || !strings.Contains(flags, "-X 'main.gitHash=abc'") {
		t.Errorf("it begins with %.40q", flags)
	}
	// Two quotes for each variable, and none within: there are no escapes.
	if n := strings.Count(flags, "'"); n != 2*(len(siteFiles())+1) {
		t.Errorf("%d quotes", n)
	}
	for _, f := range siteFiles() {
		if !strings.Contains(flags, "-X 'main."+f.Variable+"=") {
			t.Errorf("%s is missing", f.Variable)
		}
	}
}

func TestOverlay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := overlay(name, "/from", "/into", []siteFile{curveFile(512), curveFile(1024)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &got); err != nil || len(got.Replace) != 2 || got.Replace["/into/size/512.bin"] != "/from/size/512.bin" {
		t.Errorf("%s (%v)", b, err)
	}
}

// bareServers are those of a machine on which nothing was built.
func bareServers(t *testing.T, mode result.Mode) *fileServers {
	t.Helper()
	return newFileServers(Env{Work: t.TempDir(), Mode: mode, Millrace: "/opt/millrace"})
}

func TestEmbedPlan(t *testing.T) {
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		arms := bareServers(t, mode).embedArms(t.Context())
		plan := embedPlan(arms, Env{Mode: mode})
		if err := plan.Check(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if plan.Arms[0].Name != "nethttp-disk" {
			t.Errorf("%s: the baseline is %s", mode, plan.Arms[0].Name)
		}
		if plan.Differ != "" {
			t.Errorf("%s: bodies may differ", mode)
		}
		for _, w := range plan.Workloads {
			if w.Load.Connections != 1000 || len(w.Load.Paths) == 0 {
				t.Errorf("%s: %s: %+v", mode, w.Name, w.Load)
			}
			claim, ok := embedClaims()[w.Name]
			if !ok {
				t.Errorf("nothing is claimed about %s", w.Name)
			}
			for arm := range claim {
				if !slices.ContainsFunc(arms, func(a trial.Arm) bool { return a.Name == arm }) {
					t.Errorf("claimed of %s, which is no arm", arm)
				}
			}
		}
	}
}

func TestArmsThatCannotRunSayWhy(t *testing.T) {
	s := newFileServers(Env{Work: t.TempDir(), Mode: result.Quick})
	for _, a := range s.embedArms(t.Context()) {
		if a.Skipped == "" {
			t.Errorf("%s can run without a checkout and without millrace", a.Name)
		}
	}
	s = newFileServers(Env{Work: t.TempDir(), Mode: result.Quick, Bench: &subject.Bench{Dir: t.TempDir()}})
	s.built["nethttp-embed"] = builtSubject{err: subject.Missing{Tool: "go", Package: "golang"}}
	for _, a := range s.embedArms(t.Context()) {
		if fullOnly(a.Name) && !strings.Contains(a.Skipped, "--full") {
			t.Errorf("%s is left out of a quick run with %q", a.Name, a.Skipped)
		}
		if a.Name == "nethttp-embed" && !strings.Contains(a.Skipped, "install golang") {
			t.Errorf("skipped with %q", a.Skipped)
		}
	}
}

func TestExperimentsSayAllBeforeTheyRun(t *testing.T) {
	for _, e := range []Experiment{embedVsDisk(), sendfilePaths()} {
		for field, text := range map[string]string{"title": e.Title, "question": e.Question, "claim": e.Claim, "rule": e.Rule} {
			if text == "" {
				t.Errorf("%s has no %s", e.Name, field)
			}
		}
		if !strings.Contains(e.Rule, "smallest effect that counts") || !strings.HasSuffix(e.Question, "?") {
			t.Errorf("%s: %s", e.Name, e.Rule)
		}
	}
}

func TestProbe(t *testing.T) {
	long := strings.Repeat("x", 5000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header().Set("Content-Type", "text/plain")
		switch r.URL.Path {
		case "/short":
			w.Header().Set("Last-Modified", "yesterday")
			w.Write([]byte("short"))
		case "/long":
			w.Write([]byte(long[:2500])) // sent in chunks: its end is not known yet
			http.NewResponseController(w).Flush()
			w.Write([]byte(long[2500:]))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	got, err := probeAll(t.Context(), server.Listener.Addr().String(), []string{"/short", "/long", "/none", "/short"})
	if err != nil {
		t.Fatal(err)
	}
	head := len("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nLast-Modified: yesterday\r\nContent-Length: 5\r\n\r\n")
	if p := got[0]; p.Status != 200 || p.Body != 5 || p.Head != head || p.Header.Get("Last-Modified") == "" || p.Header.Get("Content-Length") != "5" {
		t.Errorf("short: %+v, not a head of %d bytes", p, head)
	}
	if p := got[1]; p.Body != 5000 || p.Header.Get("Transfer-Encoding") != "chunked" {
		t.Errorf("long: %+v", p)
	}
	if got[2].Status != http.StatusNotFound || got[3].Head != head {
		t.Errorf("none: %+v, short again: %+v", got[2], got[3])
	}
}

func TestProbeOfNobody(t *testing.T) {
	port, err := subject.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := probeAll(t.Context(), "127.0.0.1:"+strconv.Itoa(port), []string{"/"}); err == nil {
		t.Error("an answer from where nobody is")
	}
}

func TestEmbedTables(t *testing.T) {
	res := &result.Result{
		Arms: []result.Arm{
			{Name: "nethttp-disk", Size: 8000},
			{Name: "nethttp-embed", Size: 8200},
			{Name: "nginx", Skipped: "not here"},
			{Name: "nethttp-disk′", Placebo: "nethttp-disk", Size: 8000},
		},
		Workloads: []result.Workload{{Name: "one page"}},
	}
	for block, rate := range []float64{90, 100, 500} {
		for arm, factor := range map[string]float64{"nethttp-disk": 1, "nethttp-embed": 1.5, "nethttp-disk′": 1} {
			res.Samples = append(res.Samples, result.Sample{Arm: arm, Workload: "one page", Block: block, Values: map[string]float64{
				"requests_per_second": rate * factor, "cpu_ns": 50_000 / factor,
			}})
		}
	}
	with := http.Header{"Last-Modified": {"x"}, "Content-Type": {"x"}}
	without := http.Header{"Content-Type": {"x"}, "X-More": {"x"}}
	tables := embedTables(res, map[string][]probe{
		"nethttp-disk":  {{Path: "/", Header: with, Head: 200, Body: 501}, {Path: "/b", Header: with, Head: 200, Body: 10}},
		"nethttp-embed": {{Path: "/", Header: without, Head: 150, Body: 501}, {Path: "/b", Header: with, Head: 150, Body: 10}},
	})
	want := [][][]string{
		{
			{"one page", "nethttp-disk", "83519", "100", "50.0"},
			{"one page", "nethttp-embed", "116485 (+39.5 %)", "150 (+50.0 %)", "33.3 (−33.3 %)"},
		},
		{{"nethttp-disk", "8000", "+0.0 %"}, {"nethttp-embed", "8200", "+2.5 %"}},
		{{"nethttp-disk", "200", "501", "701", "400", "511", "911"}, {"nethttp-embed", "150", "501", "651", "300", "511", "811"}},
		{{"nethttp-embed", "Last-Modified", "X-More", "–", "–"}},
	}
	for i, table := range tables {
		if !slices.EqualFunc(table.Rows, want[i], slices.Equal[[]string]) {
			t.Errorf("%s: %q, not %q", table.Title, table.Rows, want[i])
		}
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %d cells in %d columns", table.Title, len(row), len(table.Columns))
			}
		}
	}
}

func TestCurve(t *testing.T) {
	sizes := map[string]int{"0.5 KB": 512, "8 KB": 8 << 10, "128 KB": 128 << 10}
	var samples []result.Sample
	for workload, size := range sizes {
		for arm, cost := range map[string]float64{"nethttp-disk": 50_000 + float64(size)*0.1, "nethttp-embed": 20_000 + float64(size)} {
			for _, noise := range []float64{0.9, 1, 5} {
				samples = append(samples, result.Sample{Arm: arm, Workload: workload, Values: map[string]float64{"cpu_ns": cost * noise}})
			}
		}
		samples = append(samples, result.Sample{Arm: "nginx", Workload: workload}) // its cost is unknown
	}
	arms := []trial.Arm{{Name: "nethttp-disk"}, {Name: "nethttp-embed"}, {Name: "nginx"}}
	series := curveSeries(samples, arms, sizes)
	if len(series) != 2 || len(series[0].Points) != 3 || series[0].Points[0] != [2]float64{512, 50_051.2} {
		t.Fatalf("%+v", series)
	}
	table := curveTable(series, []int{512, 8 << 10, 128 << 10, 1 << 20})
	if got := table.Rows[3]; !slices.Equal(got, []string{"1 MB", "–", "–"}) {
		t.Errorf("the size that was not measured: %q", got)
	}
	if got := table.Rows[0]; !slices.Equal(got, []string{"0.5 KB", "50.1", "20.5"}) {
		t.Errorf("0.5 KB: %q", got)
	}
	if !strings.Contains(table.About, "At 0.5 KB nethttp-embed is the cheaper") || !strings.Contains(table.About, "KB on nethttp-disk is") {
		t.Errorf("where they cross: %s", table.About)
	}
	charts := curveCharts(series)
	if len(charts) != 2 || charts[1].Series[0].Points[0][1] != 50_051.2/512 {
		t.Errorf("%+v", charts)
	}
	if got := crossover(series, "nethttp-disk", "absent"); got != "Whether disk and embedded cross was not measured." {
		t.Error(got)
	}
	if got := crossover(series, "nethttp-disk", "nethttp-disk"); !strings.Contains(got, "does not change") {
		t.Error(got)
	}
}

func TestCurveSizesAreOnesTheSeriesFinds(t *testing.T) {
	for _, mode := range []result.Mode{result.Quick, result.Full} {
		names := map[string]bool{}
		for _, size := range curveSizes(mode) {
			if size&(size-1) != 0 || size < 512 || size > 1<<20 {
				t.Errorf("%d", size)
			}
			names[sizeName(size)] = true
		}
		if len(names) != len(curveSizes(mode)) {
			t.Errorf("two sizes have one name: %v", names)
		}
	}
}

func TestPart(t *testing.T) {
	var got result.Event
	watch := part(func(e result.Event) { got = e }, 0.2, 0.6, time.Second)
	watch(result.Event{Done: 0.5, Left: time.Second})
	if got.Done != 0.4 || got.Left != 2*time.Second {
		t.Errorf("%+v", got)
	}
	watch(result.Event{Done: 1})
	if got.Done < 0.599 || got.Done > 0.601 || got.Left != 0 {
		t.Errorf("%+v", got)
	}
}

const nginxTemplate = "../../bench/peers/nginx/nginx.conf.tmpl"

func TestNginxConfig(t *testing.T) {
	text, err := nginxConfig(nginxTemplate, nginxFields{Dir: "/d", Site: "/s", Address: "127.0.0.1:81", Socket: "/d/s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"daemon off;", "worker_processes 2;", "sendfile   on;", "open_file_cache ", "access_log off;",
		"listen 127.0.0.1:81 ", "listen unix:/d/s ", "root  /s;", "pid /d/nginx.pid;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, site := range []string{"/a b", "/a;b", "/$a", "/a'"} {
		if _, err := nginxConfig(nginxTemplate, nginxFields{Site: site}); err == nil {
			t.Errorf("the folder %q was accepted", site)
		}
	}
}

func TestNginxAcceptsItsConfig(t *testing.T) {
	dir := t.TempDir()
	s := newFileServers(Env{Work: dir, Bench: &subject.Bench{Dir: "../../bench"}})
	l, err := s.nginx()
	if missing := (subject.Missing{}); errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := place{Site: dir, Dir: dir, Address: "127.0.0.1:8081", Socket: filepath.Join(dir, "s")}
	if err := l.prepare(p); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), l.exe, append(l.args(p), "-t")...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if nginxVersion(t.Context(), l.exe) == "" {
		t.Error("its version is unknown")
	}
}
