package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"millrace/internal/config"
	"millrace/internal/handover"
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
	s.server.TakePathsBack()
	s.admin.TakeBack()
}

// FreeFolders closes the folders that only one process may have open: those of
// caches and of converted images. The server goes on without them, as with a disk
// that has failed. What it returns is for the successor.
func (s *Server) FreeFolders() (state handover.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed, s.told = true, true
	if s.closed != nil {
		state.Maintenance, _ = json.Marshal(s.closed) // a time and a bool
	}
	state.Proofs = s.proofs
	for _, p := range s.graph.parts {
		if d, ok := p.what.(diskStore); ok {
			if err := d.Close(); err != nil {
				s.errors.Warn("closing a folder for the new process", "err", err)
			}
		}
	}
	return state
}

// inheritState takes over what commands have told the predecessor. What cannot be
// read is another version's: then the config counts.
func (s *Server) inheritState() {
	from := s.options.From
	if from == nil {
		return
	}
	if len(from.State.Proofs) > 0 {
		s.proofs = from.State.Proofs
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
	s.told = false
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

// freedPart reports whether a part has used a folder that was given away.
func (b *builder) freedPart(key string) bool {
	if !b.server.freed {
		return false
	}
	for _, prefix := range []string{"disk ", "variants ", "cache ", "images ", "remote "} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Retire says that a successor serves. When Run's context ends, what is under way
// goes on for limits.upgrade_timeout. The admin listener is the successor's.
func (s *Server) Retire() {
	s.mu.RLock()
	patience := s.config.Limits.UpgradeTimeout
	s.mu.RUnlock()
	if patience <= 0 {
		patience = defaultUpgradeTimeout
	}
	s.server.HandOver(patience, s.leaveWebSockets)
	if err := s.admin.HandOver(); err != nil {
		s.errors.Warn("closing the admin listener for the new process", "err", err)
	}
}

// Hurry ends the time that Retire gives: WebSockets are told to come back, and the
// drain begins.
func (s *Server) Hurry() { s.server.Hurry() }

// leaveWebSockets tells all WebSockets to come back (1012), each after a time of
// its own.
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
