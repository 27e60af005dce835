package server

import (
	"time"

	"millrace/internal/bytesize"
)

// Options are the limits of the server. A zero field has the default given
// beside it. Durations are checked about every quarter of the shortest one,
// at most once a second: they may be exceeded by that much.
type Options struct {
	// HeaderTimeout is how long a client may take from the first byte of a
	// request to the end of its header. Default 10s.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// BodyTimeout is how long an upload may make no progress. Default 30s.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// WriteTimeout is how long a client may take no byte of its answer. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// IdleTimeout is how long a connection may wait for its next request. Default 75s.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// HandshakeTimeout bounds the TLS handshake. Default 10s.
	HandshakeTimeout time.Duration `yaml:"handshake_timeout"`
	// DrainTimeout is how long running requests may take after SIGTERM. Default 30s.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// HeaderBytes is the most a request's header may have. Default 64KiB.
	HeaderBytes bytesize.Size `yaml:"header_bytes"`
	// BodyBytes is the most a request's body may have. Default 100MiB.
	BodyBytes bytesize.Size `yaml:"body_bytes"`
	// Connections is how many clients may be connected at once; further ones
	// wait in the kernel's queue. Default 16384.
	Connections int `yaml:"connections"`
}

// TLSOptions are the listeners that speak TLS.
type TLSOptions struct {
	// Listen are their addresses, as in the top-level listen.
	Listen []string `yaml:"listen"`
	// Cert and Key are PEM files, the certificate with its chain. They are
	// read again when they change.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// Redirect lets the plain listeners answer every request with a 308 to
	// the https address.
	Redirect bool `yaml:"redirect"`
}
