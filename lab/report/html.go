package report

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"millrace/internal/ops/chart"
	"millrace/lab/record"
)

//go:embed page.html page.css page.js
var pageFiles embed.FS

// maxPage is how large a page may be, in bytes, whatever was measured: it is to
// be sent by mail and opened on a telephone.
const maxPage = 400_000

// rawShare is how much of a page is left to the raw data at least.
const rawShare = 120_000

// HTML writes a result as one page that needs nothing else: no network, no
// script to be read, at most 400 KB. Where a result is too large for that, lines
// get fewer points (spikes stay), raw samples are thinned, and at last lists are
// cut; the page says which.
func HTML(w io.Writer, res *record.Result) error {
	res = cleaned(res)
	var page []byte
	for level := range reductions {
		if reductions[level].arms == 0 && weight(res) > 2*maxPage {
			continue
		}
		small, notes := reduced(res, reductions[level])
		p, err := newPage(small, reductions[level])
		if err != nil {
			return err
		}
		p.Thinned = notes
		if page, err = p.render(); err != nil {
			return err
		}
		if room := maxPage - len(page); room < rawShare && level < len(reductions)-1 {
			continue
		}
		var whole bool
		p.Raw, whole = rawData(res, small, maxPage-len(page)-1000)
		if !whole {
			p.RawThinned = true
		}
		if page, err = p.render(); err != nil {
			return err
		}
		break
	}
	if len(page) > maxPage {
		return fmt.Errorf("the page has %d KB, more than the %d it may have", len(page)/1000, maxPage/1000)
	}
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// unitGap is the space between a figure and its unit, where no line may end.
var unitGap = regexp.MustCompile(`(\d) (%|/s|[kM]/s|[µmn]?s\b|[KMGT]?i?B\b)`)

// A page is what the template shows.
type page struct {
	*record.Result
	Policy     string // Content-Security-Policy: only what stands in the page itself
	CSS        template.CSS
	JS         template.JS
	Raw        template.JS // JSON
	RawThinned bool
	Slug       string
	Thinned    []string

	Kicker   []string // what kind of measurement, when, by whom
	Failed   []record.Gate
	Claimed  string
	Findings []finding
	More     int
	Unjudged string
	// Highlights are the figures of a load, which has no verdicts.
	Highlights [][2]string

	Intervals []picture
	Verdicts  []verdictRow
	Baseline  string // of all verdicts; empty where there are several
	Medians   []medianTable
	Checks    []record.Gate
	Facts     [][2]string

	// Those that lead stand right below the answer.
	LeadTables, MoreTables []table
	LeadCharts, MoreCharts []picture
}

// A picture is a chart in two widths, of which the page shows one.
type picture struct {
	Title, About string
	Index        int // of the chart in the raw data
	Wide, Small  template.HTML
}

type verdictRow struct {
	record.Verdict
	Name          string // of the metric
	Change, Range string
	PText, Words  string
	Sign          string
	Placebo       bool
}

type table struct {
	record.Table
	Right []bool
	Wide  bool
}

// maxPageMetrics is how many metrics stand beside each other on a page: as many
// as fit into 1200 pixels.
const maxPageMetrics = 12

// splitWide divides tables with more metrics than fit beside each other.
func splitWide(tables []medianTable) []medianTable {
	var out []medianTable
	for _, t := range tables {
		for from := 0; from < len(t.Metrics); from += maxPageMetrics {
			to := min(from+maxPageMetrics, len(t.Metrics))
			part := medianTable{Workload: t.Workload, Metrics: t.Metrics[from:to]}
			if from > 0 {
				part.Workload = record.Workload{Name: t.Workload.Name + ", continued"}
			}
			for _, r := range t.Rows {
				r.Values = r.Values[from:to]
				part.Rows = append(part.Rows, r)
			}
			out = append(out, part)
		}
	}
	return out
}

func newPage(res *record.Result, t reduction) (*page, error) {
	p := &page{
		Result: res, Slug: slug(res.Name, "result"), Kicker: kicker(res), Claimed: strings.TrimSpace(res.Claim),
		Findings: findings(res), Medians: splitWide(medians(res)), Checks: gatesByUrgency(res.Gates), Facts: facts(res),
	}
	for _, g := range res.Gates {
		if g.Status == record.Failed {
			p.Failed = append(p.Failed, g)
		}
	}
	if len(p.Findings) == 0 {
		p.Unjudged = oneLine(unjudged(res))
		if res.Kind == record.KindLoad && len(res.Samples) > 0 {
			p.Highlights, p.Unjudged = highlights(res), "one target alone proves no difference, so there is no verdict"
		}
	}
	if len(p.Findings) > maxFindings {
		p.More = len(p.Findings) - maxFindings
		p.Findings = p.Findings[:maxFindings]
	}
	isPlacebo := placebos(res)
	for i, v := range res.Verdicts {
		if i == 0 {
			p.Baseline = v.Baseline
		} else if p.Baseline != v.Baseline {
			p.Baseline = ""
		}
		change, interval := effect(v)
		p.Verdicts = append(p.Verdicts, verdictRow{
			Verdict: v, Name: metricOf(res, v.Metric).Name, Change: change, Range: interval,
			PText: pValue(v.P), Words: outcomeWords(v), Sign: sign(v.Outcome), Placebo: isPlacebo[v.Arm],
		})
	}
	const wideFrom = 5 // columns: such tables get the whole width
	for _, t := range res.Tables {
		to := &p.MoreTables
		if t.Lead {
			to = &p.LeadTables
		}
		*to = append(*to, table{t, figureColumns(len(t.Columns), t.Rows), len(t.Columns) >= wideFrom || longCells(t)})
	}
	return p, p.draw(res, t)
}

// longCells reports whether a table holds texts, not figures.
func longCells(t record.Table) bool {
	total := 0
	for i := range t.Columns {
		longest := len(t.Columns[i])
		for _, row := range t.Rows {
			if i < len(row) {
				longest = max(longest, len(row[i]))
			}
		}
		total += longest + 2
	}
	return total > 64
}

func kicker(res *record.Result) []string {
	k := []string{"millrace lab"}
	if res.Kind == record.KindExperiment {
		k = append(k, "experiment "+res.Name)
	} else {
		k = append(k, string(res.Kind))
	}
	if res.Mode != "" {
		k = append(k, string(res.Mode))
	}
	return append(k, res.Started.UTC().Format("2 January 2006, 15:04 MST"))
}

// The widths of pictures, in CSS pixels: for pages wider and narrower than the
// style sheet's breakpoint.
const (
	wideIntervals  = 900
	smallIntervals = 360
	wideLines      = 520
	wideHeight     = 250
	smallLines     = 340
	smallHeight    = 230
)

// draw makes the pictures.
func (p *page) draw(res *record.Result, t reduction) error {
	for _, v := range intervalPlots(res) {
		pic, err := draw(v.Title, "", v.SVG, chart.Size{Width: wideIntervals}, chart.Size{Width: smallIntervals})
		if err != nil {
			return err
		}
		p.Intervals = append(p.Intervals, pic)
	}
	for i, c := range res.Charts {
		l := lineOf(c)
		for k := range l.Series {
			l.Series[k].Points = chart.Downsample(l.Series[k].Points, t.points)
		}
		small := chart.Size{Width: smallLines, Height: smallHeight}
		if t.wideOnly {
			small = chart.Size{}
		}
		pic, err := draw(c.Title, c.About, l.SVG, chart.Size{Width: wideLines, Height: wideHeight}, small)
		if err != nil {
			return err
		}
		pic.Index = i
		to := &p.MoreCharts
		if c.Lead {
			to = &p.LeadCharts
		}
		*to = append(*to, pic)
	}
	return nil
}

// draw draws a picture in two sizes; a small one of zero is left out.
func draw(title, about string, svg func(io.Writer, chart.Size) error, wide, small chart.Size) (picture, error) {
	pic := picture{Title: title, About: about}
	for _, s := range []struct {
		size chart.Size
		to   *template.HTML
	}{{wide, &pic.Wide}, {small, &pic.Small}} {
		if s.size.Width == 0 {
			continue
		}
		var b bytes.Buffer
		if err := svg(&b, s.size); err != nil {
			return pic, fmt.Errorf("drawing %q: %w", title, err)
		}
		*s.to = template.HTML(b.String()) // chart escapes all texts
	}
	return pic, nil
}

// intervalPlots are one plot for each metric with verdicts, with a group of rows
// for each workload.
func intervalPlots(res *record.Result) []*chart.Intervals {
	marks := map[record.Outcome]chart.Mark{record.Better: chart.Good, record.Worse: chart.Bad, record.Equal: chart.Same, record.Undecided: chart.Open}
	var plots []*chart.Intervals
	for _, m := range res.Metrics {
		plot := &chart.Intervals{Title: capital(m.Name), About: "change against the baseline, with its interval"}
		hint := "← less is better"
		if m.Higher {
			hint = "more is better →"
		}
		for _, w := range res.Workloads {
			for _, v := range byBaseline(res.Verdicts) {
				if v.Metric != m.Key || v.Workload != w.Name {
					continue
				}
				plot.Delta = max(plot.Delta, v.Delta)
				plot.Rows = append(plot.Rows, chart.Interval{
					Group: w.Name + ", against " + v.Baseline, Hint: hint, Label: v.Arm, Ratio: v.Ratio, Low: v.Low, High: v.High,
					Mark: marks[v.Outcome], Verdict: string(v.Outcome), Tooltip: v.Sentence,
				})
			}
		}
		if len(plot.Rows) > 0 {
			plots = append(plots, plot)
		}
	}
	return plots
}

// byBaseline are verdicts with those against one baseline together, baselines in
// the order in which they first stand there: each has one heading.
func byBaseline(verdicts []record.Verdict) []record.Verdict {
	place := map[string]int{}
	for _, v := range verdicts {
		if _, ok := place[v.Baseline]; !ok {
			place[v.Baseline] = len(place)
		}
	}
	verdicts = slices.Clone(verdicts)
	slices.SortStableFunc(verdicts, func(a, b record.Verdict) int { return place[a.Baseline] - place[b.Baseline] })
	return verdicts
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// render fills the template in.
func (p *page) render() ([]byte, error) {
	css, cssErr := pageFiles.ReadFile("page.css")
	js, jsErr := pageFiles.ReadFile("page.js")
	if err := errors.Join(cssErr, jsErr); err != nil {
		return nil, fmt.Errorf("reading the page's own files: %w", err)
	}
	p.CSS, p.JS = template.CSS(css), template.JS(js) // our own, embedded
	// The browser runs this script and no other, whatever got into the page.
	hash := sha256.Sum256(js)
	p.Policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; base-uri 'none'; form-action 'none'"
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"figure":   chart.Figure,
		"command":  commandLine,
		"gateSign": gateSign,
		"capital":  capital,
		"count":    count,
		"number":   number,
		"exact":    func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }, // to sort by
		"bytes":    func(n int64) string { return chart.Figure(float64(n), "bytes") },
		"at":       func(list []bool, i int) bool { return i < len(list) && list[i] },
		"keep":     func(s string) string { return unitGap.ReplaceAllString(s, "$1\u00a0$2") }, // on one line
	}).ParseFS(pageFiles, "page.html")
	if err != nil {
		return nil, fmt.Errorf("reading the page's template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("filling the page in: %w", err)
	}
	return bytes.Map(visible, b.Bytes()), nil
}

// visible replaces what could not be seen in a page or would turn its text
// around: control characters and marks of direction.
func visible(r rune) rune {
	switch {
	case r == '\n', r == '\t':
		return r
	case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return '\ufffd'
	}
	return r
}
