package report

import (
	"fmt"
	"math"
	"strings"

	servers "millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/sockets"
	"millrace/bench/subjects/internal/stats"
)

// echoes are the tables of the echoes.
func (w *writer) echoes(r *record.Run) {
	cells, _ := socketCells(r)
	if len(cells) == 0 {
		return
	}
	f := socketFigures()
	w.line("")
	w.line("## Echo")
	w.line("")
	w.line("%s", confidence(r.Rounds))
	for _, c := range cells {
		w.line("")
		w.line("### %s", c.title())
		w.line("")
		w.line("| server | CPU per message | of gws's | user + kernel | messages/s | of gws's | p50 | p99 | client's CPU | failed |")
		w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
		for _, a := range r.Arms {
			mine := f[fCPU].of(r, a.Name, c)
			if len(mine) == 0 {
				continue
			}
			user := socketFigure{echo: func(e record.SocketEcho) float64 { return us(e.Server.User, e.Messages) }}.of(r, a.Name, c).summary()
			kernel := socketFigure{echo: func(e record.SocketEcho) float64 { return us(e.Server.Kernel, e.Messages) }}.of(r, a.Name, c).summary()
			failed := uint64(0)
			for _, e := range r.Sockets.Echoes {
				if e.Arm == a.Name && echoCell(e) == c {
					failed += e.Failed
				}
			}
			w.line("| %s | %s | %s | %.1f + %.1f µs | %s | %s | %s | %s | %s | %d |", a.Title,
				span(mine.summary(), f[fCPU].format), span(stats.Ratios(mine, f[fCPU].of(r, socketBase, c)), ratio), user.Median, kernel.Median,
				thousands(f[fRate].of(r, a.Name, c).summary().Median), span(stats.Ratios(f[fRate].of(r, a.Name, c), f[fRate].of(r, socketBase, c)), ratio),
				w.middle(r, f[fP50], a, c), w.middle(r, f[fP99], a, c), w.middle(r, f[fClient], a, c), failed)
		}
	}
}

// middle is the median of a figure in a cell.
func (w *writer) middle(r *record.Run, f socketFigure, a record.Arm, c socketCell) string {
	return orDash(f.of(r, a.Name, c).summary().Median, f.format)
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

// casts are the tables of the broadcasts.
func (w *writer) casts(r *record.Run) {
	_, cells := socketCells(r)
	if len(cells) == 0 {
		return
	}
	f := socketFigures()
	w.line("")
	w.line("## Broadcast")
	w.line("")
	w.line("%s The lag is from the moment when a publication was due to its being read by the client, which reads for all subscribers.", confidence(r.Sockets.CastRounds))
	for _, c := range cells {
		w.line("")
		w.line("### %s", c.title())
		w.line("")
		w.line("| server | CPU per delivery | of gws's | lag p50 | p99 | of gws's | greatest | client's CPU | deliveries | lost | doubled | refused |")
		w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
		for _, a := range r.Arms {
			mine := f[fCPU].of(r, a.Name, c)
			if len(mine) == 0 {
				continue
			}
			var sum record.SocketCast
			for _, s := range r.Sockets.Casts {
				if s.Arm == a.Name && castCell(s) == c {
					sum.Delivered, sum.Lost = sum.Delivered+s.Delivered, sum.Lost+s.Lost
					sum.Doubled, sum.Refused = sum.Doubled+s.Doubled, sum.Refused+s.Refused
				}
			}
			w.line("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %d | %d | %d |", a.Title,
				span(mine.summary(), f[fCPU].format), span(stats.Ratios(mine, f[fCPU].of(r, socketBase, c)), ratio),
				w.middle(r, f[fP50], a, c), span(f[fP99].of(r, a.Name, c).summary(), milliseconds),
				span(stats.Ratios(f[fP99].of(r, a.Name, c), f[fP99].of(r, socketBase, c)), ratio),
				w.middle(r, f[fMax], a, c), w.middle(r, f[fClient], a, c), thousands(float64(sum.Delivered)), sum.Lost, sum.Doubled, sum.Refused)
		}
	}
}

// idle is the table of quiet connections.
func (w *writer) idle(r *record.Run) {
	if len(r.Sockets.Idle) == 0 {
		return
	}
	w.line("")
	w.line("## Quiet connections")
	w.line("")
	w.line("Resident memory of the server: fresh, after 500 connections that were closed again, and %v after the last connection was opened. What the kernel holds is in none.", r.Sockets.Rest)
	w.line("“For each” leaves out what a server needs only once, as far as those 500 show that; where garbage of theirs is used again, it can be too low. “At most” has everything since the start in it.")
	w.line("")
	w.line("| what | server | connections | still open | fresh | before | with them | for each | at most | opened in |")
	w.line("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, m := range []servers.Mode{servers.Echo, servers.Channels, servers.TLS, servers.Proxy} {
		for _, a := range r.Arms {
			for _, i := range r.Sockets.Idle {
				if i.Arm == a.Name && i.Mode == string(m) {
					w.line("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %.1f s |", idleTitle(m), a.Title, thousands(float64(i.Connections)), thousands(float64(i.Open)),
						megabytes(float64(i.Fresh.RSS)), megabytes(float64(i.Before.RSS)), megabytes(float64(i.After.RSS)), byteCount(i.Each()), byteCount(i.AtMost()), i.Opened.Seconds())
				}
			}
		}
	}
}

func idleTitle(m servers.Mode) string {
	switch m {
	case servers.Channels:
		return "one subscription each"
	case servers.Proxy:
		return "passed on to an echo"
	}
	return string(m)
}

// ramps is the table of as many connections as there may be.
func (w *writer) ramps(r *record.Run) {
	if len(r.Sockets.Ramps) == 0 {
		return
	}
	w.line("")
	w.line("## As many as there may be")
	w.line("")
	w.line("Opened, echoed once on each while all are open, and closed.")
	w.line("")
	w.line("| server | processes | connections | failed | opened in | echoed in | CPU for each | RSS for each | not closed in time | first error |")
	w.line("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	for _, s := range r.Sockets.Ramps {
		a, _ := arm(r, s.Arm)
		w.line("| %s | %d | %s | %d | %.2f s | %.2f s | %.1f µs | %s | %d | %s |", a.Title, s.Servers, thousands(float64(s.Connections)), s.Failed,
			s.Opened.Seconds(), s.Echoing.Seconds(), rampCost(s), byteCount(float64(s.Held.RSS-s.Before.RSS)/float64(s.Connections)), s.Unclean, s.First)
	}
}

func (w *writer) socketMethod(r *record.Run) {
	w.line("")
	w.line("## How it was measured")
	w.line("")
	for _, item := range []string{
		"The peers are what their manuals show, with default options ([subjects](subjects)): gws with its read loop in a goroutine of its own and a Broadcaster for each publication, coder/websocket with a queue and a writing goroutine for each subscriber, gorilla/websocket the same with a PreparedMessage. millrace is the program itself.",
		"The client is a program of its own (subjects/wsload), the same for all: one thread with epoll, messages masked beforehand. It shares the machine's cores with the server, so messages/s measures both together and CPU the server alone; “client's CPU” shows its part.",
		"CPU: the clock of each of the server's processes (`clock_gettime` with the clock made from the pid, nanoseconds as the scheduler counts them), read before the first message and after the last. Opening and closing is outside. User and kernel are split by the 10 ms ticks of `/proc/PID/stat`.",
		"Echo: all servers run from the start to the end, one at a time is under load, each slot with connections of its own. A round visits each cell (size and connections) once, in an order drawn anew; within a cell the servers follow each other, in an order drawn anew. On each connection one message of text is under way at a time; every answer is compared with what was sent, and each connection sends something else. millrace checks that text is UTF-8, as the standard asks; the others do not by default.",
		fmt.Sprintf("Broadcast: the client posts %d bytes with a number and the time when it was due to `/publish`, and finds both in what its connections read. Each subscriber must get each publication once. millrace's subscribers get the channel and an offset with it, and its history is kept, which the others have not.", r.Sockets.Data),
		"Quiet connections: a server of its own for each row, each with one client. `/proc/PID/smaps_rollup` of all of its processes. The client answers pings.",
		"As many as there may be: several client processes, each with source addresses of its own (127.0.0.x), since one process may hold no more connections than descriptors. Servers and clients share the cores.",
		"Failed counts connections that did not open and messages that did not come back as they were sent.",
	} {
		w.line("- %s", item)
	}
}

func (w *writer) socketRepeat(r *record.Run) {
	parts := ""
	if len(r.Sockets.Parts) < len(sockets.Parts()) {
		parts = " " + strings.Join(r.Sockets.Parts, " ")
	}
	mode := ""
	if r.Quick {
		mode = " --quick"
	}
	var names []string
	for _, a := range r.Arms {
		names = append(names, a.Name)
	}
	w.line("")
	w.line("## Repeat it")
	w.line("")
	w.line("With Go and Debian's package nginx-light, on a machine that does nothing else, where a process may hold 20,000 descriptors (`ulimit -Hn`):")
	w.line("")
	w.line("```")
	w.line("bench/run ws%s%s --seed %d --arms %s", parts, mode, r.Seed, strings.Join(names, ","))
	w.line("```")
	w.line("")
	w.line("What was started (DIR: a folder of the server's own, UPSTREAM: the port of what it is in front of; nginx.conf is [peers/nginx/ws.conf.tmpl](peers/nginx/ws.conf.tmpl) filled in):")
	w.line("")
	w.line("```")
	for _, c := range r.Sockets.Commands {
		w.line("%-9s %-14s %s", c.Arm, c.Mode, c.Command)
	}
	w.line("```")
	w.line("")
	w.line("The raw figures of each slot are written to bench/out as JSON; those of a whole run are kept in [results/websocket.json](results/websocket.json).")
}
