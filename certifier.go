//go:build !small

package millrace

import (
	"log/slog"

	"millrace/internal/certs"
	"millrace/internal/server"
)

func openCertifier(o server.AutoOptions, errorLog *slog.Logger) (certifier, error) {
	m, err := certs.Open(o, errorLog)
	if err != nil {
		return nil, err // no *certs.Manager that is nil
	}
	return m, nil
}
