package dashboard

import (
	"strings"
	"time"

	"millrace/internal/observe/meter"
)

// scarcity is a place where something is lost or refused because there is no more room. If
// it is counted now, that is a problem.
type scarcity struct {
	what string // after the number
	do   string
	n    uint64 // since the start
}

// scarcities are all there are.
func scarcities(m *meter.Meters) []scarcity {
	all := []scarcity{
		{"lines of the access log were not written", "Is the disk full, or too slow?", m.LogDropped.Load()},
		{"connections were closed at once", "Scanners cause a few; many mean that a limit is reached (`limits.connections`) or TLS fails.", m.Rejected.Load()},
		{"requests were refused by a rate limit", "If they were visitors, raise `rate_limit`: `429` in the log shows them.", m.Refused.Rate.Load()},
		{"requests were refused since too many streams wait for their clients", "The panel Refused shows of which kind; more memory allows more of them.", m.Refused.TooMany.Load()},
		{"answers were evicted from the fast lane", "It is full: raise `lane.memory`.", m.LaneEvicted.Load()},
	}
	for _, c := range m.Caches() {
		all = append(all, scarcity{"answers were evicted from the cache of " + c.Route, "It is full: raise its `memory`.", c.Evicted.Load()})
	}
	for _, i := range m.AllImages() {
		all = append(all, scarcity{"images of " + i.Route + " were sent as they are since the queue is full", "It passes when they are converted; `millrace images ahead` does it before visitors come.", i.Shed.Load()})
	}
	for _, ws := range m.WebSockets() {
		all = append(all,
			scarcity{"WebSockets of " + ws.Route + " were refused", "The server's messages say why: a limit, a token or an origin.", ws.Refused.Load()},
			scarcity{"messages of " + ws.Route + " were dropped for clients that read too slowly", "Raise the route's `queue` if many clients are concerned.", uint64(reasons(&ws.Dropped, nil))})
	}
	for _, p := range m.Plugins() {
		all = append(all,
			scarcity{"requests found no instance of the plugin " + p.Module, "Raise its `instances`, or find out what keeps them busy: a slow upstream, slow uploads.", p.Refused.Load()},
			scarcity{"calls of the plugin " + p.Module + " failed", "The server's messages say why.", p.Traps.Load() + p.Timeouts.Load() + p.Starts.Load()})
	}
	return all
}

// scarce says of which there was something lately.
func (d *Dashboard) scarce(say func(l Level, do, what string, args ...any)) {
	last, base := d.recorder.last, d.recorder.base
	span := max(last.at.Sub(base.at), time.Second).Round(time.Second)
	for _, s := range scarcities(d.source.Meters) {
		n, ever := last.scarce[s.what]
		if lost := n - base.scarce[s.what]; ever && lost > 0 {
			what := s.what
			if lost == 1 { // one line, one connection
				what = singular(what)
			}
			say(Warn, s.do, "%s %s in the last %v", grouped(float64(lost)), what, span)
		}
	}
}

// singular is a text for one that was written for several.
func singular(text string) string {
	first, rest, _ := strings.Cut(text, " ")
	return strings.TrimSuffix(first, "s") + " " + strings.Replace(rest, "were ", "was ", 1)
}
