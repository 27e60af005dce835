package report

import (
	"fmt"
	"slices"
	"time"

	servers "millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/record"
	"millrace/bench/subjects/internal/stats"
)

// The bars: what bench/run ws must show.
const (
	maxEcho      = 0.8 // CPU per message, of gws's
	barSize      = 20  // bytes of those messages
	barFrom      = 200 // connections, or more
	maxDelivery  = 0.8 // CPU per delivery, of gws's
	barAudience  = 10_000
	maxLag       = 1.0  // 99th percentile, of gws's
	maxIdle      = 512  // bytes of a quiet connection with a subscription
	maxIdleTLS   = 14e3 // over TLS
	maxIdleProxy = 1e3  // passed on

	socketBase = "gws"
)

// Sockets is WEBSOCKET.md of a run of the scenario ws.
func Sockets(r *record.Run) string {
	w := &writer{}
	w.head(r)
	for _, note := range r.Sockets.Notes {
		w.line("")
		w.line("**%s.**", note)
	}
	w.bars(r, nil)
	w.losses(r, nil)
	w.echoes(r)
	w.casts(r)
	w.idle(r)
	w.ramps(r)
	w.socketMethod(r)
	w.socketRepeat(r)
	return w.String()
}

// socketCell is one kind of slot: an echo, or a broadcast.
type socketCell struct {
	n    int           // connections
	size int           // bytes of an echo's message; 0: a broadcast
	pace time.Duration // of a broadcast
}

func (c socketCell) title() string {
	if c.size > 0 {
		return fmt.Sprintf("%d bytes, %s connections", c.size, thousands(float64(c.n)))
	}
	return fmt.Sprintf("1 → %s, %s a second", thousands(float64(c.n)), perSecond(c.pace))
}

func perSecond(every time.Duration) string { return fmt.Sprintf("%.4g", 1/every.Seconds()) }

func echoCell(e record.SocketEcho) socketCell { return socketCell{n: e.Connections, size: e.Size} }
func castCell(c record.SocketCast) socketCell { return socketCell{n: c.Subscribers, pace: c.Every} }

// socketCells are those of the run, in the order of the tables.
func socketCells(r *record.Run) (echoes, casts []socketCell) {
	for _, e := range r.Sockets.Echoes {
		echoes = append(echoes, echoCell(e))
	}
	for _, c := range r.Sockets.Casts {
		casts = append(casts, castCell(c))
	}
	for _, list := range []*[]socketCell{&echoes, &casts} {
		slices.SortFunc(*list, func(a, b socketCell) int {
			for _, d := range []int{a.size - b.size, a.n - b.n, int(b.pace - a.pace)} {
				if d != 0 {
					return d
				}
			}
			return 0
		})
		*list = slices.Compact(*list)
	}
	return echoes, casts
}

// socketFigure is a figure of a slot of either kind.
type socketFigure struct {
	figure
	echo func(record.SocketEcho) float64
	cast func(record.SocketCast) float64
}

// of is the figure of an arm in a cell, by round.
func (f socketFigure) of(r *record.Run, name string, c socketCell) byRound {
	b := byRound{}
	for _, e := range r.Sockets.Echoes {
		if c.size > 0 && e.Arm == name && echoCell(e) == c {
			b[e.Round] = f.echo(e)
		}
	}
	for _, s := range r.Sockets.Casts {
		if c.size == 0 && s.Arm == name && castCell(s) == c {
			b[s.Round] = f.cast(s)
		}
	}
	return b
}

func us(d time.Duration, n uint64) float64 { return d.Seconds() * 1e6 / float64(n) }
func ms(d time.Duration) float64           { return d.Seconds() * 1e3 }

// The figures of slots.
const (
	fCPU = iota
	fClient
	fRate
	fP50
	fP99
	fMax
)

// socketFigures are all, at the indices above.
func socketFigures() []socketFigure {
	micro := func(v float64) string { return fmt.Sprintf("%.2f µs", v) }
	one := func(name string, better int, format func(float64) string, echo func(record.SocketEcho) float64, cast func(record.SocketCast) float64) socketFigure {
		return socketFigure{figure{name: name, better: better, format: format}, echo, cast}
	}
	return []socketFigure{
		one("CPU of the server", -1, micro,
			func(e record.SocketEcho) float64 { return us(e.Server.Total, e.Messages) },
			func(c record.SocketCast) float64 { return us(c.Server.Total, c.Delivered) }),
		one("CPU of the client", -1, micro,
			func(e record.SocketEcho) float64 { return us(e.Client.Total, e.Messages) },
			func(c record.SocketCast) float64 { return us(c.Client.Total, c.Delivered) }),
		one("messages/s", +1, thousands,
			func(e record.SocketEcho) float64 { return float64(e.Messages) / e.Took.Seconds() },
			func(c record.SocketCast) float64 { return float64(c.Delivered) / c.Took.Seconds() }),
		one("median", -1, milliseconds,
			func(e record.SocketEcho) float64 { return ms(e.P50) }, func(c record.SocketCast) float64 { return ms(c.P50) }),
		one("99th percentile", -1, milliseconds,
			func(e record.SocketEcho) float64 { return ms(e.P99) }, func(c record.SocketCast) float64 { return ms(c.P99) }),
		one("greatest", -1, milliseconds,
			func(e record.SocketEcho) float64 { return ms(e.Max) }, func(c record.SocketCast) float64 { return ms(c.Max) }),
	}
}

// ofBase is our figure in a cell as a ratio to gws's.
func (f socketFigure) ofBase(r *record.Run, c socketCell) stats.Summary {
	return stats.Ratios(f.of(r, own(false), c), f.of(r, socketBase, c))
}

// each is the memory of a quiet connection, as a figure of one round.
func each(r *record.Run, name string, m servers.Mode) byRound {
	for _, i := range r.Sockets.Idle {
		if i.Arm == name && i.Mode == string(m) {
			return byRound{1: i.Each()}
		}
	}
	return nil
}

// socketBars are all of bench/run ws.
func socketBars(r *record.Run) []bar {
	figures := socketFigures()
	var list []bar
	echoes, casts := socketCells(r)
	for _, c := range echoes {
		if c.size == barSize && c.n >= barFrom {
			list = append(list, bar{"CPU per echo of gws's, " + c.title(), figures[fCPU].ofBase(r, c), maxEcho, false, ratio})
		}
	}
	for _, c := range casts {
		if c.n >= barAudience {
			list = append(list,
				bar{"CPU per delivery of gws's, " + c.title(), figures[fCPU].ofBase(r, c), maxDelivery, false, ratio},
				bar{"99th percentile of the lag of gws's, " + c.title(), figures[fP99].ofBase(r, c), maxLag, false, ratio})
		}
	}
	failed, lost := oursOf(r.Sockets.Echoes, func(e record.SocketEcho) (string, uint64) { return e.Arm, e.Failed }),
		oursOf(r.Sockets.Casts, func(c record.SocketCast) (string, uint64) { return c.Arm, c.Lost + c.Doubled + c.Refused })
	list = append(list,
		bar{"Failed echoes of millrace", failed, 0, false, thousands},
		bar{"Deliveries of millrace that were lost, doubled or refused", lost, 0, false, thousands},
		bar{"Memory of a quiet connection with a subscription", each(r, own(false), servers.Channels).summary(), maxIdle, false, byteCount},
		bar{"Memory of a quiet connection over TLS", each(r, own(false), servers.TLS).summary(), maxIdleTLS, false, byteCount},
		bar{"Memory of a quiet connection that is passed on", each(r, own(false), servers.Proxy).summary(), maxIdleProxy, false, byteCount},
		bar{"Idle connections of millrace that did not stay open", oursOf(r.Sockets.Idle, func(i record.SocketIdle) (string, uint64) {
			return i.Arm, uint64(i.Connections - i.Open)
		}), 0, false, thousands})
	for _, s := range r.Sockets.Ramps {
		if s.Arm == own(false) {
			list = append(list, bar{fmt.Sprintf("Failed of %s connections to %s", thousands(float64(s.Connections)), processes(s.Servers)), one(float64(s.Failed)), 0, false, thousands})
		}
	}
	return list
}

// oursOf is the sum of a count over what millrace did.
func oursOf[T any](list []T, count func(T) (name string, n uint64)) stats.Summary {
	sum, found := uint64(0), false
	for _, v := range list {
		if name, n := count(v); name == own(false) {
			sum, found = sum+n, true
		}
	}
	if !found {
		return stats.Summarise(nil)
	}
	return one(float64(sum))
}

func byteCount(v float64) string { return thousands(v) + " B" }

func processes(n int) string {
	if n == 1 {
		return "one process"
	}
	return fmt.Sprintf("%d processes", n)
}

// socketComparisons are all figures of ours with a peer's beside them.
func socketComparisons(r *record.Run) []compared {
	var list []compared
	figures := socketFigures()
	echoes, casts := socketCells(r)
	mine := own(false)
	if _, ok := arm(r, mine); !ok {
		return nil
	}
	for _, peer := range r.Arms {
		if peer.Ours {
			continue
		}
		for _, c := range slices.Concat(echoes, casts) {
			for _, i := range []int{fCPU, fRate, fP50, fP99, fMax} {
				f := figures[i]
				switch {
				case c.size == 0 && i == fRate:
					continue // it is what was published
				case c.size > 0 && i == fMax:
					continue // of a second: chance
				}
				list = append(list, compared{f.figure, c.title(), peer, f.of(r, mine, c), f.of(r, peer.Name, c)})
			}
		}
		memory := figure{name: "memory of each", better: -1, format: byteCount}
		for _, m := range []servers.Mode{servers.Echo, servers.TLS, servers.Proxy} {
			list = append(list, compared{memory, "idle, " + string(m), peer, each(r, mine, m), each(r, peer.Name, m)})
		}
		opened := figure{name: "time to open all", better: -1, format: func(v float64) string { return fmt.Sprintf("%.2f s", v) }}
		cost := figure{name: "CPU for each", better: -1, format: func(v float64) string { return fmt.Sprintf("%.1f µs", v) }}
		for _, s := range r.Sockets.Ramps {
			if s.Arm != peer.Name {
				continue
			}
			where := fmt.Sprintf("%s connections to %s", thousands(float64(s.Connections)), processes(s.Servers))
			for _, o := range r.Sockets.Ramps {
				if o.Arm == mine && o.Connections == s.Connections && o.Servers == s.Servers {
					list = append(list,
						compared{opened, where, peer, byRound{1: o.Opened.Seconds()}, byRound{1: s.Opened.Seconds()}},
						compared{cost, where, peer, byRound{1: rampCost(o)}, byRound{1: rampCost(s)}})
				}
			}
		}
	}
	return list
}

// rampCost is what a connection of a ramp cost its server, in µs.
func rampCost(s record.SocketRamp) float64 { return us(s.Server.Total, uint64(s.Echoed)) }

// socketUses are what the slots took of the machine.
func socketUses(r *record.Run) []record.SocketUse {
	if r.Sockets == nil {
		return nil
	}
	var list []record.SocketUse
	for _, e := range r.Sockets.Echoes {
		list = append(list, e.SocketUse)
	}
	for _, c := range r.Sockets.Casts {
		list = append(list, c.SocketUse)
	}
	return list
}
