package cache

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/gate"
	"millrace/lab/load"
	"millrace/lab/record"
)

// report adds tables, charts and sentences to the result. It is called once,
// with whatever was measured.
func (r *cacheRun) report() {
	r.nameMetrics()
	r.res.Answer = answerSentence(r.runs)
	r.res.Tables = append(r.res.Tables, publishedTable())
	if t := coldTable(r.runPlan, coldLoad, r.runs); len(t.Rows) > 0 {
		t.Lead = true
		r.res.Tables = append(r.res.Tables, t)
	}
	if t := coldTable(r.runPlan, errorLoad, r.runs); len(t.Rows) > 0 {
		r.res.Tables = append(r.res.Tables, t)
	}
	if t := hotTable(r.res.Samples); len(t.Rows) > 0 {
		r.res.Tables = append(r.res.Tables, t)
	}
	if len(r.sub) > 0 {
		r.res.Tables = append(r.res.Tables, semanticsTable(r.sub))
	}
	r.res.Charts = append(r.res.Charts, coldCharts(r.runs)...)
	for _, f := range r.runs {
		wrong, checked := f.wrong()
		first := cmp.Or(f.during.first, f.after.first)
		if wrong > 0 {
			r.Note("%s served %d wrong answers of %d that were looked at in the workload %s: %s", f.arm, wrong, checked, f.workload, first)
		}
	}
}

// nameMetrics lists what the samples have, and marks what decides.
func (r *cacheRun) nameMetrics() {
	decides := map[string]bool{}
	for _, m := range r.res.Metrics {
		decides[m.Key] = m.Decides
	}
	own := map[string]record.Metric{}
	for _, m := range ownMetrics() {
		own[m.Key] = m
	}
	r.res.Metrics = gate.Measured(r.res.Samples)
	for i, m := range r.res.Metrics {
		if o, ok := own[m.Key]; ok {
			r.res.Metrics[i] = o
		}
		r.res.Metrics[i].Decides = decides[m.Key]
	}
}

// inOrder are the findings of a workload as the arms are listed.
func inOrder(runs []loadFinding, workload string) []*loadFinding {
	order := []string{directArm, "flask-1", "flask-4", "sanic-1", "sanic-4", baselineArm, "nginx", millraceName}
	var out []*loadFinding
	for i := range runs {
		if runs[i].workload == workload && runs[i].result != nil {
			out = append(out, &runs[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *loadFinding) int {
		return slices.Index(order, a.arm) - slices.Index(order, b.arm)
	})
	return out
}

// coldTable is the published table with the columns that it lacked.
func coldTable(p runPlan, workload string, runs []loadFinding) record.Table {
	t := record.Table{
		Title: "From an empty cache, " + p.cold.String(),
		About: fmt.Sprintf("%d clients, %d URLs, each asking as soon as it is answered; the API takes 104 ms for one answer at a time. "+
			"Waiting: requests without an answer when the load ended. Wrong: of the answers whose bodies were looked at.", clientsAtOnce, urlCount),
		Columns: []string{
			"arm", "min > mean > max", "requests", "over 10 s", "failed", "waiting", "wrong answers", "asked the API", "CPU", "CPU each",
		},
	}
	if workload == errorLoad {
		t.Title = "With 5 % errors, " + p.errors.String()
		t.About = "The same, and 5 % of the API's answers are a 500. To pass it on is failed; to serve it as 200 is wrong."
	}
	for _, f := range inOrder(runs, workload) {
		got := f.result
		t.Rows = append(t.Rows, []string{
			f.arm, threeLatencies(&got.Latency),
			strconv.FormatUint(got.Requests, 10), strconv.FormatUint(slower(&got.Latency, slowAnswer), 10), strconv.FormatUint(failures(got), 10),
			strconv.FormatUint(got.Unanswered, 10), wrongText(f.wrong()), strconv.FormatUint(f.asked.Requests, 10),
			experiment.Known(f.values["cpu_share"], func(v float64) string { return fmt.Sprintf("%.1f %%", v*100) }), experiment.Known(f.values["cpu_ns"], experiment.Duration),
		})
	}
	return t
}

// threeLatencies is how the published comparison writes them.
func threeLatencies(h *load.Histogram) string {
	if h.Count() == 0 {
		return "–"
	}
	return fmt.Sprintf("%s > %s > %s ms", ms(h.Min()), ms(h.Mean()), ms(h.Max()))
}

// ms is a duration in milliseconds, without digits that say nothing.
func ms[D ~int64](d D) string {
	v := float64(d) / 1e6
	if v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// hotTable are the medians of the full caches.
func hotTable(samples []record.Sample) record.Table {
	t := record.Table{
		Title: "With a full cache", About: "Medians over the blocks. The generator has the same cores as the service.",
		Columns: []string{"arm", "requests/s", "CPU each", "p50", "p99", "errors", "memory", "blocks"},
	}
	byArm := map[string]map[string][]float64{}
	var arms []string
	for _, s := range samples {
		if s.Workload != hotLoad {
			continue
		}
		if byArm[s.Arm] == nil {
			byArm[s.Arm] = map[string][]float64{}
			arms = append(arms, s.Arm)
		}
		for key, v := range s.Values {
			byArm[s.Arm][key] = append(byArm[s.Arm][key], v)
		}
	}
	slices.SortFunc(arms, func(a, b string) int {
		return cmp.Compare(experiment.Median(byArm[a]["cpu_ns"]), experiment.Median(byArm[b]["cpu_ns"]))
	})
	for _, arm := range arms {
		of := func(key string) float64 { return experiment.Median(byArm[arm][key]) }
		t.Rows = append(t.Rows, []string{
			arm, strconv.FormatFloat(of("requests_per_second"), 'f', 0, 64), experiment.Known(of("cpu_ns"), experiment.Duration),
			experiment.Known(of("latency_p50_ns"), experiment.Duration), experiment.Known(of("latency_p99_ns"), experiment.Duration), strconv.FormatFloat(of("errors"), 'f', 0, 64),
			experiment.Known(of("rss_bytes"), experiment.Bytes),
			strconv.Itoa(len(byArm[arm]["requests_per_second"])),
		})
	}
	return t
}

func semanticsTable(found []semanticsFinding) record.Table {
	t := record.Table{
		Title: "What the caches do where a load does not show it",
		About: "Stampede: that many clients ask at once for what nobody asked for before. Expired: the API has a new answer by then. " +
			"API gone: what is served that is young enough, too old, or was never asked for. The expiry is 2 s here.",
		Columns: []string{"arm", "stampede reaches the API", "right answers", "expired", "API gone: young", "too old", "unknown", "wrong"},
	}
	for _, s := range found {
		wrong := "none"
		if s.wrong {
			wrong = "yes"
		}
		t.Rows = append(t.Rows, []string{
			s.arm, fmt.Sprintf("%d of %d", s.reached, s.stampede), strconv.Itoa(s.right),
			s.expiry, cmp.Or(s.young, "–"), cmp.Or(s.old, "–"), cmp.Or(s.unseen, "–"), wrong,
		})
	}
	return t
}

// publishedTable is what the figures are held against.
func publishedTable() record.Table {
	return record.Table{
		Title:   "Published",
		Lead:    true,
		About:   "On the author's machines, over a network, one run of a minute each. CPU of the proxy: 30 % before, 7 % with Go.",
		Columns: []string{"arm", "min > mean > max", "requests", "over 10 s"},
		Rows: [][]string{
			{"Flask", "104 > 4194 > 32000 ms", "4043", "326"},
			{"Sanic + cache, 4 workers", "81 > 1152 > 12408 ms", "13558", "210"},
			{"Sanic + cache, 1 worker", "81 > 1367 > 18869 ms", "11589", "171"},
			{"Go + go-cache", "80 > 341 > 6745 ms", "14663", "175"},
		},
	}
}

// coldCharts are the course of the cold load: how much is answered while the
// cache fills, and how the latencies are spread.
func coldCharts(runs []loadFinding) []record.Chart {
	rate := record.Chart{
		Title: "Answers while the cache fills", Lead: true, About: "A cache that asks the API once for each URL is full after 42 s.",
		X: record.Axis{Name: "time", Unit: "s"}, Y: record.Axis{Name: "answers", Unit: "1/s", Log: true},
	}
	spread := record.Chart{
		Title: "Latency from an empty cache", Lead: true, X: record.Axis{Name: "share of requests", Unit: "%"},
		Y: record.Axis{Name: "latency", Unit: "ns", Log: true},
	}
	for _, f := range inOrder(runs, coldLoad) {
		rate.Series = append(rate.Series, record.Series{Name: f.arm, Points: ratePoints(f.result.Ticks)})
		points := f.result.Latency.Points(60)
		for i := range points {
			points[i][0] *= 100
		}
		spread.Series = append(spread.Series, record.Series{Name: f.arm, Points: points})
	}
	if len(rate.Series) == 0 {
		return nil
	}
	return []record.Chart{rate, spread}
}

// ratePoints are the answers per second of each whole second or so: four ticks
// together, as most single ones have none while the API is all there is.
func ratePoints(ticks []load.Tick) [][2]float64 {
	const together = 4
	var points [][2]float64
	for group := range slices.Chunk(ticks, together) {
		var requests, seconds float64
		for _, k := range group {
			requests += float64(k.Requests)
			seconds += k.Length.Seconds()
		}
		if last := group[len(group)-1]; requests > 0 && seconds > 0 && last.At > 0 {
			points = append(points, [2]float64{last.At.Seconds(), requests / seconds})
		}
	}
	return points
}
