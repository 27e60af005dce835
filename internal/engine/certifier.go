//go:build !small

package engine

import (
	"log/slog"

	"millrace/internal/certs"
	"millrace/internal/h3"
	"millrace/internal/server"
	"millrace/store"
)

// http3 is what a small build does not have.
func http3() server.HTTP3 { return h3.Open }

func openCertifier(o server.AutoOptions, kept store.Store, errorLog *slog.Logger) (certifier, error) {
	m, err := certs.Open(o, kept, errorLog)
	if err != nil {
		return nil, err // no *certs.Manager that is nil
	}
	return m, nil
}
