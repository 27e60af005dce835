// Package cache puts a slow API behind memory: a shared cache as RFC 9111 has
// it, that asks the upstream once however many clients wait, serves stale
// answers while it refreshes or when the upstream fails, and forgets at once
// what is purged. It is a plain http.Handler; under millrace serve it also
// teaches the fast lane.
package cache

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"millrace/cache/purge"
	"millrace/internal/meter"
	"millrace/store"
)

// Deps are what a handler works with beside its Options; the zero value works.
type Deps struct {
	// Shared is a store that several machines have in common, with Publish to
	// tell them of purges; nil: none. They stay the caller's.
	Shared  store.Store
	Publish func(ctx context.Context, message []byte) error
	// Disk is the tier on disk, which several handlers may share one after
	// another; it stays the caller's. nil with Options.Disk set: New opens one.
	Disk     store.Store
	Meters   *meter.Cache // nil: not counted
	ErrorLog *slog.Logger // nil: slog.Default()
	// Transport replaces the way to the upstream, in tests and other programs.
	Transport http.RoundTripper
}

// Handler is the cache. It must be closed.
type Handler struct{}

// New opens the tiers and starts the upstream's health checks.
func New(o Options, d Deps) (*Handler, error) { panic("not built") }

// ServeHTTP answers from the cache or the upstream.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { panic("not built") }

// Close waits for fills under way, for a few seconds, and closes the tiers.
func (h *Handler) Close() error { panic("not built") }

// Purge takes effect before it returns, here; and on other machines as soon as
// they hear of it. An error means that those may not have been told.
func (h *Handler) Purge(ctx context.Context, s purge.Selector) error { panic("not built") }

// Message takes in what another machine has published.
func (h *Handler) Message(message []byte, lost bool) { panic("not built") }

// Changed takes in that other machines have replaced objects in the shared store.
func (h *Handler) Changed(keys []string) { panic("not built") }

// Explanation is what the cache knows of one request and would do with it.
type Explanation struct {
	URL                  string        `json:"url"`
	Key                  string        `json:"key"`
	Outcome              string        `json:"outcome"` // hit, stale, miss, bypass, pass (hit for miss)
	Reason               string        `json:"reason"`  // in words: which rule, which header decided
	Rule                 string        `json:"rule,omitempty"`
	Tier                 string        `json:"tier,omitempty"` // memory, disk, shared
	Status               int           `json:"status,omitempty"`
	Size                 int64         `json:"size,omitempty"`
	Age                  time.Duration `json:"age_ns,omitempty"`
	TTL                  time.Duration `json:"ttl_ns,omitempty"`
	Source               string        `json:"source,omitempty"` // of the lifetime: max-age, Expires, heuristic, ttl, rule …
	StaleWhileRevalidate time.Duration `json:"stale_while_revalidate_ns,omitempty"`
	StaleIfError         time.Duration `json:"stale_if_error_ns,omitempty"`
	Vary                 []string      `json:"vary,omitempty"`
	Variants             int           `json:"variants,omitempty"`
	Tags                 []string      `json:"tags,omitempty"`
	Hint                 string        `json:"hint,omitempty"` // what to do about it: --ttl 5m
}

// Explain says what would happen to r now, without doing it.
func (h *Handler) Explain(r *http.Request) Explanation { panic("not built") }

// Decision is one line of the ring log.
type Decision struct {
	Time    time.Time     `json:"time"`
	Method  string        `json:"method"`
	URL     string        `json:"url"`
	Status  int           `json:"status"`
	Outcome string        `json:"outcome"` // hit, stale, miss, coalesced, bypass, pass, error
	Reason  string        `json:"reason,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

// Recent lists the latest decisions, youngest first, whose URL, outcome or
// reason contains filter. The fast lane's hits are not among them.
func (h *Handler) Recent(filter string, most int) []Decision { panic("not built") }
