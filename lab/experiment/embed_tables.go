package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/lab/result"
)

// embedTables are what the article and its readers asked beside the verdicts.
func embedTables(res *result.Result, probes map[string][]probe) []result.Table {
	return []result.Table{embedFigures(res), embedSizes(res), embedBytes(res, probes), embedHeaders(res, probes)}
}

// embedFigures holds what was published beside what was measured.
func embedFigures(res *result.Result) result.Table {
	t := result.Table{
		Title: "Published and measured",
		About: "Medians over all blocks. The ratios in brackets are to nethttp-disk in the same column; what they prove is said by the verdicts. " +
			"Absolute figures are those of two different machines.",
		Columns: []string{"workload", "arm", "published, requests/s", "measured, requests/s", "CPU per request, µs"},
	}
	claims := embedClaims()
	for _, w := range res.Workloads {
		base := medianOf(res, "nethttp-disk", w.Name, "requests_per_second")
		baseCPU := medianOf(res, "nethttp-disk", w.Name, "cpu_ns")
		for _, a := range res.Arms {
			rate := medianOf(res, a.Name, w.Name, "requests_per_second")
			if rate == 0 || a.Placebo != "" {
				continue
			}
			cpu := medianOf(res, a.Name, w.Name, "cpu_ns")
			t.Rows = append(t.Rows, []string{
				w.Name, a.Name,
				against(claims[w.Name][a.Name], claims[w.Name]["nethttp-disk"], 1, 0),
				against(rate, base, 1, 0), against(cpu, baseCPU, 1e-3, 1),
			})
		}
	}
	return t
}

// against is a figure and its ratio to another: "116485 (+39.5 %)".
func against(v, base, scale float64, digits int) string {
	switch {
	case v == 0:
		return "–"
	case base == 0 || v == base:
		return fmt.Sprintf("%.*f", digits, v*scale)
	}
	return fmt.Sprintf("%.*f (%s)", digits, v*scale, embedChange(v/base))
}

// embedChange is a ratio as a difference: "+39.5 %".
func embedChange(ratio float64) string {
	return strings.Replace(fmt.Sprintf("%+.1f %%", (ratio-1)*100), "-", "−", 1)
}

func embedSizes(res *result.Result) result.Table {
	t := result.Table{
		Title:   "Size of the executable",
		About:   "As built, with symbols. nginx's is without its modules and libraries; the embedded site adds 19 KB.",
		Columns: []string{"arm", "bytes", "against nethttp-disk"},
	}
	var base int64
	for _, a := range res.Arms {
		if a.Name == "nethttp-disk" {
			base = a.Size
		}
	}
	for _, a := range res.Arms {
		if a.Size == 0 || a.Placebo != "" {
			continue
		}
		more := "–"
		if base > 0 {
			more = embedChange(float64(a.Size) / float64(base))
		}
		t.Rows = append(t.Rows, []string{a.Name, fmt.Sprint(a.Size), more})
	}
	return t
}

func embedBytes(res *result.Result, probes map[string][]probe) result.Table {
	t := result.Table{
		Title:   "Bytes per response",
		About:   "Seen once, when each arm first started. Head: status line, header and framing.",
		Columns: []string{"arm", "/, head", "/, body", "/, both", "all seven paths, heads", "bodies", "both"},
	}
	for _, a := range res.Arms {
		seen := probes[a.Name]
		if len(seen) == 0 {
			continue
		}
		var head, body int
		for _, p := range seen {
			head, body = head+p.Head, body+p.Body
		}
		row := []string{a.Name}
		for _, n := range []int{seen[0].Head, seen[0].Body, seen[0].Head + seen[0].Body, head, body, head + body} {
			row = append(row, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// embedHeaders names the headers in which an arm's answers differ from the
// baseline's: bytes that are not sent are not the place of the file's doing.
func embedHeaders(res *result.Result, probes map[string][]probe) result.Table {
	t := result.Table{
		Title: "Headers that differ",
		About: "Names of headers on / and on the other paths, against nethttp-disk. Without Last-Modified and ETag a browser " +
			"must fetch a file again and again: fewer bytes here, more for a returning visitor.",
		Columns: []string{"arm", "on / lacks", "on / adds", "elsewhere lacks", "elsewhere adds"},
	}
	base := probes["nethttp-disk"]
	for _, a := range res.Arms {
		seen := probes[a.Name]
		if len(base) == 0 || len(seen) != len(base) || a.Name == "nethttp-disk" {
			continue
		}
		row := []string{a.Name}
		for _, group := range [][2][]probe{{base[:1], seen[:1]}, {base[1:], seen[1:]}} {
			lacks, adds := headerNames(group[0], group[1])
			row = append(row, lacks, adds)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// headerNames are the names of headers that answers lack and add where the same
// paths of a baseline have or lack them.
func headerNames(base, seen []probe) (lacks, adds string) {
	missing, extra := map[string]bool{}, map[string]bool{}
	for i := range base {
		for name := range base[i].Header {
			if _, ok := seen[i].Header[name]; !ok {
				missing[name] = true
			}
		}
		for name := range seen[i].Header {
			if _, ok := base[i].Header[name]; !ok {
				extra[name] = true
			}
		}
	}
	list := func(set map[string]bool) string {
		if len(set) == 0 {
			return "–"
		}
		return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	}
	return list(missing), list(extra)
}

// medianOf is the median of an arm's metric over all samples, 0 without any.
func medianOf(res *result.Result, arm, workload, metric string) float64 {
	var all []float64
	for _, s := range res.Samples {
		if v, ok := s.Values[metric]; ok && s.Arm == arm && s.Workload == workload {
			all = append(all, v)
		}
	}
	return middle(all)
}

// middle is the median, 0 of nothing. It leaves its argument as it is.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
