package engine

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"millrace/internal/observe/meter"
	"millrace/internal/ops/dashboard"
)

// sharedStores are the servers that several machines share (Redis, S3, NATS), as long as
// this process uses them.
type sharedStores struct {
	meters *meter.Meters
	mu     sync.Mutex
	open   []*sharedUse
}

// sharedUse is a shared server and what it is used for. A config that uses one for several
// purposes opens it several times.
type sharedUse struct {
	all      *sharedStores
	use      string
	errorLog *slog.Logger // names the use

	meters  *meter.Store
	server  sharedServer
	waiting func() int // purges or publications that wait for it; nil: none ever do
}

// sharedServer is an open store or bus.
type sharedServer interface {
	io.Closer
	Trouble() error // why it cannot be used now; nil: it can
}

// shared is for opening a shared server; use is as the operator reads it: "cache of /".
func (b *builder) shared(use string) *sharedUse { return b.server.shared.of(use, b.server.errors) }

func (s *sharedStores) of(use string, errorLog *slog.Logger) *sharedUse {
	return &sharedUse{all: s, use: use, errorLog: errorLog.With("use", use)}
}

// counters are for the options that a server is opened with.
func (u *sharedUse) counters(kind string) func(server string) *meter.Store {
	return func(server string) *meter.Store {
		u.meters = u.all.meters.Store(kind, server, u.use)
		return u.meters
	}
}

// opened notes that the server is in use, until Close, which closes it.
func (u *sharedUse) opened(server sharedServer) {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	u.server = server
	u.all.open = append(u.all.open, u)
}

// waits has waiting asked for what waits for the server.
func (u *sharedUse) waits(waiting func() int) {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	u.waiting = waiting
}

// Close closes the server.
func (u *sharedUse) Close() error {
	u.all.mu.Lock()
	u.all.open = slices.DeleteFunc(u.all.open, func(one *sharedUse) bool { return one == u })
	u.all.mu.Unlock()
	return u.server.Close()
}

// sharedState is how a shared server is, for one use.
type sharedState struct {
	open, down, waiting int64
	trouble             error // of one that is down
}

// states are those of the servers in use.
func (s *sharedStores) states() map[*meter.Store]sharedState {
	s.mu.Lock()
	open := slices.Clone(s.open)
	waiting := make([]func() int, len(open))
	for i, u := range open {
		waiting[i] = u.waiting
	}
	s.mu.Unlock()
	states := map[*meter.Store]sharedState{}
	for i, u := range open {
		is := states[u.meters]
		is.open++
		if err := u.server.Trouble(); err != nil {
			is.down++
			is.trouble = err
		}
		if waiting[i] != nil {
			is.waiting += int64(waiting[i]())
		}
		states[u.meters] = is
	}
	return states
}

// measure sets the gauges.
func (s *sharedStores) measure() {
	states := s.states()
	for _, m := range s.meters.Stores() {
		is := states[m]
		m.Open.Set(is.open)
		m.Down.Set(is.down)
		m.Waiting.Set(is.waiting)
	}
}

// list is what the dashboard shows.
func (s *sharedStores) list() []dashboard.Store {
	states := s.states()
	var list []dashboard.Store
	for _, m := range s.meters.Stores() {
		is, used := states[m]
		if !used {
			continue
		}
		one := dashboard.Store{Store: m, Waiting: is.waiting}
		if is.trouble != nil {
			one.Trouble = is.trouble.Error()
		}
		list = append(list, one)
	}
	return list
}

// degraded says which shared servers cannot be used, for whoever asks for the server's
// health: without their addresses, since that needs no token. "": all can.
func (s *sharedStores) degraded() string {
	var down []string
	for _, one := range s.list() {
		if one.Trouble != "" {
			down = append(down, one.Kind+" ("+one.Use+")")
		}
	}
	return strings.Join(down, ", ")
}
