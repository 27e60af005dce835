// Package remote is a source of originals on other hosts, for sites whose
// pictures lie elsewhere: only from hosts on a list, never from private
// addresses, never more than a limit.
package remote

import (
	"log/slog"
	"net/http"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/original"
	"millrace/store"
)

// Options of a Source.
type Options struct {
	// From is the URL that the request's path is put behind:
	// https://pictures.example.org/archive. Required.
	From string `yaml:"from"`
	// Hosts are further hosts that a redirect may lead to. A name, a name
	// with a port, or *.example.org.
	Hosts []string `yaml:"hosts"`
	// Private allows addresses of private networks and of this machine
	// (RFC 1918, 4193, 3927, 6598, 1122 …), which are refused otherwise, after
	// the name was resolved.
	Private bool `yaml:"private"`
	// Largest is the largest file that is fetched. Default 25MiB.
	Largest bytesize.Size `yaml:"largest"`
	// Timeout of a whole fetch. Default 30 s.
	Timeout time.Duration `yaml:"timeout"`
	// Fresh is how long a file is used without asking for it again, where its
	// host does not say (RFC 9111: max-age). Default 5 min.
	Fresh time.Duration `yaml:"fresh"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { return nil }

// Source fetches originals, keeps them in a store, and serves them as they are.
type Source struct{}

// New makes a source that keeps what it fetches in keep, which stays the
// caller's.
func New(o Options, keep store.Store, errorLog *slog.Logger) (*Source, error) { panic("not built") }

// ServeHTTP serves the original.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("not built") }

// Original fetches the file if it has to, or asks whether it is still the same.
func (s *Source) Original(r *http.Request) (original.File, error) { panic("not built") }

// ServeOriginal serves the original under other terms.
func (s *Source) ServeOriginal(w http.ResponseWriter, r *http.Request, t original.Terms) {
	panic("not built")
}

// Close ends fetches under way.
func (s *Source) Close() error { panic("not built") }
