package engine

import (
	"fmt"
	"time"

	"millrace/internal/config"
	"millrace/internal/ops/dashboard"
	"millrace/internal/ops/slow"
)

// slowOptions are those of a config.
func slowOptions(cfg *config.Config) slow.Options {
	if cfg.SlowRequests == nil {
		return slow.Options{}
	}
	return *cfg.SlowRequests
}

// keepSlow makes the store of slow requests, which the admin listener shows.
func (s *Server) keepSlow() *slow.Store {
	return slow.New(slowOptions(s.config), s.meters, func(err error) {
		s.errors.Warn("no trace of the runtime is kept of slow requests", "err", err)
	})
}

// slowRows is how many slow requests the dashboard shows.
const slowRows = 15

// slowPanels is the dashboard's panel of slow requests.
func (s *Server) slowPanels() []dashboard.Panel {
	list := s.slow.List()
	if list.Off {
		return nil
	}
	p := dashboard.Panel{
		ID: "slow", Title: "Slow requests", Empty: "No request has taken far longer than its route's others.",
		Note: "Far slower than their route's p99, the youngest first, and what they waited for. What the fast lane answers is not looked at. `millrace slow` shows all steps.",
		Columns: []dashboard.Column{
			{Key: "number", Name: "no."},
			{Key: "time", Name: "time", Unit: dashboard.Moment},
			{Key: "status", Name: "status"},
			{Key: "method", Name: "method"},
			{Key: "target", Name: "target"},
			{Key: "duration_seconds", Name: "took", Unit: dashboard.Seconds},
			{Key: "p99_seconds", Name: "p99 of the route", Unit: dashboard.Seconds},
			{Key: "mostly", Name: "mostly"},
			{Key: "mostly_seconds", Name: "for", Unit: dashboard.Seconds},
			{Key: "note", Name: "of"},
			{Key: "host", Name: "host"},
			{Key: "remote", Name: "client"},
		},
	}
	if more := list.Seen - uint64(len(list.Entries)); list.Seen > uint64(len(list.Entries)) {
		p.Note += fmt.Sprintf(" %d more were not kept.", more)
	}
	for _, e := range list.Entries[:min(len(list.Entries), slowRows)] {
		step, own, ok := e.Mostly()
		what := "this server itself"
		if ok {
			what = slow.About(step.Kind)
		}
		var p99 any
		if e.P99 > 0 {
			p99 = e.P99.Seconds()
		}
		level := dashboard.Fine
		if e.Status >= 500 {
			level = dashboard.Bad
		}
		p.Rows = append(p.Rows, dashboard.Row{Level: level, Values: []any{
			fmt.Sprint(e.Number), e.Began.Round(time.Millisecond), fmt.Sprint(e.Status), e.Method, e.Target,
			e.Took.Seconds(), p99, what, own.Seconds(), step.Note, e.Host, e.Client,
		}})
	}
	return []dashboard.Panel{p}
}
