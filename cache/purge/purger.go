package purge

// This file puts a purge into effect: in this process at once, over a restart,
// and on the other machines that share a store. When [Purger.Purge] returns, no
// visitor of this machine gets the old version.
//
// A purge goes, in this order, into the index of package purge, into the journal
// on the disk, and to the other machines as an announcement. An announcement
// that cannot be published waits in the outbox; until it is heard, what others
// have stored counts as older than the purge.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"

	"millrace/cache/key"
	"millrace/internal/lane"
)

// maxMessage is the longest announcement: the least that a Publish takes.
const maxMessage = 32 << 10

// Options of a Purger.
type Options struct {
	Index *Index
	// Alike lists what is to be purged for a selector: that, and what is stored
	// under the same key.
	Alike func(Selector) []Selector
	// Publish tells other machines, this one included; nil: there are none.
	Publish func(ctx context.Context, message []byte) error
	// Journal is a file that keeps purges over a restart; empty: none.
	Journal string
	// Outbox is a folder for announcements that Publish has failed for; empty: they
	// wait in memory.
	Outbox   string
	Purged   func() // called for each purge
	ErrorLog *slog.Logger
}

// Purger purges. It must be closed.
type Purger struct {
	o          Options
	generation lane.Generation // invalidated by every purge
	order      order
	journal    journal
	outbox     outbox
	suspects   chan Selector // see OnSuspect

	ctx   context.Context // of what is done in the background
	start func(func())    // begins a goroutine
	done  chan struct{}
	stop  sync.Once
}

// NewPurger opens journal and outbox, and repeats the purges that an earlier run has
// left there.
func NewPurger(o Options) (*Purger, error) {
	p := &Purger{o: o, suspects: make(chan Selector, maxSuspects), done: make(chan struct{})}
	if o.Journal != "" {
		if err := p.journal.open(o.Journal, o.Index, o.ErrorLog); err != nil {
			return nil, err
		}
	}
	if o.Publish != nil {
		p.outbox.open(o.Outbox, o.ErrorLog)
		p.reopen() // before anything from the shared store is believed
	}
	return p, nil
}

// Run does what is done in the background, in goroutines that start begins. They
// end with ctx, or after [Purger.Stop].
func (p *Purger) Run(ctx context.Context, start func(func())) {
	p.ctx, p.start = ctx, start
	start(p.purgeSuspects)
	if p.o.Publish != nil {
		start(p.announce)
		start(p.deliver)
	}
}

// Stop ends what Run has begun.
func (p *Purger) Stop() { p.stop.Do(func() { close(p.done) }) }

// Save writes the journal anew, from all that is known: another process may have
// put its own in its place.
func (p *Purger) Save() error { return p.journal.save() }

// Close closes the journal.
func (p *Purger) Close() error { return p.journal.close() }

// Index is where purges are looked up.
func (p *Purger) Index() *Index { return p.o.Index }

// Generation is invalidated by every purge, after the index knows of it.
func (p *Purger) Generation() *lane.Generation { return &p.generation }

// Epoch is the place of a moment of this machine's index in the order of purges
// that all machines see: the last announcement heard before.
func (p *Purger) Epoch(at Time) string { return p.order.epoch(at) }

// Time is the moment of this machine's index that an epoch stands for: 0, before
// everything, when the epoch is not known here.
func (p *Purger) Time(epoch string) Time { return p.order.time(epoch) }

// Purge takes effect here before it returns, and on other machines as soon as they
// receive it. An error means that it may not survive a crash, or that the others have
// not been notified yet: they will be when the shared store answers again.
func (p *Purger) Purge(ctx context.Context, s Selector) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.URL = key.Normal(s.URL)
	if p.o.Publish == nil {
		return p.journal.add(p.purge(s))
	}
	id := rand.Text()
	var done []purged
	p.order.announceOwn(id, func() Time { done = p.purge(s); return done[0].at })
	err := p.journal.add(done)
	a := announcement{ID: id, Purge: s}
	message, merr := json.Marshal(a)
	if !utf8.ValidString(s.URL+s.Prefix+s.Glob+s.Tag+s.Host) || len(message) > maxMessage {
		a.Purge = Selector{All: true, Hard: s.Hard} // what cannot be said counts for everything
		message, merr = json.Marshal(a)
	}
	if merr == nil {
		merr = p.o.Publish(ctx, message)
	}
	if merr != nil { // it may be heard nevertheless: then it takes effect twice
		err = errors.Join(err, p.later(a, merr))
	}
	return err
}

// purged is a purge with its number.
type purged struct {
	selector Selector
	at       Time
}

// purge is Purge for this machine, without its journal. What it returns is in
// order, and not empty.
func (p *Purger) purge(s Selector) []purged {
	var done []purged
	for _, one := range p.o.Alike(s) {
		done = append(done, purged{one, p.o.Index.Purge(one)})
	}
	p.generation.Invalidate() // after the index: what is offered from now on has asked it
	p.o.Purged()
	return done
}

// announcement is what one machine tells the others.
type announcement struct {
	ID    string   `json:"id"`
	Hello bool     `json:"hello,omitempty"` // nothing but a place in the order
	Purge Selector `json:"purge,omitzero"`
}

// announce announces this machine, so that what it stores has a place in the order of
// purges from the beginning. It repeats that until it was received, or Close.
func (p *Purger) announce() {
	const pause = time.Second // a store that is down says so at once
	for p.ctx.Err() == nil {
		message, err := json.Marshal(announcement{ID: rand.Text(), Hello: true})
		if err == nil {
			err = p.o.Publish(p.ctx, message)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-p.done:
			return
		}
	}
}

// Message receives an announcement that a machine has published, maybe this one. lost
// means that others were missed: everything older is validated before its next use.
func (p *Purger) Message(message []byte, lost bool) {
	if lost {
		p.purge(Selector{All: true})
	}
	if lost && p.o.Publish != nil {
		p.start(p.announce) // the order of purges begins anew: so does this machine's place in it
	}
	if message == nil {
		return
	}
	var a announcement
	if err := json.Unmarshal(message, &a); err != nil {
		p.o.ErrorLog.Warn("another machine said what this one does not understand; everything is validated before its next use", "err", err)
		a.Purge = Selector{All: true}
	}
	var done []purged
	p.order.receive(a.ID, p.o.Index, func() {
		if !a.Hello {
			done = p.purge(a.Purge)
		}
	})
	if err := p.journal.add(done); err != nil {
		p.o.ErrorLog.Warn("a purge of another machine may not survive a restart", "err", err)
	}
}
