package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// timelineRows is how many moments of a watch are shown.
const timelineRows = 12

// conversions are the tables of the photographs that were converted on demand.
func (w *writer) conversions(r *record.Run) {
	names := converterNames(r)
	if len(names) == 0 {
		return
	}
	w.line("")
	w.line("## Converting on demand")
	w.line("")
	rounds := 0
	for _, f := range r.Images.Folders {
		rounds = max(rounds, f.Round)
	}
	w.line("%s CPU is user and system time of everything: the server, its workers, the commands that those start.", confidence(rounds))
	w.line("")
	w.line("| converter | CPU a megapixel | of vips' | bytes | without profiles and metadata | of vips' | SSIMULACRA2 | above vips' | time for the folder | accounted for |")
	w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, name := range names {
		cpu, size := folderCPU(r, name), folderBytes(r, name, pictureBytes)
		mine, above := scores(r, name)
		wall, share := byRound{}, byRound{}
		for _, f := range r.Images.Folders {
			if f.Arm == name {
				wall[f.Round] = f.Wall.Seconds()
				share[f.Round] = (f.CPU + f.Harness).Seconds() / f.Busy.Seconds()
			}
		}
		w.line("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", converterTitle(r, name),
			span(cpu.summary(), func(v float64) string { return fmt.Sprintf("%.1f ms", v) }), span(stats.Ratios(cpu, folderCPU(r, imageBase)), ratio),
			thousands(folderBytes(r, name, conversionBytes).summary().Median), thousands(size.summary().Median),
			span(stats.Ratios(size, folderBytes(r, imageBase, pictureBytes)), ratio),
			orDash(mine.Median, func(v float64) string { return fmt.Sprintf("%.2f", v) }), span(above, signed),
			span(wall.summary(), func(v float64) string { return fmt.Sprintf("%.1f s", v) }), span(share.summary(), percent))
	}
	w.line("")
	w.line("SSIMULACRA2 is the mean of the photographs (in brackets: of the single ones, the least and the greatest difference). The time for the folder has %s of waiting in it for each photograph of a server, for its clock to be read. “Accounted for” is the share of all CPU time of the machine that the converter and the client used: what is missing there was used by others, or was not counted.", "60 ms")
	w.photographs(r)
	w.perPhoto(r, "CPU of vips', by photograph", names, func(name, photo string) string {
		return span(stats.Ratios(photoFigure(r, name, photo, conversionCPU), photoFigure(r, imageBase, photo, conversionCPU)), ratio)
	})
	w.perPhoto(r, "CPU in ms, by photograph", names, func(name, photo string) string {
		return orDash(photoFigure(r, name, photo, conversionCPU).summary().Median, func(v float64) string { return fmt.Sprintf("%.0f", v) })
	})
	w.perPhoto(r, "Bytes of vips', without profiles and metadata, by photograph", names, func(name, photo string) string {
		return orDash(stats.Ratios(photoFigure(r, name, photo, pictureBytes), photoFigure(r, imageBase, photo, pictureBytes)).Median, ratio)
	})
	w.perPhoto(r, "Bytes of the files, by photograph", names, func(name, photo string) string {
		return thousands(photoFigure(r, name, photo, conversionBytes).summary().Median)
	})
	w.perPhoto(r, "SSIMULACRA2, by photograph", names, func(name, photo string) string {
		return orDash(score(r, name, photo), func(v float64) string { return fmt.Sprintf("%.2f", v) })
	})
}

// photographs is the table of what is converted.
func (w *writer) photographs(r *record.Run) {
	w.line("")
	w.line("### The photographs")
	w.line("")
	w.line("| photograph | Debian's package | kind | pixels | bytes |")
	w.line("|---|---|---|---:|---:|")
	for _, p := range r.Images.Photos {
		kind := p.Kind
		if p.Profile {
			kind += ", ICC profile"
		}
		w.line("| %s | %s | %s | %d × %d | %s |", p.Name, p.Package, kind, p.Width, p.Height, thousands(float64(p.Bytes)))
	}
	w.line("")
	w.line("%d photographs, %.1f megapixels. They are in the packages as those who took them published them: some are JPEGs of a high quality, one hardly gets smaller as WebP.", len(r.Images.Photos), pixels(r))
}

// perPhoto is a table with a row for each photograph and a column for each
// converter.
func (w *writer) perPhoto(r *record.Run, title string, names []string, value func(name, photo string) string) {
	w.line("")
	w.line("### %s", title)
	w.line("")
	head, rule := "| photograph |", "|---|"
	for _, name := range names {
		head += " " + converterTitle(r, name) + " |"
		rule += "---:|"
	}
	w.line("%s", head)
	w.line("%s", rule)
	for _, p := range r.Images.Photos {
		row := "| " + p.Name + " |"
		for _, name := range names {
			row += " " + value(name, p.Name) + " |"
		}
		w.line("%s", row)
	}
}

// timelines show CPU and memory while the folder is converted.
func (w *writer) timelines(r *record.Run) {
	if len(r.Images.Timelines) == 0 {
		return
	}
	w.line("")
	w.line("## CPU and memory over time")
	w.line("")
	w.line("![Memory while a folder is converted](%s)", memoryChart)
	w.line("")
	w.line("![CPU while a folder is converted](%s)", cpuChart)
	w.line("")
	w.line("One request after the other, a pass of its own in which memory is read every 50 ms. Resident memory (RSS): a page that server and worker share, such as the program's own code, is counted in both; PSS divides it. “Not of files” is without the pages of the program itself, which are in memory once for all its processes and which the kernel takes back when it needs room.")
	w.line("")
	w.line("| | before | server at most | server and workers at most | the folder took | server after that (RSS) | of that, not of files | PSS | workers after that |")
	w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, t := range r.Images.Timelines {
		var alone, all uint64
		for _, u := range t.Readings {
			alone, all = max(alone, u.Server), max(all, u.All)
		}
		w.line("| %s | %s | %s | %s | %s | %s | %s | %s | %d |", converterTitle(r, t.Arm), megabytes(float64(t.Before.RSS)), megabytes(float64(alone)), megabytes(float64(all)),
			tookSeconds(t.Took), megabytes(float64(t.Server.RSS)), megabytes(float64(t.Anonymous)), megabytes(float64(t.Server.PSS)), t.Workers)
	}
}

// rowOfConversions is memory in many conversions.
func (w *writer) rowOfConversions(r *record.Run) {
	for _, t := range r.Images.Thousands {
		w.line("")
		w.line("## %s conversions in a row: %s", thousands(float64(t.Asked)), converterTitle(r, t.Arm))
		w.line("")
		end, after := rowParts(t)
		w.line("Crops of the photographs of 0.5 to 1 megapixel, %s of them, converted, changed (a new time of modification), converted again and so on; 2 clients, %s, %d failed; %s conversions by the server's own count.",
			thousands(float64(t.Distinct)), tookSeconds(t.Took), t.Failed, thousands(float64(t.Counted)))
		w.line("The server's memory in the tenth after the warm-up (the first three tenths): %s; in the last tenth: %s. The straight line through all readings after the warm-up rises by %s a thousand conversions for the server alone, %s with its workers. What is ready is kept in memory for the next visitor, up to a bound; what was ready of a picture that has changed must be gone.",
			orDash(stats.Median(after), megabytes), orDash(stats.Median(end), megabytes),
			orDash(1000*rowSlope(t, func(u record.ImageUse) uint64 { return u.Server }), megabytes), orDash(1000*rowSlope(t, func(u record.ImageUse) uint64 { return u.All }), megabytes))
		w.line("")
		w.line("| conversions | after | server | server and workers |")
		w.line("|---:|---:|---:|---:|")
		for i := range min(timelineRows, len(t.Readings)) {
			u := t.Readings[(i+1)*len(t.Readings)/min(timelineRows, len(t.Readings))-1]
			w.line("| %s | %s | %s | %s |", thousands(float64(u.Done)), tookSeconds(u.At), megabytes(float64(u.Server)), megabytes(float64(u.All)))
		}
	}
}

// ready are the tables of variants that are ready.
func (w *writer) ready(r *record.Run, rows []record.Cell) {
	w.small("Variants that are ready", r, rows)
	w.line("")
	for _, c := range r.Images.Cached {
		w.line("- `%s`: %s bytes, the WebP of %s. nginx has these bytes in a file.", c.Workload, thousands(float64(c.Bytes)), c.Photo)
	}
	w.line("")
	w.line("| where | requests | answered by the lane | body bytes by |")
	w.line("|---|---:|---:|---|")
	for _, c := range rows {
		requests, lane := uint64(0), math.NaN()
		var sendfile, writev, copied float64
		for _, s := range smallSlots(r, own(false), c) {
			requests += s.Wrk.Requests
			if s.Counts != nil {
				lane = least(lane, float64(s.Counts.Fast)/float64(s.Counts.Fast+s.Counts.Slow))
				sendfile, writev, copied = sendfile+float64(s.Counts.Sendfile), writev+float64(s.Counts.Writev), copied+float64(s.Counts.Copied)
			}
		}
		if requests == 0 {
			continue
		}
		all := max(1, sendfile+writev+copied)
		w.line("| %s, %d connections | %s | %s | sendfile %s, writev %s, copied %s |", c.Title, c.Connections, thousands(float64(requests)),
			orDash(lane, func(v float64) string { return fmt.Sprintf("%.2f %%", v*100) }), percent(sendfile/all), percent(writev/all), percent(copied/all))
	}
}

// crowds are many clients at once.
func (w *writer) crowds(r *record.Run) {
	if len(r.Images.Crowds) == 0 {
		return
	}
	w.line("")
	w.line("## A crowd in front of what is not converted")
	for _, c := range r.Images.Crowds {
		w.line("")
		w.line("### %s", converterTitle(r, c.Arm))
		w.line("")
		w.line("%d clients begin at the same moment and ask for %d photographs of 4 megapixels and more, none of which is converted, %d requests in all, with the waiting time for visitors that is the default.", c.Clients, c.Pictures, c.Requests)
		w.line("")
		w.line("| | |")
		w.line("|---|---:|")
		w.line("| conversions, by the server's own count | %d |", c.Converted)
		w.line("| that failed, that found no place in the queue | %d, %d |", c.Broken, c.Shed)
		w.line("| until the last of them was done | %s |", tookSeconds(c.Took))
		w.line("| answers: WebP, original, none | %d, %d, %d |", c.Variants, c.Originals, c.Failed)
		w.line("| the slowest answer | %s |", tookSeconds(c.Slowest))
		w.line("| budget for conversions (`images.memory`) | %s |", megabytes(float64(c.Budget)))
		w.line("| memory of the workers at most | %s |", megabytes(float64(c.Workers)))
		w.line("| memory of server and workers at most | %s |", megabytes(float64(c.Peak.All)))
		w.line("| memory of the server alone at most | %s |", megabytes(float64(c.Peak.Server)))
		w.line("")
		w.line("A file of 501 bytes on the same server, %.0f requests a second by the clock, latency from the moment at which a request was due:", c.Rate)
		w.line("")
		w.line("| | requests | p50 | p99 | most | failed | sent late |")
		w.line("|---|---:|---:|---:|---:|---:|---:|")
		for _, l := range []struct {
			when string
			record.Latency
		}{{"idle, before", c.Idle}, {"while the crowd's pictures are converted", c.During}} {
			w.line("| %s | %s | %s | %s | %s | %d | %d |", l.when, thousands(float64(l.Requests)), milliseconds(ms(l.P50)), milliseconds(ms(l.P99)), milliseconds(ms(l.Max)), l.Failed, l.Late)
		}
	}
}

// refusedCase is what ab asked for.
type refusedCase struct {
	title, arm string
	status     int
}

// refusedCases are those of the run, nginx first.
func refusedCases(r *record.Run) (list []refusedCase) {
	for _, f := range r.Images.Refusals {
		c := refusedCase{f.Case, f.Arm, f.Status}
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b refusedCase) int {
		return compareTitles(a, b)
	})
	return list
}

// compareTitles puts nginx first.
func compareTitles(a, b refusedCase) int {
	switch {
	case (a.arm == "nginx") != (b.arm == "nginx"):
		if a.arm == "nginx" {
			return -1
		}
		return 1
	case a.title < b.title:
		return -1
	case a.title > b.title:
		return 1
	}
	return 0
}

// refusedBase is the case that the others are held against; empty without nginx.
func refusedBase(r *record.Run) string {
	for _, c := range refusedCases(r) {
		if c.arm == "nginx" {
			return c.title
		}
	}
	return ""
}

var refusedCost = figure{name: "CPU per request", better: -1, format: cpuPerRequest.format}

func refusedCPU(f record.Refusal) float64  { return f.CPU.Seconds() * 1e6 / float64(f.Requests) }
func refusedRate(f record.Refusal) float64 { return f.Rate }

func refusedFigure(r *record.Run, title string, of func(record.Refusal) float64) byRound {
	b := byRound{}
	for _, f := range r.Images.Refusals {
		if f.Case == title {
			b[f.Round] = of(f)
		}
	}
	return b
}

// refusals are what is not served.
func (w *writer) refusals(r *record.Run) {
	if len(r.Images.Refusals) == 0 {
		return
	}
	w.line("")
	w.line("## What is refused")
	w.line("")
	w.line("`ab -k -c 5 -n %d`, which is HTTP/1.0 with connections kept; one thread, which may well be the limit of requests/s.", r.Images.Refusals[0].Requests)
	w.line("")
	w.line("| what | status | requests/s | of nginx's | CPU per request | of nginx's | connections kept for | failed |")
	w.line("|---|---:|---:|---:|---:|---:|---:|---:|")
	base := refusedBase(r)
	for _, c := range refusedCases(r) {
		cost, rates := refusedFigure(r, c.title, refusedCPU), refusedFigure(r, c.title, refusedRate)
		kept := refusedFigure(r, c.title, func(f record.Refusal) float64 { return float64(f.Kept) / float64(f.Requests) })
		failed := uint64(0)
		for _, f := range r.Images.Refusals {
			if f.Case == c.title {
				failed += f.Failed
			}
		}
		w.line("| %s | %d | %s | %s | %s | %s | %s | %d |", c.title, c.status,
			span(rates.summary(), thousands), span(stats.Ratios(rates, refusedFigure(r, base, refusedRate)), ratio),
			span(cost.summary(), refusedCost.format), span(stats.Ratios(cost, refusedFigure(r, base, refusedCPU)), ratio),
			percent(kept.summary().Median), failed)
	}
}

// imageMethod says how it was measured.
func (w *writer) imageMethod() {
	w.line("")
	w.line("## How it was measured")
	w.line("")
	for _, item := range []string{
		"Converting: in each round every converter converts the whole folder, one photograph after the other, the converters in an order drawn anew. Of millrace a server is started for each round with nothing converted; its start is not counted. One client asks with `Accept: image/webp` and waits for the WebP (`wait: 30s`), as in the published article; background work is off (`no_best`). vips and cwebp are a process for each photograph, started by the harness, from file to file; they start and end each time, and millrace's worker once a folder: that is how each is used.",
		"CPU of a server: the clocks (nanoseconds) of the server and of all living processes below it, and of those that have ended what their parents have waited for, which the kernel shows in ticks of 10 ms. The folder's figure comes from two readings, before the first photograph and 60 ms after the last answer, so ticks cut off at most some hundredths of it; single photographs have two readings each, and are rough where they cost little. CPU of a command: what wait4(2) says of it, in microseconds. Nothing is missed unseen: the column “accounted for” compares with what the whole machine did by `/proc/stat`.",
		"Both sides read the photographs from the page cache. No hardware is set to a fixed frequency; converters that follow each other within a round are compared.",
		"Quality: SSIMULACRA2 of each distinct result against the photograph, by the Python package, both turned by their EXIF orientation and brought to sRGB by their ICC profiles first. A result with the same bytes has the same figure, so it is computed once, in other runs, too. vips keeps profile and metadata, cwebp drops both unless told otherwise, and millrace drops metadata and keeps or applies the profile; a profile that is gone changes what viewers see, and is compared as that.",
		"Quality settings are 80 everywhere. Equal settings are not equal quality: bytes and SSIMULACRA2 have to be read together. Bytes are compared without the chunks ICCP, EXIF and XMP: vips copies them from the photograph, the others do not, which is no merit of an encoder.",
		"Memory: `/proc/PID/statm` at short intervals for the course, `/proc/PID/smaps_rollup` for the figures before and after. Workers end after some idle seconds; after the folder there is nothing but the server.",
		"Variants that are ready: wrk with `Accept: image/webp,*/*` on the same URL; nginx serves the WebP's bytes as a static file with open_file_cache and sendfile. All answers are compared with the bytes before and after the load. CPU: the clocks of the server's processes.",
		"Crowd: clients are goroutines of the harness, which shares the cores with the server, as does the generator of the small file's requests; both are in the latency.",
	} {
		w.line("- %s", item)
	}
}

// confidence says what the brackets are worth: the least and the greatest of n
// rounds miss the median of all that there could be only if all n lie on one
// side of it.
func confidence(rounds int) string {
	if rounds < 2 {
		return "One round."
	}
	return fmt.Sprintf("The median of %d rounds (least–greatest); a ratio is taken within each round. The brackets hold the true median with %.1f %% confidence.",
		rounds, 100*(1-math.Pow(0.5, float64(rounds-1))))
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }
