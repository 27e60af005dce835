package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/cache/purge"
	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/internal/lane"
	"millrace/internal/process/handover"
	"millrace/websocket/conn"
)

// defaultUpgradeTimeout is how long an old process may go on after an upgrade.
const defaultUpgradeTimeout = 10 * time.Minute

// Sockets are descriptors of all that the server listens on, for a successor,
// which has the paths of UNIX sockets as well until [Server.TakeSocketsBack].
func (s *Server) Sockets() (all handover.Sockets, err error) {
	if all.Public, err = s.server.Files(); err != nil {
		return all, err //nolint:wrapcheck // it says what was done
	}
	if all.Admin, err = s.admin.File(); err != nil {
		all.Close()
		s.TakeSocketsBack()
		return all, err //nolint:wrapcheck // the same
	}
	return all, nil
}

// TakeSocketsBack says that the successor has failed.
func (s *Server) TakeSocketsBack() {
	s.server.ReclaimPaths()
	s.admin.TakeBack()
}

// Cool resets the counters of hot requests. It is called some time before FreeFolders, so
// that the successor gets those of that time.
func (s *Server) Cool() { s.server.Cool() }

// FreeFolders closes the folders that only one process may have open: those of caches and
// of converted images. The server goes on without them, as with a disk that has failed.
// What it returns is for the successor, which is sent all purges from now on.
func (s *Server) FreeFolders(to *handover.Successor) (state handover.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed, s.maintenanceSent = true, true
	state.Predecessors, state.Tickets = s.predecessors, s.server.OwnTickets()
	if hot, err := json.Marshal(s.server.Hottest(mostHot, mostHotBytes)); err == nil { // texts
		state.Hot = hot
	}
	if s.closed != nil {
		state.Maintenance, _ = json.Marshal(s.closed) // a time and a bool
	}
	state.Proofs, state.Limits = s.proofs, s.limits.Save(time.Now())
	s.successor.Store(to) // what is purged before is in the folders
	for _, p := range s.graph.parts {
		if d, ok := p.what.(diskStore); ok {
			if err := d.Close(); err != nil {
				s.errors.Warn("closing a folder for the new process", "err", err)
			}
		}
	}
	return state
}

const (
	// mostHot and mostHotBytes bound what a successor asks for before it serves,
	// rehearsal how long that may take.
	mostHot      = 4096
	mostHotBytes = 1 << 20
	rehearsal    = time.Second
)

// warmUp serves the requests that were most frequent at the predecessor once, without
// a client, so that their answers are in memory when clients come.
func (s *Server) warmUp(hot json.RawMessage) {
	var list []lane.HotRequest
	if len(hot) == 0 || json.Unmarshal(hot, &list) != nil || len(list) == 0 {
		return // or another version's
	}
	ctx, cancel := context.WithTimeout(context.Background(), rehearsal)
	done := s.server.WarmUp(ctx, list[:min(len(list), mostHot)])
	s.retired.Go(func() { // Run waits
		<-done
		cancel()
	})
}

// purged is a purge for the successor.
type purged struct {
	Route string         `json:"route"`
	Purge purge.Selector `json:"purge"`
}

// forwardPurge sends a purge to the successor, if there is one.
func (s *Server) forwardPurge(route string, what purge.Selector) error {
	if next := s.successor.Load(); next != nil {
		return next.Notify(purged{route, what}) //nolint:wrapcheck // it says what was done
	}
	return nil
}

// HandleMessage applies a purge that the predecessor was sent during the upgrade.
func (s *Server) HandleMessage(news json.RawMessage) {
	var p purged
	if err := json.Unmarshal(news, &p); err != nil {
		s.errors.Warn("the process before this one says what this one does not understand: it is of another version", "err", err)
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, h := range s.graph.caches {
		if s.graph.caches[p.Route] != nil && name != p.Route {
			continue
		}
		if err := h.Purge(context.Background(), p.Purge); err != nil {
			s.errors.Warn("a purge from before the upgrade", "route", name, "err", err)
		}
	}
}

// inheritState restores what commands have set in the predecessor, such as maintenance.
// What cannot be read comes from another version: then the config decides.
func (s *Server) inheritState() {
	from := s.options.From
	if from == nil {
		return
	}
	if len(from.State.Proofs) > 0 {
		s.proofs = from.State.Proofs
	}
	s.predecessors = from.State.Predecessors + 1
	if len(from.State.Limits) > 0 {
		if t, err := admit.Restore(from.State.Limits); err == nil {
			s.limits = t
		} else {
			s.errors.Warn("rate limits count anew", "err", err)
		}
	}
	if len(from.State.Maintenance) == 0 {
		return
	}
	var m Maintenance
	if err := json.Unmarshal(from.State.Maintenance, &m); err != nil {
		s.errors.Warn("whether the sites are closed for maintenance is not known from the process before this one: the config counts", "err", err)
		return
	}
	s.closed = &m
}

// TakeFoldersBack opens them again, because the successor has failed.
func (s *Server) TakeFoldersBack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maintenanceSent = false
	s.successor.Store(nil)
	for name, h := range s.graph.caches {
		if err := h.SavePurges(); err != nil {
			s.errors.Warn("what was purged during the upgrade may come back after it", "route", name, "err", err)
		}
	}
	if err := s.reload(s.config); err != nil {
		return fmt.Errorf("opening the folders of caches and images again: %w", err)
	}
	return nil
}

// freedPart reports whether a part used a folder that was closed for a successor.
func (b *builder) freedPart(key string) bool {
	if !b.server.freed {
		return false
	}
	return slices.ContainsFunc([]string{"disk ", "variants ", "cache ", "images ", "remote "}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Retire says that a successor serves. When Run's context ends, connections live on for
// limits.upgrade_timeout. Subscribers of channels without a bus are told to reconnect at
// once, since what others publish goes to the successor. The admin listener is the
// successor's.
func (s *Server) Retire() {
	s.mu.RLock()
	timeout := s.config.Limits.UpgradeTimeout
	s.mu.RUnlock()
	if timeout <= 0 {
		timeout = defaultUpgradeTimeout
	}
	s.server.SetSuccessor(timeout, s.leaveAlone, s.leaveWebSockets)
	if err := s.admin.CloseShared(); err != nil {
		s.errors.Warn("closing the admin listener for the new process", "err", err)
	}
}

// Answer asks the event loops whether they go round, and returns when all of them
// have answered. The error says which one has not by the end of ctx.
func (s *Server) Answer(ctx context.Context) error {
	if err := s.server.Answer(ctx); err != nil {
		return err
	}
	s.mu.RLock()
	var engine *conn.Engine // all routes have the same one
	for _, r := range s.graph.websockets {
		engine = r.engine
	}
	s.mu.RUnlock()
	return engine.Answer(ctx)
}

// StartDrain ends the time that Retire gives: WebSockets are told to come back, and the
// drain begins.
func (s *Server) StartDrain() { s.server.DrainNow() }

// leaveAlone tells the subscribers of channels without a bus to reconnect.
func (s *Server) leaveAlone() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.graph.websockets {
		if r.alone {
			s.retired.Go(r.handler.Leave) // Run waits
		}
	}
}

// leaveWebSockets tells all WebSockets to reconnect (1012), each after a random time.
func (s *Server) leaveWebSockets() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all sync.WaitGroup
	for _, r := range s.graph.websockets {
		all.Go(r.handler.Leave)
	}
	all.Wait()
}

// keep remembers the config in use.
func (s *Server) keep(cfg *config.Config) {
	s.config = cfg
	s.freed = false
}
