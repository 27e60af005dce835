package report

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/chart"
	"millrace/lab/result"
)

// markup is HTML: texts of others in it are escaped already.
type markup string

// A writer writes the page: render puts its parts together.
//
// It is code instead of a template, since html/template looks methods up by
// their names, and a program with such a look-up keeps every exported method of
// every type: it was 14 MB of 55 (decision 37).
type writer struct{ b bytes.Buffer }

// put writes HTML. Each %s is escaped, unless it is markup; the format is ours.
func (w *writer) put(format string, args ...any) {
	safe := slices.Clone(args)
	for i, a := range args {
		if _, ok := a.(markup); !ok {
			safe[i] = html.EscapeString(fmt.Sprint(a))
		}
	}
	fmt.Fprintf(&w.b, format, safe...)
}

// maybe writes HTML around a text, nothing if there is none.
func (w *writer) maybe(format, text string) {
	if text != "" {
		w.put(format, text)
	}
}

// class is an attribute, or nothing.
func class(name string, set bool) markup {
	if !set {
		return ""
	}
	return markup(` class="` + name + `"`)
}

// keep leaves figures and their units on one line.
func keep(s string) string { return unitGap.ReplaceAllString(s, "$1\u00a0$2") }

// exact is a figure to sort by.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func (w *writer) head(p *page) {
	void := ""
	if len(p.Failed) > 0 {
		void = "VOID: "
	}
	w.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s%s</title>
<style>%s</style>
</head>
<body%s>
<header>
<p class="kicker">`, p.Policy, void, p.Title, p.CSS, class("is-void", void != ""))
	for i, k := range p.Kicker {
		if i > 0 {
			w.put(" <span>·</span> ")
		}
		w.put("%s", k)
	}
	w.put("</p>\n<h1>%s</h1>\n</header>\n", p.Title)
	if void != "" {
		w.void(p.Failed)
	}
	w.maybe(`<p class="cut" role="alert"><b>Interrupted:</b> %s. What was measured until then is below.</p>`, p.Interrupted)
}

// void says that the measurement proves nothing.
func (w *writer) void(failed []result.Gate) {
	checks := "a check"
	if len(failed) > 1 {
		checks = fmt.Sprintf("%d checks", len(failed))
	}
	w.put(`<section class="stamp" role="alert">
<p class="word">VOID</p>
<div><p>No figure on this page proves anything: %s of the measurement itself failed.</p>
<ul>`, checks)
	for _, g := range failed {
		w.put("<li><b>%s</b>", g.Name)
		w.maybe(": %s", g.Detail)
		w.maybe(` <span class="quiet">(allowed: %s)</span>`, g.Limit)
		w.put("</li>")
	}
	w.put("</ul></div>\n</section>")
}

// story is the answer, and what was claimed and measured.
func (w *writer) story(p *page) {
	w.maybe("<p class=\"answer\">%s.</p>\n", keep(p.Answer))
	if p.Opens {
		w.put(`<section class="opening grid">`)
		w.tables(p.Tables, true)
		w.charts(p.Charts, true)
		w.put("</section>")
	}
	w.put("\n<section class=\"story\">\n")
	w.maybe(`<div class="part claim"><h2>Claimed</h2><p>%s</p></div>`, keep(p.Claimed))
	w.put("\n<div class=\"part\"><h2>Measured</h2>\n")
	if len(p.Findings) > 0 {
		w.findings(p)
	} else {
		quiet := "lead"
		if len(p.Highlights) > 0 {
			quiet = "quiet"
			w.put(`<dl class="stats">`)
			for _, h := range p.Highlights {
				w.put("<div><dt>%s</dt><dd>%s</dd></div>", h[0], keep(h[1]))
			}
			w.put("</dl>")
		}
		w.put(`<p class="%s">%s.</p>`, quiet, capital(p.Unjudged))
	}
	w.put("</div>\n</section>\n")
}

func (w *writer) findings(p *page) {
	w.put(`<ul class="findings">`)
	for _, f := range p.Findings {
		w.put("\n"+`<li><p><b class="change">%s</b> %s <span class="interval">%s</span> for <b class="name">%s</b> against <span class="name">%s</span>`,
			keep(f.Change()), f.Main.Name, keep(f.Range()), f.Arm, f.Baseline)
		if len(p.Workloads) > 1 {
			w.put(` on <span class="name">%s</span>`, f.Workload)
		}
		w.put(`; <span class="nowrap">verdict: <b class="verdict %s"><span class="sign">%s</span> %s</b></span>%s.</p>`+"\n",
			f.Outcome, f.Sign(), f.Outcome, keep(f.Rest()))
		var others []string
		for _, o := range f.Others {
			others = append(others, keep(o.String()))
		}
		w.maybe(`<p class="others">%s.</p>`, strings.Join(others, "; "))
		w.put("</li>")
	}
	w.put("\n</ul>")
	if p.More > 0 {
		w.put(`<p class="quiet">And %s in the table below.</p>`, count(p.More, "more verdict", "more verdicts"))
	}
	w.put("\n")
}

func (w *writer) nav(p *page) {
	w.put(`<nav aria-label="Parts of this report">`)
	for _, part := range []struct {
		id, title string
		there     bool
	}{
		{"verdicts", "Verdicts", len(p.Verdicts) > 0},
		{"figures", "Figures", len(p.Medians) > 0},
		{"tables", "Tables", p.MoreTables()},
		{"charts", "Charts", p.MoreCharts()},
		{"checks", "Checks", len(p.Checks) > 0},
		{"plan", "Plan", true},
		{"machine", "Machine", true},
		{"notes", "Notes", len(p.Notes) > 0},
		{"data", "Data", true},
	} {
		if part.there {
			w.put(`<a href="#%s">%s</a>`, part.id, part.title)
		}
	}
	w.put("</nav>\n")
}

func (w *writer) verdicts(p *page) {
	if len(p.Verdicts) == 0 {
		return
	}
	w.put("<section id=\"verdicts\">\n<h2>Verdicts</h2>\n")
	for _, c := range p.Intervals {
		w.put(`<figure class="intervals"><figcaption><h3>%s</h3></figcaption>
<div class="wide">%s</div><div class="narrow">%s</div></figure>
`, c.Title, c.Wide, c.Narrow)
	}
	w.put(`<p class="legend"><span class="better">●</span> better <span class="worse">◆</span> worse <span class="equal">■</span> equal within the band <span class="undecided">○</span> undecided. The bar is the interval; the line stands at “no change”.</p>
<div class="scroll"><table class="sortable">
<thead><tr><th>arm</th>`)
	if p.Baseline == "" {
		w.put("<th>against</th>")
	}
	if len(p.Workloads) > 1 {
		w.put("<th>workload</th>")
	}
	w.put(`<th>metric</th><th class="r">change</th><th class="r">interval</th><th class="r">p</th><th class="r">blocks</th><th>verdict</th></tr></thead>` + "\n<tbody>")
	for _, v := range p.Verdicts {
		w.put("\n<tr%s", class("placebo", v.Placebo))
		w.maybe(` title="%s"`, v.Sentence)
		w.put(`><th scope="row">%s</th>`, v.Arm)
		if p.Baseline == "" {
			w.put("<td>%s</td>", v.Baseline)
		}
		if len(p.Workloads) > 1 {
			w.put("<td>%s</td>", v.Workload)
		}
		w.put(`<td>%s</td><td class="r" data-v="%s">%s</td><td class="r" data-v="%s">%s</td><td class="r" data-v="%s">%s</td><td class="r">%s</td>`,
			v.Name, exact(v.Ratio), v.Change, exact(v.Low), v.Range, exact(v.P), v.PText, v.Blocks)
		w.put(`<td><span class="verdict %s"><span class="sign">%s</span> %s</span></td></tr>`, v.Outcome, v.Sign, v.Words)
	}
	w.put("\n</tbody></table></div>\n" + `<p class="quiet below">`)
	w.maybe("Changes are against %s. ", p.Baseline)
	w.put("p is of the sign-flip permutation test, adjusted for all verdicts together. A placebo arm is a second instance of another: it should come out equal or undecided.</p>\n</section>")
}

func (w *writer) medians(p *page) {
	w.put("\n")
	if len(p.Medians) == 0 {
		return
	}
	w.put("<section id=\"figures\">\n<h2>")
	if len(p.Verdicts) > 0 {
		w.put("What each arm measured</h2>\n" + `<p class="quiet">Medians of all samples. What is compared are the ratios within each block of time, not these figures.</p>`)
	} else {
		w.put("Figures</h2>")
	}
	w.put("\n")
	for _, t := range p.Medians {
		w.put("<h3>%s", t.Workload.Name)
		w.maybe(` <span class="quiet">%s</span>`, t.Workload.About)
		w.put("</h3>\n<div class=\"scroll\"><table class=\"sortable\">\n<thead><tr><th>arm</th>")
		for _, m := range t.Metrics {
			w.put(`<th class="r"`)
			w.maybe(` title="%s"`, m.About)
			w.put(">%s</th>", m.Name)
		}
		w.put(`<th class="r">samples</th></tr></thead>` + "\n<tbody>")
		for _, row := range t.Rows {
			w.put("\n"+`<tr><th scope="row">%s</th>`, row.Arm)
			for i, m := range t.Metrics {
				w.put(`<td class="r"`)
				if number(row.Values[i]) {
					w.put(` data-v="%s"`, exact(row.Values[i]))
				}
				w.put(">%s</td>", chart.Figure(row.Values[i], m.Unit))
			}
			w.put(`<td class="r">%s</td></tr>`, row.Samples)
		}
		w.put("\n</tbody></table></div>\n")
	}
	w.put("</section>")
}

// tables writes those that stand below the answer, or the others.
func (w *writer) tables(tables []table, lead bool) {
	for _, t := range tables {
		if t.Lead == lead {
			w.table(t)
		}
	}
}

func (w *writer) table(t table) {
	right := func(i int) markup { return class("r", i < len(t.Right) && t.Right[i]) }
	full := markup("")
	if t.Wide {
		full = " full"
	}
	w.put(`<div class="cell%s"><h3>%s</h3>`, full, t.Title)
	w.maybe(`<p class="quiet">%s</p>`, t.About)
	w.put("\n<div class=\"scroll\"><table class=\"sortable\">\n<thead><tr>")
	for i, c := range t.Columns {
		w.put("<th%s>%s</th>", right(i), c)
	}
	w.put("</tr></thead>\n<tbody>")
	for _, row := range t.Rows {
		w.put("\n<tr>")
		for i, c := range row {
			w.put("<td%s>%s</td>", right(i), c)
		}
		w.put("</tr>")
	}
	w.put("\n</tbody></table></div></div>\n")
}

// charts is tables for charts.
func (w *writer) charts(charts []picture, lead bool) {
	for i, c := range charts {
		if c.Lead != lead {
			continue
		}
		one := markup("")
		if c.Narrow == "" {
			one = " one"
		}
		w.put(`<figure class="cell lines%s" data-chart="%s"><figcaption><h3>%s</h3>`, one, i, c.Title)
		w.maybe(`<p class="quiet">%s</p>`, c.About)
		w.put("</figcaption>\n"+`<div class="wide">%s</div>`, c.Wide)
		if c.Narrow != "" {
			w.put(`<div class="narrow">%s</div>`, c.Narrow)
		}
		w.put("</figure>\n")
	}
}

// more are the tables and charts that do not stand below the answer.
func (w *writer) more(p *page) {
	w.put("\n")
	if p.MoreTables() {
		w.put("<section id=\"tables\">\n<h2>Tables</h2>\n<div class=\"grid\">")
		w.tables(p.Tables, false)
		w.put("</div></section>")
	}
	w.put("\n")
	if p.MoreCharts() {
		w.put(`<section id="charts">
<h2>Charts</h2>
<p class="quiet script">Point at a line for its figures; drag across a chart to look closer, double-click to go back.</p>
<div class="grid">`)
		w.charts(p.Charts, false)
		w.put("</div></section>")
	}
	w.put("\n")
}
