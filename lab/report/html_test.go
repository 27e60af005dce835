package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"

	"millrace/lab/record"
)

func pageOf(t *testing.T, res *record.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, res); err != nil {
		t.Fatal(err)
	}
	checkPage(t, b.String())
	return b.String()
}

// elements without an end.
var voidElements = []string{"meta", "br", "img", "link", "input", "hr"}

var (
	scripts = regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`)
	styles  = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
)

// checkPage holds a page against what every page must be: small, well formed,
// without network, with one script of our own and JSON in the other.
func checkPage(t *testing.T, page string) {
	t.Helper()
	if len(page) > maxPage {
		t.Errorf("the page has %d bytes", len(page))
	}
	found := scripts.FindAllStringSubmatch(page, -1)
	if len(found) != 2 || strings.Count(page, "<script") != 2 || !strings.Contains(found[0][1], "application/json") {
		t.Fatalf("the page has %d scripts", len(found))
	}
	if !json.Valid([]byte(found[0][2])) {
		t.Error("the raw data is not JSON")
	}
	hash := sha256.Sum256([]byte(found[1][2]))
	policy := html.UnescapeString(page[:2000])
	if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'") || !strings.Contains(policy, "default-src 'none'") {
		t.Error("the policy does not allow the page's script, or allows more")
	}
	bare := styles.ReplaceAllString(scripts.ReplaceAllString(page, ""), "")
	for _, bad := range []string{"@import", "url("} {
		if strings.Contains(styles.FindString(page), bad) {
			t.Errorf("the style sheet holds %q", bad)
		}
	}
	d := xml.NewDecoder(strings.NewReader(strings.Replace(bare, "<!doctype html>", "", 1)))
	d.Strict, d.AutoClose, d.Entity = false, voidElements, xml.HTMLEntity
	open := []string{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = append(open, e.Name.Local)
			for _, a := range e.Attr {
				if n := a.Name.Local; n == "src" || n == "style" || strings.HasPrefix(n, "on") || n == "href" && !strings.HasPrefix(a.Value, "#") {
					t.Errorf("<%s> has %s=%q", e.Name.Local, n, a.Value)
				}
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != e.Name.Local {
				t.Fatalf("</%s> closes %v", e.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("the page leaves %v open", open)
	}
}

// rawOf is the raw data of a page.
func rawOf(t *testing.T, page string) *record.Result {
	t.Helper()
	res, err := Read(strings.NewReader(scripts.FindStringSubmatch(page)[2]))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestPages(t *testing.T) {
	for name, wants := range map[string][]string{
		"compare":     {"<h1>millrace compared with nginx</h1>", "−31.0\u00a0%", "chart-intervals", "placebo of nginx", "Example CPU", "my site"},
		"experiment":  {"Is a small site", "each figure measured once", "And 14 more verdicts", "caddy is missing: install caddy", "chart-line", "Published and measured"},
		"load":        {"83.5\u00a0k/s", "no verdict", "Memory of the target", "chart-series"},
		"void":        {">VOID<", "same answers", "97\u00a0% in the busiest slot"},
		"interrupted": {"Interrupted:", "Ctrl-C after 41 s", "undecided"},
	} {
		page := pageOf(t, fixture(t, name))
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s: %q is missing", name, want)
			}
		}
		if got, want := len(rawOf(t, page).Samples), len(fixture(t, name).Samples); got != want {
			t.Errorf("%s: %d of %d samples are in the page", name, got, want)
		}
		if void := strings.Contains(page, ">VOID<"); void != (name == "void") {
			t.Errorf("%s: void %v", name, void)
		}
	}
}

// TestOrder: whether it may be believed stands before what was measured, and
// that before everything else.
// TestWidth: however many metrics there are, no table of them has more columns
// than fit beside each other, and none is missing.
func TestWidth(t *testing.T) {
	res := &record.Result{Name: "many", Arms: []record.Arm{{Name: "a"}}, Workloads: []record.Workload{{Name: "w"}}}
	sample := record.Sample{Arm: "a", Workload: "w", Values: map[string]float64{}}
	const metrics = 2*maxPageMetrics + 1
	for i := range metrics {
		key := fmt.Sprintf("metric-%d-", i)
		res.Metrics = append(res.Metrics, record.Metric{Key: key, Name: key})
		sample.Values[key] = float64(i)
	}
	res.Samples = []record.Sample{sample}
	page := pageOf(t, res)
	_, figures, _ := strings.Cut(page, `<section id="figures">`)
	figures, _, _ = strings.Cut(figures, "</section>")
	tables := strings.Split(figures, "<thead>")[1:]
	if len(tables) != 3 {
		t.Fatalf("%d tables", len(tables))
	}
	for i, table := range tables {
		head, body, _ := strings.Cut(table, "</thead>")
		columns := strings.Count(head, "<th")
		if columns > maxPageMetrics+2 || strings.Count(body, "<t")-strings.Count(body, "<tr")-strings.Count(body, "<tbody") < columns {
			t.Errorf("table %d has %d columns: %s", i, columns, body)
		}
	}
	for _, m := range res.Metrics {
		if !strings.Contains(figures, m.Name) {
			t.Errorf("%s is missing", m.Name)
		}
	}
	if !strings.Contains(figures, "w, continued") {
		t.Error("the second table does not say what it continues")
	}
}

func TestOrder(t *testing.T) {
	res := fixture(t, "void")
	res.Interrupted = "Ctrl-C"
	page := pageOf(t, res)
	last := 0
	for _, part := range []string{"<h1>", ">VOID<", "Interrupted:", ">Claimed<", ">Measured<", `id="verdicts"`, `id="figures"`, `id="checks"`, `id="plan"`, `id="machine"`, `id="data"`} {
		at := strings.Index(page, part)
		if at < last {
			t.Errorf("%q stands at %d, after what shall follow it at %d", part, at, last)
		}
		last = at
	}
}

// TestSize: at most 400 KB, whatever the run.
func TestSize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<&\"'>long name ", 200)
	points := make([][2]float64, 2000)
	for i := range points {
		points[i] = [2]float64{float64(i) + 0.123456789, float64(i*7919%1000) + 0.987654321}
	}
	for name, grow := range map[string]func(*record.Result){
		"points": func(r *record.Result) {
			for range 8 {
				c := r.Charts[0]
				for i := range 4 {
					c.Series = append(c.Series, record.Series{Name: fmt.Sprint(i), Points: points})
				}
				r.Charts = append(r.Charts, c)
			}
		},
		"samples": func(r *record.Result) {
			for i := range 6000 {
				s := r.Samples[0]
				s.Block = i
				r.Samples = append(r.Samples, s)
			}
		},
		"arms and verdicts": func(r *record.Result) {
			for i := range 150 {
				a := r.Arms[0]
				a.Name = fmt.Sprint("arm", i)
				r.Arms = append(r.Arms, a)
				for range 8 {
					v := record.Verdict{Workload: "load", Metric: "cpu_ns", Arm: a.Name, Baseline: "target", Outcome: record.Better, Ratio: 0.5, Low: 0.4, High: 0.6, Sentence: long}
					r.Verdicts = append(r.Verdicts, v)
				}
			}
		},
		"texts": func(r *record.Result) {
			r.Title, r.Claim, r.Question, r.Rule = long, long, long, long
			for range 60 {
				r.Notes = append(r.Notes, long)
				r.Gates = append(r.Gates, record.Gate{Name: long, Status: record.Failed, Limit: long, Detail: long})
				r.Command = append(r.Command, long)
				r.Machine.Tools = append(r.Machine.Tools, long)
				r.Arms[0].Command = append(r.Arms[0].Command, long)
			}
		},
		"tables": func(r *record.Result) {
			table := record.Table{Title: long[:2000], Columns: make([]string, 40)}
			for i := range table.Columns {
				table.Columns[i] = long[:60]
			}
			for range 60 {
				table.Rows = append(table.Rows, table.Columns)
			}
			for range 10 {
				r.Tables = append(r.Tables, table)
			}
		},
	} {
		res := fixture(t, "load")
		grow(res)
		page := pageOf(t, res)
		if !strings.Contains(page, "within this page is thinned") {
			t.Errorf("%s: the page does not say that it is thinned", name)
		}
		if name == "texts" && !strings.Contains(page, ">VOID<") {
			t.Error("a failed check was cut away")
		}
	}
}

// TestThinKeepsFailures: a list that is cut keeps what failed.
func TestThinKeepsFailures(t *testing.T) {
	res := fixture(t, "compare")
	for range 200 {
		res.Gates = append(res.Gates, record.Gate{Name: "g", Status: record.Passed})
	}
	res.Gates = append(res.Gates, record.Gate{Name: "last", Status: record.Failed})
	small, notes := reduced(res, reductions[len(reductions)-1])
	if !small.Void() || len(small.Gates) != 24 {
		t.Errorf("%d checks are left, void %v", len(small.Gates), small.Void())
	}
	if len(notes) != 1 || notes[0] != "184 checks" {
		t.Errorf("left out: %q", notes)
	}
	if len(res.Gates) != 208 {
		t.Error("the result itself was changed")
	}
}

func TestRawData(t *testing.T) {
	res := fixture(t, "load")
	for _, room := range []int{100_000, 20_000, 8_000, 3_000, 10} {
		raw, whole := rawData(res, res, room)
		if len(raw) > max(room, 2) || !json.Valid([]byte(raw)) {
			t.Errorf("%d bytes in %d", len(raw), room)
		}
		if whole != (room == 100_000) {
			t.Errorf("whole in %d bytes: %v", room, whole)
		}
		if strings.ContainsAny(string(raw), "<>&") {
			t.Error("the raw data is not escaped")
		}
	}
}
