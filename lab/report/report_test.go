package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/lab/record"
)

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", name, diff)
	}
}

func TestGolden(t *testing.T) {
	for name := range fixtures() {
		res := fixture(t, name)
		for end, write := range map[string]func(io.Writer, *record.Result) error{
			".md":        Markdown,
			".text":      func(w io.Writer, res *record.Result) error { return Text(w, res, 100) },
			".bench.txt": Benchstat,
		} {
			var b bytes.Buffer
			if err := write(&b, res); err != nil {
				t.Fatal(err)
			}
			golden(t, name+end, strings.ReplaceAll(b.String(), "goarch: arm64", "goarch: amd64"))
		}
	}
}

// TestFixtures: the files are what the functions make, so that nobody edits
// one and not the other.
func TestFixtures(t *testing.T) {
	for name, res := range fixtures() {
		if diff := cmp.Diff(cleaned(res), fixture(t, name)); diff != "" {
			t.Errorf("%s (go test -update writes it anew):\n%s", name, diff)
		}
	}
}

func TestSentence(t *testing.T) {
	for name, want := range map[string][]string{
		"compare": {
			"claimed −30 % CPU time per request on one page; measured −31.0 % CPU time per request [−32.3 %, −29.6 %] for millrace against nginx (requests per second +44.9 % [+42.2 %, +47.8 %], better); verdict: better",
		},
		"interrupted": {
			"INTERRUPTED: Ctrl-C after 41 s, in block 3 of 6; what was measured until then is below",
			"claimed −30 % CPU time per request on one page; measured −31.0 % CPU time per request [no interval] for millrace against nginx (requests per second +44.9 % [no interval], undecided); verdict: undecided (about 9 more blocks, 42 s)",
		},
		"load": {
			"measured requests per second 83.5 k/s, 99th percentile of latency 2.31 ms, CPU time per request 16.2 µs, resident memory 14.7 MB; verdict: none, since one target alone proves no difference",
		},
	} {
		if diff := cmp.Diff(want, Sentence(fixture(t, name))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	void := Sentence(fixture(t, "void"))
	if len(void) < 3 || !strings.HasPrefix(void[0], `VOID: the check "same answers" failed`) || !strings.HasSuffix(void[1], "no figure below proves anything") {
		t.Errorf("a void result begins with %q", void)
	}
	many := Sentence(fixture(t, "experiment"))
	if !strings.HasPrefix(many[0], "claimed: A net/http server") || !strings.Contains(many[1], "requests per second") || !strings.Contains(many[1], "nethttp-embed") {
		t.Errorf("the claim is about requests/s of nethttp-embed, and it begins with %q", many[:2])
	}
	if len(many) != maxFindings+2 || many[len(many)-1] != "and 14 more verdicts in the table" {
		t.Errorf("%d sentences, the last is %q", len(many), many[len(many)-1])
	}
	for _, s := range many {
		if strings.Contains(s, "′") {
			t.Errorf("a placebo is a finding: %q", s)
		}
	}
	if got := Sentence(&record.Result{}); !slices.Equal(got, []string{"nothing was measured"}) {
		t.Errorf("of an empty result: %q", got)
	}
}

// TestHostileTexts: names come from command lines and files.
func TestHostileTexts(t *testing.T) {
	evil := "</script><img src=x onerror=alert(1)>|`\x1b[31m\n\r\u202e]]> <!-- \x00"
	res := fixture(t, "compare")
	res.Title, res.Name, res.Claim, res.Question, res.Rule, res.Interrupted = evil, "../../"+evil, evil, evil, evil, evil
	res.Version, res.Command, res.Machine.CPU = evil, []string{evil}, evil
	res.Gates = append(res.Gates, record.Gate{Name: evil, Status: record.Failed, Limit: evil, Detail: evil})
	res.Tables = []record.Table{{Title: evil, About: evil, Columns: []string{evil}, Rows: [][]string{{evil}}}}
	res.Charts = []record.Chart{{
		Title: evil, About: evil, X: record.Axis{Name: evil, Unit: evil}, Y: record.Axis{Name: evil, Unit: evil},
		Series: []record.Series{{Name: evil, Points: [][2]float64{{0, 1}, {1, 2}}}},
	}}
	res.Notes = []string{evil}
	res.Arms[1] = record.Arm{Name: evil, About: evil, Command: []string{evil}, Version: evil, Skipped: evil}
	res.Workloads[0] = record.Workload{Name: evil, About: evil}
	res.Metrics[0].Name, res.Metrics[0].Unit = evil, evil
	for i := range res.Verdicts {
		res.Verdicts[i].Arm, res.Verdicts[i].Workload, res.Verdicts[i].Sentence = evil, evil, evil
	}
	for i := range res.Samples {
		res.Samples[i].Workload, res.Samples[i].Arm = evil, evil
	}
	var html bytes.Buffer
	if err := HTML(&html, res); err != nil {
		t.Fatal(err)
	}
	checkPage(t, html.String())
	if strings.Contains(html.String(), "<img") {
		t.Error("an element got into the page")
	}
	for name, write := range map[string]func(io.Writer, *record.Result) error{
		"text": func(w io.Writer, res *record.Result) error { return Text(w, res, 80) }, "markdown": Markdown, "benchstat": Benchstat,
	} {
		var b bytes.Buffer
		if err := write(&b, res); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\x00\r\u202e") {
			t.Errorf("%s holds control characters", name)
		}
		if name == "markdown" && strings.Contains(strings.ReplaceAll(b.String(), "`", ""), "\n<img") {
			t.Errorf("markdown holds an element")
		}
	}
	dir := t.TempDir()
	files, err := Files(dir, res)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Dir(f) != dir {
			t.Errorf("%s was written outside of the folder", f)
		}
	}
}

func TestTextWidth(t *testing.T) {
	res := fixture(t, "experiment")
	for _, width := range []int{0, 60, 80, 100, 200} {
		var b bytes.Buffer
		if err := Text(&b, res, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			// Nine columns need more than the narrowest terminal has.
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > max(width, 92) {
				t.Errorf("a line of %d characters for a width of %d: %q", n, width, line)
			}
		}
	}
	var b bytes.Buffer
	if err := Text(&b, fixture(t, "void"), 100); err != nil {
		t.Fatal(err)
	}
	void, verdicts := strings.Index(b.String(), "✗ same answers failed"), strings.Index(b.String(), "\nVerdicts")
	if void < 0 || verdicts < void {
		t.Error("the failed check does not stand before the verdicts")
	}
}

// TestBenchstatReads runs the real program over what is written for it.
func TestBenchstatReads(t *testing.T) {
	if testing.Short() {
		t.Skip("builds benchstat")
	}
	cmd := exec.Command("go", "tool", "-modfile="+filepath.Join("..", "..", "packaging", "tools", "go.mod"), "benchstat", "-format", "csv", "-col", "/arm", filepath.Join("testdata", "experiment.bench.txt"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("benchstat is not here: %v\n%s", err, out)
	}
	for _, want := range []string{"OnePage-2", "All-2", "cpu-sec", "requests/s", "millrace-packed"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("benchstat does not show %q:\n%s", want, out)
		}
	}
}

func TestBenchstatKeepsNamesApart(t *testing.T) {
	res := &record.Result{
		Metrics:   []record.Metric{{Key: "a_ns", Unit: "ns"}, {Key: "a", Unit: "ns"}, {Key: "b c", Unit: "odd unit"}},
		Arms:      []record.Arm{{Name: "x y"}, {Name: "x/y"}},
		Workloads: []record.Workload{{Name: "/a"}, {Name: "a"}, {Name: "?"}},
	}
	for _, a := range res.Arms {
		for _, w := range res.Workloads {
			res.Samples = append(res.Samples, record.Sample{Arm: a.Name, Workload: w.Name, Values: map[string]float64{"a_ns": 1, "a": 2, "b c": 3, "?": 4}})
		}
	}
	var b bytes.Buffer
	if err := Benchstat(&b, res); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "Benchmark") {
			f := strings.Fields(line)
			names[f[0]] = true
			if len(f) != 8 || len(slices.Compact(slices.Sorted(slices.Values([]string{f[3], f[5], f[7]})))) != 3 {
				t.Errorf("the line %q has not three figures of three units", line)
			}
		}
	}
	if len(names) != 6 {
		t.Errorf("two arms under three workloads have the names %v", names)
	}
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	files, err := Files(dir, fixture(t, "load"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	want := []string{"load.json", "load.html", "load.md", "load.txt", "load-cpu-of-the-target.png", "load-memory-of-the-target.png"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	there, err := os.ReadDir(dir)
	if err != nil || len(there) != len(want) {
		t.Errorf("%d files are there, %v", len(there), err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Read(f); err != nil {
		t.Error(err)
	}
	if _, err := Files(files[0], fixture(t, "load")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// TestDraw: what is drawn again goes over nothing, and leaves the result alone.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "load.md")
	if err := os.WriteFile(kept, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := Draw(dir, fixture(t, "load"))
	if err == nil || !strings.Contains(err.Error(), "load.md is there already") || len(files) != 4 {
		t.Errorf("%v, %v", files, err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "load.json")); err == nil {
		t.Error("the result was written again")
	}
}

// TestFilesKeepsWhatContradictsItself: what was measured is not lost by a
// mistake in the lab.
func TestFilesKeepsWhatContradictsItself(t *testing.T) {
	res := fixture(t, "compare")
	res.Samples[0].Arm = "nobody"
	files, err := Files(t.TempDir(), res)
	if err == nil || !strings.Contains(err.Error(), `"nobody" is not an arm`) {
		t.Errorf("the error is %v", err)
	}
	if len(files) != 4 {
		t.Errorf("%d files were kept", len(files))
	}
}

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	if err := Usage(&b, fixture(t, "load")); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b.Bytes(), []byte("\x89PNG")) {
		t.Error("no PNG")
	}
	if err := Usage(&b, fixture(t, "compare")); err == nil {
		t.Error("a picture of nothing")
	}
}

func TestTableInto(t *testing.T) {
	readme := "# A\n<!-- lab:files -->\nold\n<!-- /lab:files -->\nend\n"
	got, err := TableInto([]byte(readme), "files", "\n| a |\n|---|\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "# A\n<!-- lab:files -->\n| a |\n|---|\n<!-- /lab:files -->\nend\n"; string(got) != want {
		t.Errorf("%q", got)
	}
	again, err := TableInto(got, "files", "| a |\n|---|")
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("a second time it is %q, %v", again, err)
	}
	for name, bad := range map[string]string{
		"nothing":      "# A\n",
		"no end":       "<!-- lab:files -->\n",
		"no begin":     "<!-- /lab:files -->\n",
		"wrong order":  "<!-- /lab:files -->\n<!-- lab:files -->\n",
		"twice":        readme + readme,
		"other marker": strings.ReplaceAll(readme, "files", "images"),
	} {
		if got, err := TableInto([]byte(bad), "files", "x"); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	if _, err := TableInto([]byte(readme), "files", "<!-- /lab:files -->"); err == nil {
		t.Error("a table that ends itself")
	}
}

// Every report of an experiment opens with its answer, then the tables and
// charts that it rests on, then the verdicts.
func TestReportsOpenWithTheAnswer(t *testing.T) {
	res := fixture(t, "experiment")
	res.Answer = "No server failed up to 5,000 connections"
	res.Tables = append(res.Tables, record.Table{Title: "Step by step", Lead: true, Columns: []string{"a"}, Rows: [][]string{{"1"}}})
	res.Charts[0].Lead = true
	var html, md, text strings.Builder
	for _, err := range []error{HTML(&html, res), Markdown(&md, res), Text(&text, res, 100)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	page := html.String()
	for name, c := range map[string]struct {
		got   string
		order []string
	}{
		"HTML": {
			page[strings.Index(page, "<body"):],
			[]string{res.Answer, "Step by step", `data-chart="0"`, ">Claimed<", `id="verdicts"`, `id="tables"`},
		},
		"Markdown": {md.String(), []string{res.Answer, "## Step by step", "claimed", "## Verdicts", "## Medians"}},
		"text":     {text.String(), []string{res.Answer, "claimed", "Step by step", "Verdicts against"}},
	} {
		at := -1
		for _, part := range c.order {
			next := strings.Index(c.got, part)
			if next <= at {
				t.Errorf("%s: %q does not come after what should stand before it", name, part)
			}
			at = next
		}
		if n := strings.Count(c.got, "Step by step"); n != 1 && name != "HTML" {
			t.Errorf("%s: the table stands there %d times", name, n)
		}
	}
}

// An interval without 0 that decides nothing has its reason beside it, in every
// form of the report.
func TestUndecidedSaysWhy(t *testing.T) {
	res := fixture(t, "compare")
	const why = "p 0.012 is above 0.0033, what this look allows"
	for i := range res.Verdicts {
		v := &res.Verdicts[i]
		v.Outcome, v.Ratio, v.Low, v.High, v.P, v.Why = record.Undecided, 0.318, 0.290, 0.364, 0.012, why
	}
	var html, md, text strings.Builder
	for _, err := range []error{HTML(&html, res), Markdown(&md, res), Text(&text, res, 200)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, got := range map[string]string{"HTML": html.String(), "Markdown": md.String(), "text": text.String(), "summary": SummaryTable([]*record.Result{res})} {
		if !strings.Contains(got, "undecided: "+why) {
			t.Errorf("%s does not say why it is undecided", name)
		}
		if !strings.Contains(got, "×0.290, ×0.364") {
			t.Errorf("%s mixes units within an interval", name)
		}
	}
}

func TestSummaryTable(t *testing.T) {
	lost := fixture(t, "compare")
	lost.Verdicts[1].Outcome = record.Worse
	peer := fixture(t, "compare")
	peer.Arms[0].Name, peer.Arms[1].Name, peer.Arms[2].Placebo = "millrace", "nginx", "millrace"
	for i := range peer.Verdicts {
		v := &peer.Verdicts[i]
		v.Baseline = "millrace"
		if v.Arm == "millrace" {
			v.Arm = "nginx"
		}
	}
	got := SummaryTable([]*record.Result{fixture(t, "compare"), lost, peer, fixture(t, "void"), fixture(t, "experiment")})
	golden(t, "summary.md", got)
	if n := strings.Count(got, "**◆ worse**"); n != 1 {
		t.Errorf("%d rows are lost", n)
	}
	if n := strings.Count(got, "**● better**"); n != 2 {
		t.Errorf("nginx is better than millrace in %d rows", n)
	}
	if !strings.Contains(got, "void: same answers") || strings.Count(got, "void") != 1 {
		t.Error("the void result has not one row")
	}
	for line := range strings.Lines(got) {
		if n := strings.Count(line, "|"); n != 9 {
			t.Errorf("a row of %d cells: %s", n-1, line)
		}
	}
	if strings.Contains(got, "′") {
		t.Error("a placebo is in the summary")
	}
}

func TestSlug(t *testing.T) {
	for s, want := range map[string]string{
		"embed-vs-disk": "embed-vs-disk", "CPU of the target": "cpu-of-the-target", "../../etc/passwd": "etc-passwd", "": "x", "…": "x", "--a--": "a",
	} {
		if got := slug(s, "x"); got != want {
			t.Errorf("slug(%q) = %q", s, got)
		}
	}
	if got := slug(strings.Repeat("ab ", 100), "x"); len(got) > maxSlug+1 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestFigureColumns(t *testing.T) {
	rows := [][]string{{"a", "12", "–", "1,5 ms", "−3 %"}, {"b", "×2", "", "x", "?"}}
	if got := fmt.Sprint(figureColumns(5, rows)); got != "[false true false false true]" {
		t.Error(got)
	}
}

// A line never ends within a figure.
func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"CPU time per request":      {"CPU time", "per", "request"},
		"[−0.6 %, +0.6 %] 1 %":      {"[−0.6 %, +0.6 %]", "1 %"},
		"1.23 (−21.8 %)":            {"1.23", "(−21.8 %)"},
		"":                          {""},
		"(a remark that is long) x": {"(a remark that is", "long) x"},
	} {
		if got := wrap(text, 9); !slices.Equal(got, want) {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
