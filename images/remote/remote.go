// Package remote is a source of originals on other hosts, for sites whose
// images lie elsewhere: only from hosts on a list, never from private
// addresses, never more than a limit.
//
// A request's life: its path becomes a name or a 404 (name.go); what is known
// of the name, while it is fresh, answers (find.go); otherwise the host is
// asked, by one fetch however many wait (ask.go), through connections that are
// only made to public addresses (address.go); what comes is kept in a store with
// its validators (stored.go) and served from there (serve.go).
package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"millrace/internal/bytesize"
	"millrace/internal/observe/meter"
	"millrace/static/original"
	"millrace/store"
)

// Options of a Source.
type Options struct {
	// From is the URL that the request's path is appended to:
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

// Bounds and defaults.
const (
	// DefaultLargest is Options.Largest, in bytes, where that is 0.
	DefaultLargest = 25 << 20

	defaultTimeout = 30 * time.Second
	defaultFresh   = 5 * time.Minute
	// betweenLines is the time between two log lines about failures.
	betweenLines = time.Minute
	// mostFiles is how many files are known at once, at about 1 KiB each. What
	// is forgotten is found again in the store.
	mostFiles = 8192
	// mostFailures is how many names that led to nothing are remembered.
	mostFailures = 4096
	// mostWaiting is how many names may be waited for at once. More means that
	// the hosts are slower than the requests, and waiting would not end.
	mostWaiting = 256
	// mostFetches is how many requests to the hosts are under way at once. Each
	// has a connection and a buffer of 32 KiB.
	mostFetches = 16
)

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if _, err := o.base(); err != nil {
		faults["from"] = err
	}
	for _, h := range o.Hosts {
		if _, err := parseHost(h); err != nil {
			faults["hosts"] = err
		}
	}
	if o.Largest < 0 {
		faults["largest"] = errors.New("largest cannot be negative")
	}
	if o.Timeout < 0 {
		faults["timeout"] = errors.New("timeout cannot be negative")
	}
	if o.Fresh < 0 {
		faults["fresh"] = errors.New("fresh cannot be negative")
	}
	return faults
}

// Source fetches originals, keeps them in a store, and serves them as they are.
type Source struct {
	o           Options
	base        *url.URL
	hosts       []host
	keep        store.Store
	log         *slog.Logger
	client      *http.Client
	transport   *http.Transport
	clients     *meter.Presence
	via         string // tells our own requests, should they come back
	loopWarning rate.Sometimes

	mu       sync.Mutex
	files    lru[*entry]
	failures lru[failure]
	calls    map[string]*call // at most mostWaiting

	fetches chan struct{}
	closing context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup // of all goroutines: Close waits
}

var _ original.Source = (*Source)(nil)

// New makes a source that keeps what it fetches in keep, which stays the
// caller's. clients are those of the server; nil: there are always some.
func New(o Options, keep store.Store, clients *meter.Presence, errorLog *slog.Logger) (*Source, error) {
	for key, fault := range o.Check() { // any of them
		return nil, fmt.Errorf("remote: %s: %w", key, fault)
	}
	base, err := o.base()
	if err != nil {
		return nil, fmt.Errorf("remote: from: %w", err)
	}
	o.Largest = cmp.Or(o.Largest, DefaultLargest)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Fresh = cmp.Or(o.Fresh, defaultFresh)
	if errorLog == nil {
		errorLog = slog.Default()
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	s := &Source{
		o: o, base: base, keep: keep, log: errorLog,
		via:   "1.1 millrace-" + hex.EncodeToString(id),
		files: newLRU[*entry](mostFiles),
		calls: map[string]*call{}, failures: newLRU[failure](mostFailures),
		fetches:     make(chan struct{}, mostFetches),
		loopWarning: rate.Sometimes{Interval: betweenLines},
	}
	s.hosts = append(s.hosts, host{name: strings.ToLower(base.Hostname()), port: base.Port()})
	for _, h := range o.Hosts {
		parsed, err := parseHost(h)
		if err != nil {
			return nil, fmt.Errorf("remote: hosts: %w", err)
		}
		s.hosts = append(s.hosts, parsed)
	}
	if s.clients = clients; clients == nil {
		s.clients = &meter.Presence{}
		s.clients.Add(1)
	}
	s.connect()
	s.closing, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.sweep)
	return s, nil
}

// Close ends fetches under way, and voids what the fast lane has.
func (s *Source) Close() error {
	s.mu.Lock() // no fetch begins any more
	s.stop()
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.files.all() {
		e.gen.Invalidate()
	}
	s.transport.CloseIdleConnections()
	return nil
}
