package engine

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/internal/route/site"
)

// MaintenancePath is where the admin listener has the state of maintenance.
const MaintenancePath = "/maintenance/"

// Maintenance says whether the sites are closed.
type Maintenance struct {
	On bool `json:"on"`
	// Since is when a command has said so; zero: the config has.
	Since time.Time `json:"since,omitzero"`
}

// Maintenance is the state now.
func (s *Server) Maintenance() Maintenance {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closedNow()
}

// closedNow is Maintenance. s.mu must be held.
func (s *Server) closedNow() Maintenance {
	if s.closed != nil {
		return *s.closed
	}
	return Maintenance{On: s.config.Maintenance.On}
}

// SetMaintenance closes all sites or opens them again, until the next call or the server's
// end; a reload or an upgrade changes nothing about it. No connection is dropped.
func (s *Server) SetMaintenance(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.maintenanceSent {
		return errUpgrading
	}
	before := s.closed
	s.closed = &Maintenance{On: on, Since: time.Now()}
	err := s.reload(s.config)
	if err != nil {
		s.closed = before
	}
	return err
}

// errUpgrading: the new process has been told already what holds.
var errUpgrading = errors.New("an upgrade is under way: try again")

// closes adds the rule that answers 503, before all others, while the sites are closed.
func (b *builder) closes(rules []site.Rule) ([]site.Rule, error) {
	if !b.closed {
		return rules, nil
	}
	m, h, err := b.config.Maintenance.Compile(b.scope)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	first := site.Rule{Match: m, Route: &site.Route{Pattern: "maintenance", Handler: h, Job: b.server.meters.Job("maintenance")}}
	return slices.Insert(rules, 0, first), nil
}

// serveMaintenance is the admin listener's.
func (s *Server) serveMaintenance(w http.ResponseWriter, r *http.Request) {
	switch what := strings.TrimPrefix(r.URL.Path, MaintenancePath); {
	case what == "" && r.Method == http.MethodGet:
	case (what == "on" || what == "off") && r.Method == http.MethodPost:
		if err := s.SetMaintenance(what == "on"); err != nil {
			status := http.StatusInternalServerError
			if errors.Is(err, errUpgrading) {
				status = http.StatusConflict
			}
			http.Error(w, err.Error(), status)
			return
		}
	default:
		http.Error(w, "GET "+MaintenancePath+", or POST "+MaintenancePath+"on or off", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Maintenance()) // the client's loss
}
