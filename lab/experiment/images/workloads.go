package images

import (
	"fmt"
	"net/http"
	"slices"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The workloads that are not of one kind with others.
const (
	folder  = "folder"
	burst   = "crowd"
	inARow  = "row"
	missing = "missing"
	refused = "refused"
)

// The metrics of the tasks.
const (
	perMegapixel = "cpu_per_megapixel_ns"
	took         = "took_ns"
	size80       = "webp_bytes"
	peak         = "peak_rss_bytes"
	after        = "after_rss_bytes"
	growth       = "growth"
	smallAlone   = "small_alone_p99_ns"
	smallBeside  = "small_beside_p99_ns"
	slowest      = "slowest_ns"
	originals    = "originals"
)

func metrics() []record.Metric {
	return []record.Metric{
		{Key: perMegapixel, Name: "CPU time per megapixel", Unit: "ns", About: "of a command, what wait4(2) says; of a server, of all its processes, ended ones included"},
		{Key: took, Name: "time for all", Unit: "ns"},
		{Key: size80, Name: "bytes without profiles and metadata", Unit: "bytes", About: "of all results together"},
		{Key: peak, Name: "resident memory at most", Unit: "bytes", About: "of a command, VmHWM read every 5 ms, the largest of all; of a server, of all its processes together, read every 50 ms, pages that they share counted in each"},
		{Key: after, Name: "resident memory after it", Unit: "bytes", About: "when the workers have ended"},
		{Key: growth, Name: "memory at the end of that after the first pass", Unit: "", About: "resident memory of the server without workers"},
		{Key: smallAlone, Name: "99th percentile of a small file alone", Unit: "ns", About: "200 requests a second before the crowd comes"},
		{Key: smallBeside, Name: "99th percentile of a small file beside the crowd", Unit: "ns"},
		{Key: slowest, Name: "slowest answer", Unit: "ns"},
		{Key: originals, Name: "answers with the original", Unit: ""},
	}
}

// readyName is the workload of an image that is ready.
func readyName(size string) string { return "ready " + size }

// workloads are all, in the order of the report.
func (m *measurement) workloads() []trial.Workload {
	engines := []string{millrace, embedded}
	all := []trial.Workload{{
		Name: folder, About: fmt.Sprintf("%d photographs are converted one after the other, with nothing converted before", len(m.photos)),
		Arms: []string{vips, cwebp, cwebpFast, millrace, embedded}, Task: m.folder, Decide: []string{perMegapixel, size80, peak},
	}}
	for _, r := range readyPhotos() {
		if m.quick && r.size != "20k" {
			continue
		}
		all = append(all, trial.Workload{
			Name: readyName(r.size), About: "GET of a WebP of some " + r.size + " that is ready, 50 connections, closed loop",
			Arms: []string{nginx, millrace}, Differ: "nginx has the same bytes in a file that it takes for another type; they were compared before",
			Load: load.Config{Paths: []string{r.path()}, Connections: 50, Threads: 1, Header: http.Header{"Accept": {"image/webp"}}},
		})
	}
	not := func(name, path, arm string) trial.Workload {
		return trial.Workload{
			Name: name, About: "GET of " + path + ", which is not served, 5 connections, closed loop",
			Arms: []string{nginx, arm}, ErrorsExpected: 1, Differ: "each says in its own words that it does not serve that",
			Load: load.Config{Paths: []string{path}, Connections: 5, Threads: 1},
		}
	}
	all = append(all,
		trial.Workload{
			Name: burst, About: fmt.Sprintf("%d clients ask at once for %d photographs that are not converted, with a budget of %d MiB", m.clients, m.size.burst, memory),
			Arms: engines, Task: m.burst, Decide: []string{peak, smallBeside},
		},
		trial.Workload{
			Name: inARow, About: fmt.Sprintf("%d pictures of half a megapixel to a whole one, converted again after each of %d changes", m.size.crops, m.passes-1),
			Arms: engines, Task: m.row, Decide: []string{perMegapixel},
		},
		not(missing, "/missing.jpg", millrace),
		not(refused, "/"+smallFile, strict),
	)
	if m.quick { // its rests alone would take half of the time
		all = slices.DeleteFunc(all, func(w trial.Workload) bool { return w.Name == inARow })
	}
	return all
}
