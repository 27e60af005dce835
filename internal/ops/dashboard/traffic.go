package dashboard

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
)

// most is how many rows a list of paths, clients or requests has.
const most = 15

// build makes all panels. d.mu must be held.
func (d *Dashboard) build(now time.Time) []Panel {
	if d.source.Gather != nil {
		d.source.Gather()
	}
	look := d.source.Recent.Look(now, most)
	var upstreams []Upstream
	if d.source.Upstreams != nil {
		upstreams = d.source.Upstreams()
	}
	var certs []Certificate
	if d.source.Certificates != nil {
		certs = d.source.Certificates()
	}
	var shared []Store
	if d.source.Stores != nil {
		shared = d.source.Stores()
	}
	all := []Panel{
		d.summary(now),
		d.problems(now, upstreams, certs, shared),
		d.latency(),
		d.traffic(),
		d.caches(),
		d.images(),
		d.webSockets(),
		d.plugins(),
		servers(upstreams),
		stores(shared),
		certificates(certs),
		d.protocols(look),
		counted("urls", "Top URLs", "path", "URL", look.Paths, look.Usual),
		counted("missing", "Not found", "path", "URL", look.Missing, look.Notable),
		counted("clients", "Clients", "address", "Address", look.Clients, look.Usual),
		d.refused(),
	}
	if d.source.Panels != nil {
		all = append(all, d.source.Panels()...)
	}
	if !slices.ContainsFunc(all, func(p Panel) bool { return p.ID == slowID }) {
		all = append(all, slowest(look.Slowest))
	}
	return append(all, d.tail("", tailRows), d.profiles.panel(), d.pastActions())
}

// summary says in a few figures how the server is.
func (d *Dashboard) summary(now time.Time) Panel {
	r, m := d.recorder, d.source.Meters
	diff, span := r.lately()
	rate := func(n uint64) float64 { return float64(n) / span.Seconds() }
	var s second
	if n := len(r.seconds); n > 0 {
		s = r.seconds[n-1]
	}
	p := Panel{
		ID: summaryID, Title: "Now",
		Note:    "Rates, p50 and p99 are those of the last 10 to 20 seconds; the drawings show the last five minutes.",
		Columns: []Column{{Key: "what", Name: "what"}, {Key: "value", Name: "value"}, {Key: "number", Name: "number", Hidden: true}},
	}
	add := func(what string, u Unit, v any) {
		p.Rows = append(p.Rows, Row{Values: []any{what, Show(u, v), v}})
	}
	// Those of cards come first.
	add("requests per second", Rate, rate(diff.Requests()))
	add("errors (5xx) per second", Rate, rate(diff.Between(500, 599)))
	add("p50", Seconds, took(diff.Latency.Quantile(0.5)))
	add("p99", Seconds, took(diff.Latency.Quantile(0.99)))
	add("sent per second", ByteRate, rate(diff.Bytes))
	add("open connections", Count, float64(m.Connections.Load()))
	cores := runtime.GOMAXPROCS(0)
	p.Rows = append(p.Rows, Row{Values: []any{"CPU, in cores", "", nil}})
	if s.cpu > 0 {
		p.Rows[len(p.Rows)-1].Values = []any{"CPU, in cores", fmt.Sprintf("%.2f of %d", s.cpu.Seconds(), cores), s.cpu.Seconds()}
	}
	add("memory", Bytes, known(float64(s.memory)))
	p.Cards = cards(p.Rows, r.seconds, cores)
	add("up for", Seconds, now.Sub(d.source.Started).Seconds())
	add("requests since the start", Count, float64(r.last.sum.Requests()))
	add("answers in the fast lane", Count, float64(m.LaneEntries.Load()))
	add("their size", Bytes, float64(m.LaneBytes.Load()))
	p.Rows = append(p.Rows, Row{Values: []any{"version", d.source.Version, nil}})
	return p
}

// known is a figure that is never zero, or nil where it is.
func known(v float64) any {
	if v == 0 {
		return nil
	}
	return v
}

// latency is the heat strip.
func (d *Dashboard) latency() Panel {
	p := Panel{
		ID: latencyID, Title: "How long requests take",
		Note:    "Each column is five seconds, each row a range of times: the stronger the colour, the more requests. Errors count as well.",
		Columns: []Column{{Key: "upto_seconds", Name: "up to", Unit: Seconds}, {Key: "requests", Name: "requests in five minutes", Unit: Count}, {Key: "share", Name: "share", Unit: Share}},
		Empty:   "No request has come in the last five minutes.",
	}
	var rows [heatRows]uint64
	var all uint64
	for _, s := range d.recorder.seconds {
		for i, n := range s.heat {
			rows[i] += n
			all += n
		}
	}
	if all == 0 {
		return p
	}
	for i, n := range rows {
		var upTo any // the last one has no end
		if i < len(heatBounds) {
			upTo = heatBounds[i].Seconds()
		}
		p.Rows = append(p.Rows, Row{Values: []any{upTo, float64(n), ratio(float64(n), float64(all))}})
	}
	p.Heat = heatOf(d.recorder.seconds)
	return p
}

// traffic is by site, route, job and lane.
func (d *Dashboard) traffic() Panel {
	p := Panel{
		ID: "traffic", Title: "Traffic",
		Note: "Lane: fast are finished answers, through is what the job answered without net/http, slow came by net/http.",
		Columns: []Column{
			{Key: "site", Name: "site"},
			{Key: "route", Name: "route"},
			{Key: "job", Name: "job"},
			{Key: "lane", Name: "lane"},
			{Key: "requests", Name: "requests", Unit: Count},
			{Key: "requests_per_second", Name: "rate", Unit: Rate},
			{Key: "p50_seconds", Name: "p50", Unit: Seconds},
			{Key: "p99_seconds", Name: "p99", Unit: Seconds},
			{Key: "client_errors", Name: "4xx", Unit: Count},
			{Key: "server_errors", Name: "5xx", Unit: Count},
			{Key: "bytes", Name: "sent", Unit: Bytes},
			{Key: "bytes_per_second", Name: "sent/s", Unit: ByteRate},
		},
		Empty: "No request has come yet.",
	}
	_, span := d.recorder.lately()
	for _, j := range d.source.Meters.Jobs() {
		for lane, name := range laneNames {
			all, lately := d.recorder.of(j, lane)
			if all.Requests() == 0 {
				continue
			}
			level := Fine
			if failed := lately.Between(500, 599); failed > 0 {
				level = Warn
				if failed*20 > lately.Requests() {
					level = Bad
				}
			}
			p.Rows = append(p.Rows, Row{level, []any{
				j.Site, j.Route, j.Name, name,
				float64(all.Requests()), float64(lately.Requests()) / span.Seconds(),
				took(lately.Latency.Quantile(0.5)), took(lately.Latency.Quantile(0.99)),
				float64(all.Between(400, 499)), float64(all.Between(500, 599)),
				float64(all.Bytes), float64(lately.Bytes) / span.Seconds(),
			}})
		}
	}
	slices.SortStableFunc(p.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Values[5].(float64), a.Values[5].(float64)), cmp.Compare(b.Values[4].(float64), a.Values[4].(float64)))
	})
	return p
}

// protocols are the shares of protocols among requests, and of versions among TLS
// handshakes.
func (d *Dashboard) protocols(look accesslog.Look) Panel {
	p := Panel{
		ID: "protocols", Title: "Protocols and TLS",
		Note:    "Requests are those of the last five to ten minutes" + sampled(look.Usual) + "; handshakes are all since the start, on TCP.",
		Columns: []Column{{Key: "of", Name: "of"}, {Key: "protocol", Name: "protocol"}, {Key: "count", Name: "count", Unit: Count}, {Key: "share", Name: "share", Unit: Share}},
	}
	var all uint64
	for _, c := range look.Protocols {
		all += c.N
	}
	for _, c := range look.Protocols {
		p.Rows = append(p.Rows, Row{Values: []any{"requests", c.Name, float64(c.N), ratio(float64(c.N), float64(all))}})
	}
	t := &d.source.Meters.TLS
	v12, v13, failed := float64(t.V12.Load()), float64(t.V13.Load()), float64(t.Failed.Load())
	for _, row := range []struct {
		name string
		n    float64
	}{{"TLS 1.3", v13}, {"TLS 1.2", v12}, {"resumed (of both)", float64(t.Resumed.Load())}, {"failed", failed}} {
		if v12+v13+failed > 0 {
			p.Rows = append(p.Rows, Row{Values: []any{"handshakes", row.name, row.n, ratio(row.n, v12+v13+failed)}})
		}
	}
	return p
}

// sampled says in a note how far figures are estimates.
func sampled(one uint64) string {
	if one <= 1 {
		return ""
	}
	return fmt.Sprintf(", estimated from one in %d", one)
}

// counted is a list of names by how often they came.
func counted(id, title, key, name string, list []accesslog.Count, one uint64) Panel {
	p := Panel{
		ID: id, Title: title, Empty: "No such request has come in the last ten minutes.",
		Note:    "Of the last five to ten minutes" + sampled(one) + ".",
		Columns: []Column{{Key: key, Name: name}, {Key: "requests", Name: "requests", Unit: Count}, {Key: "at_most_over", Name: "at most too many", Unit: Count}},
	}
	over := false
	for _, c := range list {
		over = over || c.Over > 0
		p.Rows = append(p.Rows, Row{Values: []any{c.Name, float64(c.N), float64(c.Over)}})
	}
	if !over { // the usual case: a column of zeros says nothing
		p.Columns = p.Columns[:2]
		for i := range p.Rows {
			p.Rows[i].Values = p.Rows[i].Values[:2]
		}
	}
	return p
}

// The panels that are no tables, or not at first.
const (
	summaryID = "now"
	latencyID = "latency"
)

// slowID is the panel of slow requests.
const slowID = "slow"

// requestColumns are those of single requests.
func requestColumns() []Column {
	return []Column{
		{Key: "time", Name: "time", Unit: Moment},
		{Key: "status", Name: "status"},
		{Key: "method", Name: "method"},
		{Key: "target", Name: "target"},
		{Key: "duration_seconds", Name: "took", Unit: Seconds},
		{Key: "bytes", Name: "sent", Unit: Bytes},
		{Key: "host", Name: "host"},
		{Key: "remote", Name: "client"},
		{Key: "protocol", Name: "protocol"},
		{Key: "lane", Name: "lane"},
	}
}

func requestRow(e *accesslog.Entry) Row {
	level := Fine
	switch {
	case e.Status >= 500:
		level = Bad
	case e.Status >= 400:
		level = Warn
	}
	return Row{level, []any{
		e.Time, fmt.Sprint(e.Status), e.Method, e.Target,
		e.Duration.Seconds(), float64(e.Bytes), e.Host, e.Remote, e.Proto, e.Lane,
	}}
}

func slowest(list []accesslog.Entry) Panel {
	p := Panel{ID: slowID, Title: "Slowest requests", Note: "Of the last ten minutes.", Columns: requestColumns()}
	for i := range list {
		p.Rows = append(p.Rows, requestRow(&list[i]))
	}
	return p
}

// The bounds of the log's tail.
const (
	tailRows  = 25
	allRows   = 200 // on its own page
	maxFilter = 200 // bytes
	tailID    = "log"
)

// tail is the end of the log: what has all words of a filter, of which 4xx and 5xx
// mean a class of statuses.
func (d *Dashboard) tail(filter string, rows int) Panel {
	p := Panel{ID: tailID, Title: "Log", Columns: requestColumns(), Empty: "No request has come yet."}
	words := strings.Fields(strings.ToLower(filter[:min(len(filter), maxFilter)]))
	if len(words) > 0 {
		p.Empty = "None of the last requests has all of these words."
	}
	look := d.source.Recent.Look(time.Now(), 0)
	if look.Usual > 1 || look.Notable > 1 {
		p.Note = fmt.Sprintf("So many requests come that one in %d is shown, and one in %d of errors and of what takes more than half a second.", look.Usual, look.Notable)
	}
	list := d.source.Recent.Tail(rows, func(e *accesslog.Entry) bool {
		line := strings.ToLower(fmt.Sprintf("%s %s %s%s %d %s %s", e.Remote, e.Method, e.Host, e.Target, e.Status, e.Proto, e.Lane))
		return !slices.ContainsFunc(words, func(w string) bool {
			if len(w) == 3 && strings.HasSuffix(w, "xx") {
				return w[0] != fmt.Sprint(e.Status)[0]
			}
			return !strings.Contains(line, w)
		})
	})
	for i := range list {
		p.Rows = append(p.Rows, requestRow(&list[i]))
	}
	return p
}

// reasons adds up what was counted under words that f takes.
func reasons(r *meter.Reasons, f func(reason string) bool) (n float64) {
	r.Each(func(reason string, count uint64) {
		if f == nil || f(reason) {
			n += float64(count)
		}
	})
	return n
}
