package dashboard

import (
	"millrace/internal/observe/meter"
)

// Store is a server that several machines share: a Redis, a bucket, NATS.
type Store struct {
	*meter.Store
	Trouble string // why it cannot be used now; empty: it can
	Waiting int64  // purges or publications that wait for it
}

// stores are the shared servers.
func stores(list []Store) Panel {
	p := Panel{
		ID: "stores", Title: "Shared stores",
		Note: "What several machines share. While one is down, this machine goes on without it. Waiting are purges and publications that the others get when it is back.",
		Columns: []Column{
			{Key: "store", Name: "store"},
			{Key: "server", Name: "server"},
			{Key: "use", Name: "for"},
			{Key: "state", Name: "state"},
			{Key: "waiting", Name: "waiting", Unit: Count},
			{Key: "calls", Name: "calls", Unit: Count},
			{Key: "errors", Name: "errors", Unit: Count},
			{Key: "p99_seconds", Name: "p99", Unit: Seconds},
			{Key: "hits", Name: "found", Unit: Count},
			{Key: "misses", Name: "not found", Unit: Count},
			{Key: "read_bytes", Name: "read", Unit: Bytes},
			{Key: "written_bytes", Name: "written", Unit: Bytes},
			{Key: "trouble", Name: "why"},
		},
	}
	for _, s := range list {
		level, state := Fine, "up"
		switch {
		case s.Trouble != "":
			level, state = Bad, "down"
		case s.Waiting > 0:
			level = Warn
		}
		calls := s.Calls.Snapshot()
		p.Rows = append(p.Rows, Row{level, []any{
			s.Kind, s.Server, s.Use, state, float64(s.Waiting), float64(calls.Count()), float64(s.Errors.Load()), took(calls.Quantile(0.99)),
			float64(s.Hits.Load()), float64(s.Misses.Load()), float64(s.Read.Load()), float64(s.Written.Load()), brief(s.Trouble),
		}})
	}
	return p
}

// down is what is wrong with a shared server, and what to do about it.
func (s *Store) down() (what, do string) {
	goes := map[string]string{
		"redis": "It goes on with what it has itself; purges wait.",
		"s3":    "It goes on with what it has itself.",
		"nats":  "Clients here go on with each other; publications wait.",
	}
	return s.Kind + " at " + s.Server + " cannot be used for the " + s.Use + ": " + brief(s.Trouble), goes[s.Kind]
}
