// Package cache is a shared cache (RFC 9111) in front of a slow API. It asks the
// upstream once however many clients wait, serves stale answers while it refreshes
// them or when the upstream fails, and stops using purged answers at once. It is a
// plain [http.Handler]; under millrace serve it also offers its answers to the
// fast lane.
//
// exchange.go has the life of a request on one screen. What it uses is in
// packages below: rules (which settings hold), key, tier (memory, disk and the
// shared store), purger (what is purged, here and elsewhere), fetch (the way to
// the upstream), rfc9111 (what the standard says, as pure functions).
package cache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/purge"
	"millrace/cache/rules"
	"millrace/cache/tier"
	"millrace/internal/observe/meter"
	"millrace/internal/route/headers"
	"millrace/internal/upstream"
	"millrace/internal/upstream/spool"
	"millrace/proxy"
	"millrace/store"
	"millrace/store/disk"
)

// Deps are what a handler works with besides its Options; the zero value works.
type Deps struct {
	// Shared is a store that several machines have in common, with Publish to
	// tell them of purges; nil: none. They stay the caller's.
	Shared  store.Store
	Publish func(ctx context.Context, message []byte) error
	// Announce is Publish for what all machines acknowledge, and Line knows whether this
	// one receives what is published: see [purge.Options]. nil: it is not known.
	Announce func(ctx context.Context, message []byte) (await func(context.Context) ([]string, error), err error)
	Line     purge.Line
	// Ahead is how far this machine's clock is ahead of Shared's; nil: not at all.
	Ahead func() time.Duration
	// Leases are those of the machines that share it, for Options.Coalesce.
	Leases fetch.Leases
	// Outbox is a folder for purges that Publish has failed for, until they are
	// published; it may be that of several caches with the same Publish. Empty:
	// beside Options.Disk, or if that is empty as well, in memory.
	Outbox string
	// Disk is the tier on disk, which several handlers may share one after
	// another; it stays the caller's. nil with Options.Disk set: New opens one.
	Disk     store.Store
	Meters   *meter.Cache // nil: not counted
	ErrorLog *slog.Logger // nil: slog.Default()
	// Transport replaces the way to the upstream, in tests and other programs.
	Transport http.RoundTripper
	// Unasked is called for each connection to the upstream that is closed because the
	// upstream sent bytes without a request; nil: nothing is called.
	Unasked func()
	// Room is where bodies are buffered that are not stored; nil: one of its own.
	Room *spool.Room
	// Purged is called with each purge of this cache, before Purge returns; nil:
	// nothing is called. Purges of other machines are not among them.
	Purged func(purge.Selector) error
}

// closeTime is how long Close waits for fetches under way.
const closeTime = 5 * time.Second

// Handler is the cache. It must be closed.
type Handler struct {
	traits
	rules *rules.Rules
	cors  *headers.CORS
	proxy *proxy.Handler // what was asked for, and requests that are not for the cache

	tiers   *tier.Tiers
	purges  *purge.Purger
	purged  func(purge.Selector) error // nil: nobody is told
	fetches *fetch.Fetcher
	packer  packer

	dictionaries dictionaries

	meters   *meter.Cache
	recent   ring
	errorLog *slog.Logger
	life     life
}

// traits are properties of the options that every request needs.
type traits struct {
	languages  []string
	hidden     []string // fields that are for this cache alone
	trusting   bool     // there are proxies whose claims are believed
	clientHost bool     // the upstream gets the client's Host
	tells      bool     // purges are written to a disk, or told to other machines
}

// life is what runs from New to Close.
type life struct {
	ctx     context.Context // ends with Close: nothing goes on after it
	end     context.CancelFunc
	running sync.WaitGroup // fetches, refreshes and workers
	close   sync.Once
	owned   []io.Closer // what was opened here
}

// New opens the tiers and starts the upstream's health checks.
func New(o Options, d Deps) (*Handler, error) {
	for key, fault := range o.Check() { // any of them
		return nil, fmt.Errorf("cache: %s: %w", key, fault)
	}
	d.ErrorLog, d.Meters = cmp.Or(d.ErrorLog, slog.Default()), cmp.Or(d.Meters, new(meter.Cache))
	ctx, end := context.WithCancel(context.Background())
	h := &Handler{
		traits: traits{languages: o.Languages, trusting: len(o.TrustForwarded) > 0, clientHost: o.Host == "client", tells: o.Disk != "" || d.Disk != nil || d.Shared != nil || d.Publish != nil},
		meters: d.Meters, errorLog: d.ErrorLog, purged: d.Purged, life: life{ctx: ctx, end: end},
	}
	if err := h.open(o, d); err != nil {
		return nil, errors.Join(fmt.Errorf("cache: %w", err), h.Close())
	}
	h.life.running.Go(h.packLoop)
	h.tiers.Write(h.life.ctx, h.life.running.Go)
	h.purges.Run(h.life.ctx, h.life.running.Go)
	return h, nil
}

// open does the part of New that can fail.
func (h *Handler) open(o Options, d Deps) (err error) {
	if h.rules, err = o.rules(); err != nil {
		return err
	}
	tags := tagFields(o.TagHeaders)
	h.hidden = slices.Concat(tags, h.rules.Hidden())
	h.packer = newPacker(!o.NoCompress)
	h.dictionaries.rules = o.Dictionaries
	if h.cors, err = headers.NewCORS(o.CORS); err != nil {
		return err
	}
	if err = h.openTiers(o, d); err != nil {
		return err
	}
	transport := d.Transport
	if transport == nil {
		pool, err := upstream.New(o.Options.Options, d.ErrorLog)
		if err != nil {
			return err
		}
		if d.Unasked != nil {
			pool.OnUnsolicited(d.Unasked)
		}
		h.life.owned = append(h.life.owned, pool)
		transport = pool
	}
	way, ok := transport.(upstream.Doer)
	if !ok {
		way = upstream.Over{RoundTripper: transport, To: o.To[0]}
	}
	if h.proxy, err = proxy.New(o.Options, way, d.ErrorLog); err != nil {
		return err
	}
	h.proxy.Share(d.Room)
	if o.Coalesce != CoalesceShared {
		d.Leases = nil
	}
	h.fetches = fetch.NewFetcher(fetch.Config{
		Proxy: h.proxy, Upstream: way, Rules: h.rules, Tiers: h.tiers, Purges: h.purges, Leases: d.Leases,
		Languages: o.Languages, Tags: tags, Hidden: h.hidden, CORS: h.cors != nil, Dictionaries: o.Dictionaries, Name: statusName,
		Meters: d.Meters, ErrorLog: d.ErrorLog, Context: h.life.ctx, Start: h.life.running.Go,
	})
	return nil
}

// rules are those of options that have been checked.
func (o Options) rules() (*rules.Rules, error) {
	return rules.New(rules.Options{
		Preset: o.Preset, TTL: o.TTL, StaleWhileRevalidate: o.StaleWhileRevalidate, StaleIfError: o.StaleIfError,
		Rules: o.Rules, Key: o.Key, Target: o.Target, Device: statusName,
	})
}

// openTiers makes memory, disk and what keeps purges.
func (h *Handler) openTiers(o Options, d Deps) (err error) {
	if d.Disk == nil && o.Disk != "" {
		opened, err := disk.Open(disk.Options{Dir: o.Disk, Limit: o.DiskSize})
		if err != nil {
			return err
		}
		d.Disk = opened
		h.life.owned = append(h.life.owned, opened)
	}
	p := purge.Options{
		Index: purge.New(0), Alike: h.rules.Alike, Publish: d.Publish, Announce: d.Announce, Line: d.Line, Outbox: d.Outbox,
		Purged: func() { h.meters.Purges.Add(0, 1) }, ErrorLog: d.ErrorLog,
	}
	if o.Disk != "" {
		if p.Journal, err = within(o.Disk, "purges"); err != nil {
			return err
		}
		if p.Outbox, err = within(o.Disk, "outbox"); err != nil {
			return err
		}
	}
	if h.purges, err = purge.NewPurger(p); err != nil {
		return err
	}
	h.life.owned = append(h.life.owned, h.purges)
	h.tiers, err = tier.New(tier.Options{
		Budget: int64(cmp.Or(o.Memory, DefaultMemory)), Largest: o.largest(d.Disk != nil), Prefix: storePrefix(o), Languages: o.Languages,
		Disk: d.Disk, Shared: d.Shared, Purges: h.purges.Index(), Order: h.purges, Ahead: d.Ahead,
		Unreachable: o.Preset == rules.PresetRFC, Evicted: func() { h.meters.Evicted.Add(0, 1) }, ErrorLog: d.ErrorLog,
	})
	return err
}

// within is the path of a file about purges in the folder of the disk tier, which
// leaves alone what it does not know. Earlier versions had the file beside the folder,
// from where it is moved.
func within(disk, name string) (string, error) {
	path, before := filepath.Join(disk, name), disk+"."+name
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	if err := os.Rename(before, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cache: moving %s of an earlier version to %s: %w", before, path, err)
	}
	return path, nil
}

// storePrefix stands for the options that answers are chosen by: see tier.Options.
func storePrefix(o Options) string {
	text, err := json.Marshal([]any{o.Preset, o.To, o.Host, o.Key, o.Rules, o.CORS, o.Languages, o.Target, o.TagHeaders})
	if err != nil {
		panic(fmt.Sprintf("cache: options that cannot be compared: %v", err)) // a mistake in an Options type
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]) + "\n"
}

// tagFields are the fields of an answer that hold purge tags.
func tagFields(names []string) []string {
	if names == nil {
		names = []string{"Surrogate-Key", "Cache-Tag"}
	}
	fields := make([]string, len(names))
	for i, name := range names {
		fields[i] = http.CanonicalHeaderKey(name)
	}
	return fields
}

// Close waits a few seconds for fetches under way, and closes the tiers.
func (h *Handler) Close() error {
	var errs []error
	h.life.close.Do(func() {
		cut := time.AfterFunc(closeTime, h.life.end)
		h.packer.stop()
		if h.tiers != nil {
			h.tiers.Stop()
		}
		if h.purges != nil {
			h.purges.Stop()
		}
		h.life.running.Wait() // at the latest until closeTime is over
		cut.Stop()
		h.life.end()
		for _, c := range slices.Backward(h.life.owned) {
			errs = append(errs, c.Close())
		}
		if h.tiers != nil {
			h.tiers.Close()
		}
	})
	return errors.Join(errs...)
}

// WaitingPurges is how many purges wait until other machines can be told of them.
func (h *Handler) WaitingPurges() int { return h.purges.Waiting() }

// Measure updates the gauges of what the tiers hold. It is quick; call it right before
// the meters are read.
func (h *Handler) Measure() {
	h.meters.Memory.Set(h.tiers.Bytes())
	h.meters.Objects.Set(h.tiers.Entries())
	if s, ok := h.tiers.DiskStats(); ok {
		h.meters.DiskBytes.Set(s.Bytes)
		h.meters.DiskObjects.Set(s.Objects)
	}
}
