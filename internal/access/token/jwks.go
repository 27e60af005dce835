package token

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// refreshEvery is how long a key that was taken out of the set may go on
	// being good.
	refreshEvery = time.Hour
	// refreshGap is the least time between two fetches: anybody can send tokens
	// with unknown keys.
	refreshGap = 10 * time.Second
	// maxDoublings of refreshGap, while fetching fails: up to 5m20s.
	maxDoublings = 5
	// fetchTimeout is for one fetch as a whole; it is also the longest that a
	// client waits for a key.
	fetchTimeout = 10 * time.Second
	// maxSet is some ten times what a set of certificates has.
	maxSet = 256 << 10
)

// keySet has the keys of a URL. One goroutine fetches them: run.
type keySet struct {
	url    string
	name   string // as logs may have it
	client *http.Client
	log    *slog.Logger
	wake   chan struct{} // of size 1: somebody wants a fetch now

	mu       sync.Mutex
	list     []key
	err      error     // of the last fetch
	last     time.Time // when that began
	fetching bool      // or about to
	fetched  chan struct{}
	closed   bool
}

func newKeySet(raw string, log *slog.Logger) *keySet {
	return &keySet{
		url:      raw,
		name:     Name(raw),
		client:   NewClient(fetchTimeout),
		log:      log,
		wake:     make(chan struct{}, 1),
		fetching: true, // run begins with it: tokens that come first wait for it
		fetched:  make(chan struct{}),
	}
}

// find implements keys.
func (s *keySet) find(alg, kid string) ([]key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := fitting(s.list, alg, kid)
	switch {
	case len(found) > 0:
		return found, nil
	case strings.HasPrefix(alg, "HS"):
		return nil, fmt.Errorf("%w: the token is signed with a secret, the key set has public keys", ErrUnauthorized)
	case kid != "" && slices.ContainsFunc(s.list, func(k key) bool { return k.id == kid }):
		return nil, fmt.Errorf("%w: the token's key is not for %s", ErrUnauthorized, alg)
	case s.closed:
		return nil, fmt.Errorf("%w: the key set is closed", ErrUnavailable)
	}
	if !s.fetching && time.Since(s.last) >= refreshGap {
		s.fetching = true
		s.wake <- struct{}{} // there is room: run took the last one when it began
	}
	switch {
	case s.fetching:
		return nil, &keyUnknown{kid: Printable(kid), done: s.fetched}
	case s.err != nil:
		return nil, fmt.Errorf("%w: fetching the keys from %s: %w", ErrUnavailable, s.name, s.err)
	}
	return nil, fmt.Errorf("%w: the token's key %q is not in the key set", ErrUnauthorized, Printable(kid))
}

// run fetches until ctx ends.
func (s *keySet) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	defer s.shut()
	for failures := 0; ; {
		s.begin()
		list, err := s.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		s.finish(list, err)
		wait := refreshEvery
		if err != nil {
			wait = refreshGap << min(failures, maxDoublings)
			failures++
		} else {
			failures = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *keySet) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetching, s.last = true, time.Now()
	select {
	case <-s.wake: // the timer was as quick
	default:
	}
}

// finish takes what was fetched. A set replaces the one before as a whole: what
// is not in it any more is not good any more.
func (s *keySet) finish(list []key, err error) {
	s.mu.Lock()
	was, keep := s.err, len(s.list)
	if err == nil {
		s.list = list
	}
	s.err, s.fetching = err, false
	close(s.fetched)
	s.fetched = make(chan struct{})
	s.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.log.Warn("keys for tokens cannot be fetched, trying again", "url", s.name, "error", err, "keys_kept", keep)
	case err == nil && was != nil:
		s.log.Info("keys for tokens can be fetched again", "url", s.name, "keys", len(list))
	}
}

// shut lets everybody go who waits.
func (s *keySet) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.fetching = true, false
	close(s.fetched)
}

func (s *keySet) fetch(ctx context.Context) ([]key, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json") // RFC 7517, 8.5
	status, body, err := Get(s.client, req, maxSet)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d, not 200", status)
	}
	return parseSet(body)
}
