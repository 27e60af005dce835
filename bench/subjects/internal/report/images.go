package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	servers "millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
	"millrace/bench/subjects/internal/wrk"
	"millrace/internal/chart"
)

// The bars: what bench/run images must show.
const (
	maxTools      = 0.60 // CPU a megapixel, of vips'
	maxEmbedded   = 2.6  // the same
	maxBytes      = 1.06 // of vips'
	leastScore    = -0.5 // SSIMULACRA2, above vips'
	maxToolsRSS   = 40e6 // of the server, after a run over a folder
	maxBuiltInRSS = 100e6
	maxReady      = 0.75 // CPU per request, of nginx's
	maxSmallP99   = 2.0  // of a small file, of idle
	maxRowGrowth  = 1.05 // of memory, from after the warm-up to the end

	imageBase = "vips"
	cwebp     = "cwebp"
	cwebpFast = "cwebp-m2"
)

// The files of the charts.
const (
	memoryChart = "images-memory.svg"
	cpuChart    = "images-cpu.svg"
)

// Images is IMAGES.md of a run of the scenario images.
func Images(r *record.Run, workloads []string) string {
	rows := cells(r, workloads)
	w := &writer{}
	w.head(r)
	for _, note := range r.Images.Notes {
		w.line("")
		w.line("**%s.**", note)
	}
	w.bars(r, rows)
	w.losses(r, rows)
	w.conversions(r)
	w.timelines(r)
	w.rowOfConversions(r)
	if len(rows) > 0 {
		w.ready(r, rows)
	}
	w.crowds(r)
	w.refusals(r)
	w.imageMethod()
	w.imageRepeat(r)
	return w.String()
}

// converterTitle is an arm or a command in words.
func converterTitle(r *record.Run, name string) string {
	switch name {
	case imageBase:
		return "vips"
	case cwebp:
		return "cwebp, method 4"
	case cwebpFast:
		return "cwebp, method 2"
	}
	if a, ok := arm(r, name); ok {
		return a.Title
	}
	return name
}

// converterNames are those that converted, ours first.
func converterNames(r *record.Run) []string {
	return slices.DeleteFunc([]string{servers.Tools, servers.Embedded, imageBase, cwebp, cwebpFast}, func(name string) bool {
		return !slices.ContainsFunc(r.Images.Folders, func(f record.FolderRun) bool { return f.Arm == name })
	})
}

// engineNames are ours that were asked for.
func engineNames(r *record.Run) (names []string) {
	for _, a := range r.Arms {
		if a.Ours {
			names = append(names, a.Name)
		}
	}
	return names
}

// pixels are the megapixels of the folder.
func pixels(r *record.Run) (sum float64) {
	for _, p := range r.Images.Photos {
		sum += p.Megapixels
	}
	return sum
}

// folderCPU is CPU a megapixel over the folder, in ms.
func folderCPU(r *record.Run, name string) byRound {
	b := byRound{}
	for _, f := range r.Images.Folders {
		if f.Arm == name {
			b[f.Round] = f.CPU.Seconds() * 1e3 / pixels(r)
		}
	}
	return b
}

// folderBytes is what the folder's WebPs take together.
func folderBytes(r *record.Run, name string, of func(record.Conversion) float64) byRound {
	b := byRound{}
	for _, c := range r.Images.Conversions {
		if c.Arm == name {
			b[c.Round] += of(c)
		}
	}
	return b
}

// photoFigure is a figure of one photograph's conversions.
func photoFigure(r *record.Run, name, photo string, f func(record.Conversion) float64) byRound {
	b := byRound{}
	for _, c := range r.Images.Conversions {
		if c.Arm == name && c.Photo == photo {
			b[c.Round] = f(c)
		}
	}
	return b
}

func conversionCPU(c record.Conversion) float64   { return c.CPU.Seconds() * 1e3 }
func conversionBytes(c record.Conversion) float64 { return float64(c.Bytes) }

// pictureBytes are those without profile and metadata: what is compared, since
// vips keeps both and the others do not.
func pictureBytes(c record.Conversion) float64 { return float64(c.Picture) }

// score is the SSIMULACRA2 of a photograph as an arm converted it; the mean, had
// it converted it in different ways. NaN if it is not known.
func score(r *record.Run, name, photo string) float64 {
	sum, n := 0.0, 0
	for _, c := range r.Images.Conversions {
		if c.Arm != name || c.Photo != photo {
			continue
		}
		i := slices.IndexFunc(r.Images.Scores, func(s record.Score) bool { return s.Photo == photo && s.Hash == c.Hash })
		if i < 0 {
			return math.NaN()
		}
		sum, n = sum+r.Images.Scores[i].Value, n+1
	}
	return sum / float64(n)
}

// scores are those of all photographs, and how far they are above vips'.
func scores(r *record.Run, name string) (own, above stats.Summary) {
	var values, differences []float64
	for _, p := range r.Images.Photos {
		v := score(r, name, p.Name)
		values, differences = append(values, v), append(differences, v-score(r, imageBase, p.Name))
	}
	return meanOf(values), meanOf(differences)
}

// meanOf is a summary whose middle is the mean; empty unless all are known.
func meanOf(values []float64) stats.Summary {
	s := stats.Summarise(values)
	if s.N < len(values) || s.N == 0 {
		return stats.Summarise(nil)
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	s.Median = sum / float64(s.N)
	return s
}

const (
	// A row's warm-up is the first time for each picture, a quarter of it, and a
	// bit: until then pools fill, and the lane and the table of what is ready. What
	// follows is compared a tenth at a time.
	rowWarm  = 0.3
	rowTenth = 0.1
)

// rowParts are the server's memory in the last tenth of a row, and in the tenth
// after its warm-up.
func rowParts(t record.Thousand) (end, after []float64) {
	n := float64(t.Asked)
	for _, u := range t.Readings {
		switch done := float64(u.Done); {
		case done >= n*rowWarm && done < n*(rowWarm+rowTenth):
			after = append(after, float64(u.Server))
		case done >= n*(1-rowTenth):
			end = append(end, float64(u.Server))
		}
	}
	return end, after
}

// rowSlope is the slope of the least squares through memory after the warm-up, in
// bytes for each conversion.
func rowSlope(t record.Thousand, of func(record.ImageUse) uint64) float64 {
	var n, x, y, xx, xy float64
	for _, u := range t.Readings {
		if float64(u.Done) < float64(t.Asked)*rowWarm {
			continue
		}
		a, b := float64(u.Done), float64(of(u))
		n, x, y, xx, xy = n+1, x+a, y+b, xx+a*a, xy+a*b
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// imageBars are all of bench/run images.
func imageBars(r *record.Run, rows []record.Cell) []bar {
	var list []bar
	limits := map[string]float64{servers.Tools: maxTools, servers.Embedded: maxEmbedded}
	rss := map[string]float64{servers.Tools: maxToolsRSS, servers.Embedded: maxBuiltInRSS}
	for _, name := range engineNames(r) {
		title := converterTitle(r, name)
		_, above := scores(r, name)
		list = append(list,
			bar{title + ": CPU a megapixel of vips', the folder", stats.Ratios(folderCPU(r, name), folderCPU(r, imageBase)), limits[name], false, ratio},
			bar{title + ": bytes of vips', without profiles and metadata, the folder", stats.Ratios(folderBytes(r, name, pictureBytes), folderBytes(r, imageBase, pictureBytes)), maxBytes, false, ratio},
			bar{title + ": SSIMULACRA2 above vips', mean (least–greatest) of the photographs", above, leastScore, true, signed},
			bar{title + ": conversions that were answered with the original", faults(r, name), 0, false, thousands})
	}
	for _, t := range r.Images.Timelines {
		list = append(list, bar{fmt.Sprintf("%s: memory of the server %v after the folder", converterTitle(r, t.Arm), t.Settled), one(float64(t.Server.RSS)), rss[t.Arm], false, megabytes})
	}
	for _, t := range r.Images.Thousands {
		what := fmt.Sprintf("%s: %s conversions in a row, ", converterTitle(r, t.Arm), thousands(float64(t.Asked)))
		end, after := rowParts(t)
		list = append(list,
			bar{what + "memory at the end of that after the warm-up", one(stats.Median(end) / stats.Median(after)), maxRowGrowth, false, ratio},
			bar{what + "failed", one(float64(t.Failed)), 0, false, thousands},
			bar{what + "not converted, by the server's own count", one(math.Abs(float64(t.Asked) - float64(t.Counted))), 0, false, thousands})
	}
	for _, c := range rows {
		list = append(list, bar{fmt.Sprintf("CPU per request of nginx's, %s that is ready, %d connections", c.Title, c.Connections), against(r, own(false), "nginx", c, cpuPerRequest), maxReady, false, ratio})
	}
	if len(rows) > 0 {
		list = append(list, bar{"Failed requests of millrace for what is ready", failures(r), 0, false, thousands})
	}
	for _, c := range r.Images.Crowds {
		what := fmt.Sprintf("%s: %d clients at once, %d photographs: ", converterTitle(r, c.Arm), c.Clients, c.Pictures)
		list = append(list,
			bar{what + "conversions too many or too few", one(math.Abs(float64(c.Converted) - float64(c.Pictures))), 0, false, thousands},
			bar{what + "requests without an answer", one(float64(c.Failed)), 0, false, thousands},
			bar{what + "memory of server and workers at most, of the budget", one(float64(c.Peak.All) / float64(c.Budget)), 1, false, ratio},
			bar{what + "p99 of a small file meanwhile, of idle", one(float64(c.During.P99) / float64(c.Idle.P99)), maxSmallP99, false, ratio})
	}
	return list
}

func signed(v float64) string { return fmt.Sprintf("%+.2f", v) }

// faults are the answers of an engine that were no WebP.
func faults(r *record.Run, name string) stats.Summary {
	n, found := 0, false
	for _, c := range r.Images.Conversions {
		if c.Arm == name {
			found = true
			if c.Fault != "" {
				n++
			}
		}
	}
	if !found {
		return stats.Summarise(nil)
	}
	return one(float64(n))
}

// imageComparisons are all figures of ours with a peer's beside them: what is
// ready beside nginx, what is refused beside nginx, and the conversions of each
// engine beside each command.
func imageComparisons(r *record.Run, rows []record.Cell) (list []compared) {
	nginx, served := arm(r, "nginx")
	for _, c := range rows {
		if _, ok := arm(r, own(false)); !ok || !served {
			break
		}
		where := fmt.Sprintf("%s that is ready, %d connections", c.Title, c.Connections)
		for _, f := range []figure{cpuPerRequest, rate, p50, p99} {
			list = append(list, compared{f, where, nginx, smallFigure(r, own(false), c, f.small), smallFigure(r, "nginx", c, f.small)})
		}
	}
	for _, c := range refusedCases(r) {
		if a, ok := arm(r, c.arm); !ok || !a.Ours || !served {
			continue
		}
		base := refusedBase(r)
		list = append(list,
			compared{refusedCost, c.title, nginx, refusedFigure(r, c.title, refusedCPU), refusedFigure(r, base, refusedCPU)},
			compared{rate, c.title, nginx, refusedFigure(r, c.title, refusedRate), refusedFigure(r, base, refusedRate)})
	}
	cpu := figure{name: "CPU", better: -1, format: func(v float64) string { return fmt.Sprintf("%.1f ms", v) }}
	size := figure{name: "bytes without profile and metadata", better: -1, format: thousands}
	quality := figure{name: "SSIMULACRA2", better: +1, format: func(v float64) string { return fmt.Sprintf("%.2f", v) }}
	for _, name := range engineNames(r) {
		for _, peer := range []string{imageBase, cwebp, cwebpFast} {
			if !slices.Contains(converterNames(r), peer) || !slices.Contains(converterNames(r), name) {
				continue
			}
			them := record.Arm{Name: peer, Title: converterTitle(r, peer)}
			for _, p := range r.Images.Photos {
				where := converterTitle(r, name) + ": " + p.Name
				list = append(list,
					compared{cpu, where, them, photoFigure(r, name, p.Name, conversionCPU), photoFigure(r, peer, p.Name, conversionCPU)},
					compared{size, where, them, photoFigure(r, name, p.Name, pictureBytes), photoFigure(r, peer, p.Name, pictureBytes)},
					compared{quality, where, them, byRound{1: score(r, name, p.Name)}, byRound{1: score(r, peer, p.Name)}})
			}
		}
	}
	return list
}

// ImageCharts are the charts of a run.
func ImageCharts(r *record.Run) (map[string][]byte, error) {
	if len(r.Images.Timelines) == 0 {
		return nil, nil
	}
	seconds := chart.Axis{Name: "time", Unit: "s"}
	memory := chart.Line{Title: "Memory while a folder is converted", About: "resident, of the server alone and with its workers", X: seconds, Y: chart.Axis{Name: "RSS", Unit: "bytes"}}
	cpu := chart.Line{Title: "CPU while a folder is converted", About: "cores in use by server and workers", X: seconds, Y: chart.Axis{Name: "cores in use"}}
	for _, t := range r.Images.Timelines {
		title := converterTitle(r, t.Arm)
		var alone, all, busy [][2]float64
		for i, u := range t.Readings {
			at := u.At.Seconds()
			alone, all = append(alone, [2]float64{at, float64(u.Server)}), append(all, [2]float64{at, float64(u.All)})
			if from := i - chartWindow; from >= 0 {
				before := t.Readings[from]
				busy = append(busy, [2]float64{at, (u.CPU - before.CPU).Seconds() / (u.At - before.At).Seconds()})
			}
		}
		memory.Series = append(memory.Series, chart.Series{Name: title + ", server", Points: alone}, chart.Series{Name: title + ", and workers", Points: all})
		cpu.Series = append(cpu.Series, chart.Series{Name: title, Points: busy})
	}
	charts := map[string][]byte{}
	for name, line := range map[string]*chart.Line{memoryChart: &memory, cpuChart: &cpu} {
		var b bytes.Buffer
		if err := line.Standalone(&b, chart.Size{}); err != nil {
			return nil, err
		}
		charts[name] = b.Bytes()
	}
	return charts, nil
}

// chartWindow is over how many readings CPU is a mean: 0.4 s. Ended processes are
// counted in ticks of 10 ms when they are waited for, which shorter ones would
// show as peaks.
const chartWindow = 8

// imageUses are the shares of the machine that others had while the folder was
// converted.
func imageUses(r *record.Run) (others, stolen []float64) {
	if r.Images == nil {
		return nil, nil
	}
	for _, f := range r.Images.Folders {
		all := float64(r.Machine.Cores) * f.Wall.Seconds()
		others = append(others, max(0, f.Busy-f.CPU-f.Harness).Seconds()/all)
		stolen = append(stolen, f.Steal.Seconds()/all)
	}
	return others, stolen
}

// imageRepeat says how to get the same.
func (w *writer) imageRepeat(r *record.Run) {
	w.repeat(r, "nginx-light, wrk, webp, libvips-tools, apache2-utils, mate-backgrounds and plasma-workspace-wallpapers, and Python 3 with pip",
		"SITE: the folder, DIR: a folder of the server's own; the config of nginx is [peers/nginx/nginx.conf.tmpl](peers/nginx/nginx.conf.tmpl) filled in",
		wrk.Job{Requests: "DIR/requests-webp70k.txt", URL: "http://127.0.0.1:PORT/"})
	for _, c := range r.Images.Commands {
		if c.Config == "" {
			continue
		}
		w.line("")
		w.line("The config of %s (`wait` and `memory` as the part says):", c.Name)
		w.line("")
		w.line("```yaml")
		w.WriteString(c.Config)
		w.line("```")
	}
}

func tookSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
