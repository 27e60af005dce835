package cache

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"millrace/cache/key"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
)

// maxPurges is how many tags and how many URLs a book remembers exactly.
const maxPurges = purge.DefaultMost

// Purge takes effect before it returns, here; and on other machines as soon as
// they hear of it. An error means that it may not survive a crash, or that the
// others may not have been told.
func (h *Handler) Purge(ctx context.Context, s purge.Selector) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.URL = key.Normal(s.URL)
	if h.shared.publish == nil {
		return h.journal.add(h.purge(s))
	}
	id := rand.Text()
	var done []purged
	h.shared.tell(id, func() purge.Time { done = h.purge(s); return done[0].at })
	err := h.journal.add(done)
	if !utf8.ValidString(s.URL + s.Prefix + s.Glob + s.Tag + s.Host) {
		s = purge.Selector{All: true, Hard: s.Hard} // what JSON cannot say counts for everything
	}
	message, merr := json.Marshal(announcement{ID: id, Purge: s})
	if merr == nil {
		merr = h.shared.publish(ctx, message)
	}
	if merr != nil {
		h.shared.told(id) // it may be heard nevertheless: then it takes effect twice
		err = errors.Join(err, fmt.Errorf("purged here, but other machines were not told: %w", merr))
	}
	return err
}

// purged is a purge with its number.
type purged struct {
	selector purge.Selector
	at       purge.Time
}

// purge is Purge for this machine, without its journal. What it returns is in
// order, and not empty.
func (h *Handler) purge(s purge.Selector) []purged {
	var done []purged
	for _, one := range h.alike(s) {
		done = append(done, purged{one, h.book.Purge(one)})
	}
	h.purged.Void() // after the book: what is offered from now on has asked it
	h.meters.Purges.Add(0, 1)
	return done
}

// alike is what has to be purged for a selector: for a URL also what is stored
// under the same key, by a request for another URL.
func (h *Handler) alike(s purge.Selector) []purge.Selector {
	list := []purge.Selector{s}
	if s.URL == "" {
		return list
	}
	texts := []string{s.URL}
	if before, _, found := strings.Cut(s.URL, "://"); !found || strings.ContainsAny(before, "/?.:") {
		bare := strings.TrimPrefix(s.URL, "//")
		texts = []string{"http://" + bare, "https://" + bare}
	}
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil {
			continue // no request has such a URL
		}
		set := h.rules.forRequest(u.Path)
		if !set.edits {
			continue
		}
		front, _ := set.key.ForURL(u.Scheme, u.Host, u.RequestURI())
		list = append(list, purge.Selector{Tag: keyTag(front), Hard: s.Hard})
		if set.byHost {
			list = append(list, purge.Selector{URL: key.Normal(front), Hard: s.Hard})
		}
	}
	return list
}

// keyTag is the tag of what is stored under a key that begins so, for requests
// of another URL. No upstream can send it: its tags hold no space.
func keyTag(front string) string { return "key " + key.Normal(front) }

// announcement is what one machine tells the others.
type announcement struct {
	ID    string         `json:"id"`
	Hello bool           `json:"hello,omitempty"` // nothing but a place in the order
	Purge purge.Selector `json:"purge,omitzero"`
}

// greet announces this machine, so that what it stores has a place in the order
// of purges from the beginning. It tries until it has been heard or Close.
func (h *Handler) greet() {
	const pause = time.Second // a store that is down says so at once
	for h.base.Err() == nil {
		message, err := json.Marshal(announcement{ID: rand.Text(), Hello: true})
		if err == nil {
			err = h.shared.publish(h.base, message)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-h.slow.done:
			return
		}
	}
}

// Message takes in what a machine has published, this one included. lost means
// that others were missed: everything older is validated before its next use.
func (h *Handler) Message(message []byte, lost bool) {
	if lost {
		h.purge(purge.Selector{All: true})
	}
	if lost && h.shared.publish != nil {
		h.running.Go(h.greet) // the order of purges begins anew: so does this machine's place in it
	}
	if message == nil {
		return
	}
	var a announcement
	if err := json.Unmarshal(message, &a); err != nil {
		h.errorLog.Warn("another machine said what this one does not understand; everything is validated before its next use", "err", err)
		a.Purge = purge.Selector{All: true}
	}
	var done []purged
	h.shared.hear(a.ID, h.book, func() {
		if !a.Hello {
			done = h.purge(a.Purge)
		}
	})
	if err := h.journal.add(done); err != nil {
		h.errorLog.Warn("a purge of another machine may not survive a restart", "err", err)
	}
}

// Changed takes in that other machines have replaced objects in the shared
// store; nil means that any may have been. What is in memory is still right,
// but no longer the latest: it goes.
func (h *Handler) Changed(keys []string) {
	for _, there := range keys {
		if mine, ok := strings.CutPrefix(there, h.mark); ok {
			mine, _, _ = strings.Cut(mine, "\x00") // a variant's
			h.memory.forget(mine)
		}
	}
}

// invalidate forgets what an answer to an unsafe method makes invalid (RFC
// 9111, 4.4). Only what is stored, or may be, is worth a purge: else anyone
// could fill the book with URLs.
func (h *Handler) invalidate(r *http.Request, status int, header http.Header) {
	if !rfc9111.Unsafe(r.Method) {
		return
	}
	target := *r.URL
	target.Scheme, target.Host = "http", r.Host
	if r.TLS != nil {
		target.Scheme = "https"
	}
	for _, u := range rfc9111.Invalidated(r, &target, status, header) {
		under := h.fills.Running() > 0 // before the look: a fill that ends between has stored by then
		stored, all := h.rules.forRequest(u.Path).key.ForURL(u.Scheme, u.Host, u.RequestURI())
		known := h.memory.forget(stored)
		if !known && all && !under && h.slow.disk == nil && h.slow.shared == nil {
			continue
		}
		u.Fragment = ""
		s := purge.Selector{URL: key.Normal(u.String()), Hard: true}
		if err := h.Purge(context.WithoutCancel(r.Context()), s); err != nil {
			h.errorLog.Warn("what a request has changed may still be served elsewhere, or after a crash", "url", s.URL, "err", err)
		}
	}
}

// sharedLog keeps the order of purges that all machines see, so that an object
// from the shared store can be placed in it: it carries the last announcement
// that its machine had heard when it asked the upstream.
type sharedLog struct {
	publish func(ctx context.Context, message []byte) error

	mu    sync.Mutex
	heard []heard               // the latest, oldest first
	own   map[string]purge.Time // ours that we have not heard yet, with their numbers here
}

// heard is an announcement. What this machine asked its upstream for at the
// moment at of its book, or later, is younger than the announcement. What other
// machines say is younger than it may be older than purges of ours that they
// had yet to hear of; it is surely younger than what was purged here up to floor.
type heard struct {
	id        string
	at, floor purge.Time
}

// maxHeard is how many announcements are remembered, and how many of our own
// may be under way. An object from before the oldest is taken to be older than
// every purge that this machine knows of.
const maxHeard = 10_000

// tell notes an announcement of our own, to be made once take, which returns
// its number, has put it into effect here.
func (l *sharedLog) tell(id string, take func() purge.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := take()
	if l.own == nil || len(l.own) >= maxHeard {
		clear(l.own) // what is forgotten takes effect twice
		if l.own == nil {
			l.own = map[string]purge.Time{}
		}
	}
	l.own[id] = at
}

// told forgets an announcement of our own, and reports whether it was one.
func (l *sharedLog) told(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forget(id)
}

func (l *sharedLog) forget(id string) bool {
	_, ok := l.own[id]
	delete(l.own, id)
	return ok
}

// hear gives an announcement its place, and calls take if it is not our own.
func (l *sharedLog) hear(id string, book *purge.Book, take func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.forget(id) {
		take()
	}
	h := heard{id: id, at: book.Now()}
	h.floor = h.at
	for _, at := range l.own {
		h.floor = min(h.floor, at-1)
	}
	if len(l.heard) >= maxHeard {
		l.heard = append(l.heard[:0], l.heard[maxHeard/2:]...)
	}
	l.heard = append(l.heard, h)
}

// epoch is the last announcement heard before a moment of the book.
func (l *sharedLog) epoch(at purge.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.heard) - 1; i >= 0; i-- {
		if l.heard[i].at <= at {
			return l.heard[i].id
		}
	}
	return ""
}

// time is the moment of this machine's book that an epoch stands for: 0, before
// everything, when the epoch is not known here.
func (l *sharedLog) time(epoch string) purge.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.heard) - 1; i >= 0; i-- {
		if l.heard[i].id == epoch {
			return l.heard[i].floor
		}
	}
	return 0
}

// journal keeps the purges of a cache with a disk beside that, so that what was
// purged stays so after a restart. The zero value keeps nothing.
type journal struct {
	mu      sync.Mutex
	f       *os.File
	path    string
	book    *purge.Book
	records int // appended to what Save said
}

// maxRecords bounds what is appended before the file is written anew.
const maxRecords = 100_000

// open reads an earlier run's purges into book and begins a new file. A file
// that cannot be read is no error: what is on disk is validated before use.
func (j *journal) open(path string, book *purge.Book, log *slog.Logger) error {
	saved, err := os.ReadFile(path)
	if err == nil {
		err = book.Restore(saved)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the purges of an earlier run cannot be read; what is on disk is validated before it is used", "err", err)
	}
	j.path, j.book = path, book
	return j.renew()
}

// renew writes the file anew, from all that the book knows.
func (j *journal) renew() error {
	f, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("keeping purges: %w", err)
	}
	if _, err = f.Write(j.book.Save()); err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("keeping purges: %w", err)
	}
	if j.f != nil {
		_ = j.f.Close() // what it says is in the new one
	}
	j.f, j.records = f, 0
	return nil
}

func (j *journal) add(list []purged) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil || len(list) == 0 {
		return nil
	}
	if j.records += len(list); j.records > maxRecords {
		return j.renew() // the book has them already
	}
	var b []byte
	for _, p := range list {
		b = append(b, purge.Record(p.selector, p.at)...)
	}
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("keeping a purge: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}
