package report

import (
	"fmt"
	"math"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// The bars: what bench/run files must show. Ratios are of one round's
// neighbours, so they hold on any machine; memory is in bytes.
const (
	maxCPU       = 0.75 // of nginx, neither writes a log
	maxCPULogs   = 0.85 // of nginx, both write a log
	minRate      = 1.25 // of nginx
	maxLargeTCP  = 1.1  // CPU per byte, of nginx
	maxLargeUnix = 1. / 3
	minLane      = 0.95 // of the answers to a browser
	maxMemory    = 60e6 // resident, under load
)

// bar is one row of the table of bars.
type bar struct {
	what  string
	got   stats.Summary
	limit float64
	least bool // got must be at least limit; else at most
	show  func(float64) string
}

// met compares the median of the rounds with the limit. Nothing measured is
// not met.
func (b bar) met() bool {
	if b.least {
		return b.got.Median >= b.limit
	}
	return b.got.Median <= b.limit
}

func (b bar) verdict() string {
	switch {
	case !b.got.Valid():
		return "not measured"
	case b.met():
		return "pass"
	default:
		return "**fail**"
	}
}

func (b bar) bound() string {
	if b.least {
		return "≥ " + b.show(b.limit)
	}
	return "≤ " + b.show(b.limit)
}

// barsOf are those of the run's scenario.
func barsOf(r *record.Run, rows []record.Cell) []bar {
	switch {
	case r.Sockets != nil:
		return socketBars(r)
	case r.Images != nil:
		return imageBars(r, rows)
	case r.Scenario == "cache":
		return cacheBars(r, rows)
	}
	return bars(r, rows)
}

// bars are all of bench/run files.
func bars(r *record.Run, rows []record.Cell) []bar {
	var list []bar
	for _, logs := range []bool{false, true} {
		with, limit := "no log", maxCPU
		if logs {
			with, limit = "both with a log", maxCPULogs
		}
		for _, c := range rows {
			got := againstBase(r, logs, c, cpuPerRequest)
			list = append(list, bar{fmt.Sprintf("CPU per request of nginx's, %s, %s, %d connections", with, c.Title, c.Connections), got, limit, false, ratio})
		}
		for _, c := range rows {
			got := againstBase(r, logs, c, rate)
			list = append(list, bar{fmt.Sprintf("Requests/s of nginx's, %s, %s, %d connections", with, c.Title, c.Connections), got, minRate, true, ratio})
		}
	}
	tcp := largeRatio(r, "tcp", "nginx")
	unix := largeRatio(r, "unix", "nethttp")
	return append(list,
		bar{"256 MB over TCP: CPU per byte of nginx's", tcp, maxLargeTCP, false, ratio},
		bar{"256 MB over a UNIX socket: CPU per byte of net/http's FileServer", unix, maxLargeUnix, false, ratio},
		bar{"Share of the lane in the answers to Chromium", stats.Summarise(laneShares(r)), minLane, true, percent},
		bar{"Failed requests of millrace", failures(r), 0, false, thousands},
		bar{"Memory of millrace under load, resident, the higher of log and no log", memory(r), maxMemory, false, megabytes},
	)
}

// againstBase is our figure in a cell as a ratio to nginx's.
func againstBase(r *record.Run, logs bool, c record.Cell, f figure) stats.Summary {
	return against(r, own(logs), base(logs), c, f)
}

// against is an arm's figure in a cell as a ratio to a peer's.
func against(r *record.Run, name, peer string, c record.Cell, f figure) stats.Summary {
	return stats.Ratios(smallFigure(r, name, c, f.small), smallFigure(r, peer, c, f.small))
}

// largeRatio is our CPU per byte over a network as a ratio to a peer's.
func largeRatio(r *record.Run, network, peer string) stats.Summary {
	return stats.Ratios(
		largeFigure(r, own(false), network, cpuPerByte.large),
		largeFigure(r, peer, network, cpuPerByte.large))
}

// laneShares are the lane's shares of the answers in each slot with a
// browser's requests.
func laneShares(r *record.Run) []float64 {
	var shares []float64
	for _, s := range r.Small {
		a, ok := arm(r, s.Arm)
		if !ok || !a.Ours || a.Variant || !s.Browser || s.Counts == nil {
			continue
		}
		shares = append(shares, float64(s.Counts.Fast)/float64(s.Counts.Fast+s.Counts.Slow))
	}
	return shares
}

// failures is the sum of millrace's failed requests in the whole run.
func failures(r *record.Run) stats.Summary {
	sum, slots := uint64(0), 0
	for _, s := range r.Small {
		if a, ok := arm(r, s.Arm); ok && a.Ours {
			sum += s.Wrk.Sum()
			slots++
		}
	}
	for _, m := range r.Memory {
		if a, ok := arm(r, m.Arm); ok && a.Ours {
			sum += m.Fail
		}
	}
	if slots == 0 {
		return stats.Summarise(nil)
	}
	return stats.Summarise([]float64{float64(sum)})
}

// memory is what millrace held under load, with a log or without, whichever is
// more.
func memory(r *record.Run) stats.Summary {
	most := math.NaN()
	for _, m := range r.Memory {
		if a, ok := arm(r, m.Arm); ok && a.Ours && !a.Variant && !(float64(m.Held.RSS) < most) {
			most = float64(m.Held.RSS)
		}
	}
	return stats.Summarise([]float64{most})
}

func percent(v float64) string   { return fmt.Sprintf("%.1f %%", v*100) }
func megabytes(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) }
