package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"millrace/bench/subjects/internal/cache"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
	"millrace/bench/subjects/internal/wrk"
)

// The bars: what bench/run cache must show.
const (
	maxSmallHit  = 0.75 // CPU per request, of nginx's and of Varnish's
	maxLargeHit  = 0.9  // of the better peer's
	largeHit     = "json32k"
	maxOfBudget  = 1.3  // memory
	maxGrowth    = 1.05 // of memory, from the first third of the time after the first URLs to the last
	growthParts  = 3
	timelineRows = 12
)

// Cache is CACHE.md of a run of the scenario cache. workloads are the names of
// its workloads in the order of the tables.
func Cache(r *record.Run, workloads []string) string {
	rows := cells(r, workloads)
	w := &writer{}
	w.head(r)
	w.bars(r, rows)
	w.losses(r, rows)
	w.small("Hits", r, rows)
	w.hits(r, rows)
	w.cases(r)
	w.floods(r)
	w.method(
		"Behind the caches is one API, a Go program (subjects/internal/origin). It says `Cache-Control: max-age=600` unless a case needs something else, counts its requests, and its answers follow from the URL, so that a wrong one shows. No cache compresses here: no request accepts it.",
		"Hits: before and after the load, every answer of every cache was compared with the API's byte by byte; a difference ends the run without results. The API's count before and after each slot shows what got through to it.",
		"Cases: one cache after the other, in an order drawn for each run. Clients are goroutines of the harness, with connections opened beforehand; times are from asking to the last byte (or the body's first, where that is said), of the slowest client. Every body is compared. The harness, which is the API too, shares the machine's cores with the cache.",
		"Purge: all answers have one tag. One of them, drawn anew, is asked for five times; the API's answers change; the tag is purged (millrace: `POST /cache/purge` on its admin socket; Varnish: a ban, which it works off later; nginx has none); and it is asked for until the new answer comes. The time is from sending the purge to its answer, and to the new answer.",
		"Memory: a cache of its own with a budget of 256 MiB, asked over 16 connections for URLs that nobody asked for before, first the given number of them and then others for the given time. `/proc/PID/smaps_rollup` of all of its processes, every 0.9 s.",
	)
	w.repeat(r, "nginx-light, varnish and wrk", "DIR: a folder of the server's own, UPSTREAM: the API's port; the configs are [peers/nginx/cache.conf.tmpl](peers/nginx/cache.conf.tmpl) and [peers/varnish/cache.vcl.tmpl](peers/varnish/cache.vcl.tmpl) filled in",
		wrk.Job{URL: "'http://127.0.0.1:PORT/hit?size=40'"})
	return w.String()
}

// cacheBars are all of bench/run cache.
func cacheBars(r *record.Run, rows []record.Cell) []bar {
	var list []bar
	mine := own(false)
	for _, c := range rows {
		if c.Workload == largeHit {
			name, title := betterPeer(r, c)
			list = append(list, bar{
				fmt.Sprintf("CPU per request of the better peer's (%s), %s, %d connections", title, c.Title, c.Connections),
				against(r, mine, name, c, cpuPerRequest), maxLargeHit, false, ratio,
			})
			continue
		}
		for _, peer := range peers(r) {
			list = append(list, bar{
				fmt.Sprintf("CPU per request of %s's, %s, %d connections", peer.Title, c.Title, c.Connections),
				against(r, mine, peer.Name, c, cpuPerRequest), maxSmallHit, false, ratio,
			})
		}
	}
	list = append(list,
		bar{"Failed requests of millrace, hits", failures(r), 0, false, thousands},
		bar{"Requests that reached the API during the hits, of all caches", reached(r), 0, false, thousands})
	for _, f := range caseFigures() {
		if f.limit > 0 {
			list = append(list, bar{f.where + ": " + f.name, f.of(r, mine).summary(), f.limit, false, f.format})
		}
	}
	for _, f := range r.Floods {
		if f.Arm == mine {
			list = append(list,
				bar{fmt.Sprintf("Memory at most, of the budget, %s URLs", thousands(float64(f.URLs))), one(float64(most(f)) / float64(f.Budget)), maxOfBudget, false, ratio},
				bar{fmt.Sprintf("Memory in the last third of the %v after that, of the first third", going(f)), one(growth(f)), maxGrowth, false, ratio})
		}
	}
	return list
}

// one is a figure that was taken once.
func one(v float64) stats.Summary { return stats.Summarise([]float64{v}) }

// peers are the arms of others.
func peers(r *record.Run) []record.Arm {
	return slices.DeleteFunc(slices.Clone(r.Arms), func(a record.Arm) bool { return a.Ours })
}

// betterPeer is the peer whose answers cost least CPU in a cell, in the median.
func betterPeer(r *record.Run, c record.Cell) (name, title string) {
	all := peers(r)
	if len(all) == 0 {
		return "", "none"
	}
	cost := func(a record.Arm) float64 { return smallFigure(r, a.Name, c, cpuPerRequest.small).summary().Median }
	best := slices.MinFunc(all, func(a, b record.Arm) int { return cmp.Compare(cost(a), cost(b)) })
	return best.Name, best.Title
}

// reached is how many requests got through to the API in all slots.
func reached(r *record.Run) stats.Summary {
	if len(r.Small) == 0 {
		return stats.Summarise(nil)
	}
	var n uint64
	for _, s := range r.Small {
		n += s.Upstream
	}
	return one(float64(n))
}

// caseFigure is a value of a case.
type caseFigure struct {
	figure
	where, key string // the case in words; of record.Case.Values
	run        string // of record.Case.Name
	limit      float64
}

// of is the figure of an arm, by the run of the case.
func (f caseFigure) of(r *record.Run, name string) byRound {
	b := byRound{}
	for _, c := range r.Cases {
		if v, ok := c.Values[f.key]; ok && c.Name == f.run && c.Arm == name {
			b[c.Round] = v
		}
	}
	return b
}

// caseFigures are all, in the order of the tables.
func caseFigures() []caseFigure {
	ms := func(name string) figure { return figure{name: name, better: -1, format: milliseconds} }
	count := func(name string) figure { return figure{name: name, better: -1, format: thousands} }
	const (
		cold    = "100 clients, a cold answer of 300 ms"
		private = "50 clients, a `private` answer of 300 ms"
		follow  = "a second client, 0.3 s into an answer that is sent in 1 s"
		stale   = "20 clients, a stale answer, whose refresh takes 300 ms"
		purged  = "a tag of all answers purged"
	)
	return []caseFigure{
		{count("requests to the API"), cold, cache.Asked, cache.Cold, 1},
		{ms("the slowest client"), cold, cache.Slowest, cache.Cold, 350},
		{count("clients without an answer"), cold, cache.Failed, cache.Cold, 0},
		{ms("the slowest client, first wave"), private, cache.Slowest, cache.Private, 650},
		{ms("the slowest client, second wave"), private, cache.Second, cache.Private, 350},
		{count("clients without an answer"), private, cache.Failed, cache.Private, 0},
		{ms("the body's first byte"), follow, cache.First, cache.Follow, 5},
		{count("requests to the API"), follow, cache.Asked, cache.Follow, 1},
		{count("clients without an answer"), follow, cache.Failed, cache.Follow, 0},
		{ms("the slowest client"), stale, cache.Slowest, cache.Stale, 20},
		{count("requests to the API"), stale, cache.Asked, cache.Stale, 1},
		{count("clients without an answer"), stale, cache.Failed, cache.Stale, 0},
		{ms("until the purge is answered"), purged, cache.Purge, cache.Purged, 1},
		{ms("until the new answer is there"), purged, cache.Seen, cache.Purged, 0},
	}
}

// hits shows what got through to the API, and millrace's own counters.
func (w *writer) hits(r *record.Run, rows []record.Cell) {
	w.line("")
	w.line("### What answered them")
	w.line("")
	w.line("By the API's count and by millrace's own; the sum of the rounds, and the least of the lane's shares.")
	w.line("")
	w.line("| where | server | requests | reached the API | answered by the lane |")
	w.line("|---|---|---:|---:|---:|")
	for _, c := range rows {
		for _, a := range r.Arms {
			requests, through, lane := uint64(0), uint64(0), math.NaN()
			for _, s := range smallSlots(r, a.Name, c) {
				requests += s.Wrk.Requests
				through += s.Upstream
				if s.Counts != nil {
					lane = least(lane, float64(s.Counts.Fast)/float64(s.Counts.Fast+s.Counts.Slow))
				}
			}
			if requests > 0 {
				w.line("| %s, %d connections | %s | %s | %d | %s |", c.Title, c.Connections, a.Title, thousands(float64(requests)), through,
					orDash(lane, func(v float64) string { return fmt.Sprintf("%.2f %%", v*100) }))
			}
		}
	}
}

// cases is the table of all cases, with a column for each cache.
func (w *writer) cases(r *record.Run) {
	if len(r.Cases) == 0 {
		return
	}
	w.line("")
	w.line("## Waiting, streaming and purging")
	w.line("")
	w.line("The median of the runs (least–greatest). A dash: it cannot do that.")
	w.line("")
	head, rule := "| case | figure | bar |", "|---|---|---:|"
	for _, a := range r.Arms {
		head += " " + a.Title + " |"
		rule += "---:|"
	}
	w.line("%s", head)
	w.line("%s", rule)
	for _, f := range caseFigures() {
		bound := ""
		if f.limit > 0 {
			bound = "≤ " + f.format(f.limit)
		}
		row := fmt.Sprintf("| %s | %s | %s |", f.where, f.name, bound)
		for _, a := range r.Arms {
			row += " " + span(f.of(r, a.Name).summary(), f.format) + " |"
		}
		w.line("%s", row)
	}
	runs, stored := map[string]int{}, 1.0
	for _, c := range r.Cases {
		runs[c.Name] = max(runs[c.Name], c.Round)
		if share, ok := c.Values[cache.Stored]; ok {
			stored = min(stored, share)
		}
	}
	w.line("")
	w.line("Runs of each case: %d. Purges: %d, of %s answers, %s of which were stored in the cache that had fewest, by a sample.",
		runs[cache.Cold], runs[cache.Purged], thousands(float64(r.Tagged)), percent(stored))
}

var floodMemory = figure{name: "memory at most (RSS)", better: -1, format: func(v float64) string { return fmt.Sprintf("%.1f MB", v) }}

// mostHeld is the most memory of an arm in MB, as a figure of one round.
func mostHeld(r *record.Run, name string) byRound {
	for _, f := range r.Floods {
		if f.Arm == name {
			return byRound{1: float64(most(f)) / 1e6}
		}
	}
	return nil
}

// most is the most memory that was resident at once.
func most(f record.Flood) (bytes uint64) {
	for _, m := range f.Readings {
		bytes = max(bytes, m.RSS)
	}
	return bytes
}

// going is the time after the first URLs.
func going(f record.Flood) time.Duration { return (f.Took - f.Filled).Round(time.Second) }

// growth is the median memory of the last third of the time after the first
// URLs, by that of the first third; NaN if that time was too short.
func growth(f record.Flood) float64 {
	var after []float64
	for _, m := range f.Readings {
		if m.At >= f.Filled {
			after = append(after, float64(m.RSS))
		}
	}
	n := len(after) / growthParts
	return stats.Median(after[len(after)-n:]) / stats.Median(after[:n])
}

// floods are what caches held while they were asked for ever other URLs.
func (w *writer) floods(r *record.Run) {
	for _, f := range r.Floods {
		a, _ := arm(r, f.Arm)
		w.line("")
		w.line("## Memory of %s under ever other URLs", a.Title)
		w.line("")
		w.line("%s URLs of %d bytes in %v, and others for %v after that: %s in all, %s failed, %s reached the API. The budget for answers is %s, and at most %s were resident, %s of it.",
			thousands(float64(f.URLs)), f.Size, f.Filled.Round(time.Second), going(f), thousands(float64(f.Done)), thousands(float64(f.Failed)), thousands(float64(f.Reached)),
			megabytes(float64(f.Budget)), megabytes(float64(most(f))), ratio(float64(most(f))/float64(f.Budget)))
		w.line("")
		w.line("| after | URLs | RSS | of the budget |")
		w.line("|---:|---:|---:|---:|")
		for i := range min(timelineRows, len(f.Readings)) {
			m := f.Readings[(i+1)*len(f.Readings)/min(timelineRows, len(f.Readings))-1]
			w.line("| %v | %s | %s | %s |", m.At.Round(time.Second), thousands(float64(m.Done)), megabytes(float64(m.RSS)), ratio(float64(m.RSS)/float64(f.Budget)))
		}
	}
}
