//go:build !small

package engine

import (
	"log/slog"

	"millrace/internal/ops/admin"
	"millrace/internal/server"
	"millrace/internal/server/certs"
	"millrace/internal/server/h3"
	"millrace/store"
)

// http3 is what a small build does not have.
func http3() server.HTTP3 { return h3.Open }

func openCertifier(o server.AutoOptions, kept store.Store, errorLog *slog.Logger) (certifier, error) {
	m, err := certs.Open(o, kept, errorLog)
	if err != nil {
		return nil, err // no *certs.Manager that is nil
	}
	return manager{m}, nil
}

// manager is a [certs.Manager] whose states are in the form that the admin listener
// sends.
type manager struct{ *certs.Manager }

// Status lists the state of all names.
func (m manager) Status() []admin.Certificate {
	states := m.Manager.Status()
	list := make([]admin.Certificate, len(states))
	for i := range states {
		list[i] = admin.Certificate(states[i])
	}
	return list
}
