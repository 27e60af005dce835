// Package proxy passes requests on to an upstream and answers with what it
// says: uploads, streams, upgrades, trailers and interim responses included.
// It is the job of a route "proxy", and what the cache does with whatever it
// does not keep.
package proxy

import (
	"log/slog"
	"net/http"

	"millrace/internal/upstream"
)

// Options of the job.
type Options struct {
	upstream.Options `yaml:",inline"`
	// TrustForwarded lists networks (CIDR) of clients whose Forwarded and X-Forwarded-* are
	// appended to; everyone else's are replaced.
	TrustForwarded []string `yaml:"trust_forwarded"`
}

// UnmarshalText lets a route say "proxy: http://127.0.0.1:5000".
func (o *Options) UnmarshalText(text []byte) error { panic("not built") }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { panic("not built") }

// Handler is the reverse proxy.
type Handler struct{}

// New returns a proxy to a pool, which stays the caller's.
func New(o Options, p http.RoundTripper, errorLog *slog.Logger) (*Handler, error) { panic("not built") }

// ServeHTTP passes r on.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("not built") }

// Serve is ServeHTTP with a look at the response's header, which seen may change, before it goes out.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, seen func(*http.Response)) {
	panic("not built")
}

// Outgoing is a clone of r for the upstream: without connection-level fields
// (RFC 9110, 7.6.1), with Forwarded, X-Forwarded-For, -Proto and -Host and Via, and the Host that Options say.
// Its body is r's.
func (h *Handler) Outgoing(r *http.Request) *http.Request { panic("not built") }

// Strip removes connection-level fields from a response's header, and fields that are ours to set.
func Strip(h http.Header) { panic("not built") }

// Fail answers for an upstream that did not: 502, 503 or 504 with an id that
// the error log has as well.
func (h *Handler) Fail(w http.ResponseWriter, r *http.Request, err error) { panic("not built") }
