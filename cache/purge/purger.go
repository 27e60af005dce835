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
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"millrace/cache/key"
	"millrace/internal/lane"
	"millrace/store"
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
	// Announce is Publish for a message that all machines acknowledge. await returns when
	// they have, or with the names of those that have not when its context ends. nil: they
	// cannot.
	Announce func(ctx context.Context, message []byte) (await func(context.Context) ([]string, error), err error)
	// Line is what the messages of other machines come over; nil: it is never cut.
	Line Line
	// Journal is a file that keeps purges over a restart; empty: none.
	Journal string
	// Outbox is a folder for announcements that Publish has failed for; empty: they
	// wait in memory.
	Outbox   string
	Purged   func() // called for each purge
	ErrorLog *slog.Logger
}

// Line knows whether messages of other machines may have been published that this one has
// not received.
type Line interface {
	// CaughtUp reports whether this machine is connected and has received everything.
	CaughtUp() bool
	// CatchUp tries that from now on. A store.ErrDown means that this machine is cut off;
	// any other error, that it is not, but has not received everything in time.
	CatchUp(ctx context.Context) error
}

// Purger purges. It must be closed.
type Purger struct {
	o          Options
	name       string          // begins the ids of this process's greetings
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
	p := &Purger{o: o, name: rand.Text(), suspects: make(chan Selector, maxSuspects), done: make(chan struct{})}
	if o.Journal != "" {
		if err := p.journal.open(o.Journal, o.Index, o.ErrorLog); err != nil {
			return nil, err
		}
	}
	if o.Publish != nil {
		p.outbox.open(o.Outbox, o.ErrorLog)
		p.reopen() // before anything from the shared store is believed
		o.Index.distrust()
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

// Time is the moment of this machine's index that an epoch stands for. It is false when
// the epoch is not known here: then there may be purges after it that are not either.
func (p *Purger) Time(epoch string) (at Time, known bool) { return p.order.time(epoch) }

// Purge takes effect here before it returns, and on other machines as soon as they
// receive it. An error means that it may not survive a crash, or that the others have
// not been notified yet: they will be when the shared store answers again.
func (p *Purger) Purge(ctx context.Context, s Selector) error {
	return p.purgeBy(ctx, s, p.o.Publish)
}

// MissingError tells which machines may still use what was purged.
type MissingError struct {
	Machines []string // each with what is known of it
}

// Error implements error.
func (e *MissingError) Error() string {
	return "purged here, but not yet on " + strings.Join(e.Machines, "; ")
}

// Announce is Purge for who wants to know when the other machines have it. await waits until
// it has taken effect on all of them, or its context ends: then the error is a
// [MissingError].
func (p *Purger) Announce(ctx context.Context, s Selector) (await func(context.Context) error, err error) {
	if p.o.Announce == nil {
		return func(context.Context) error { return nil }, p.Purge(ctx, s)
	}
	var acknowledged func(context.Context) ([]string, error)
	err = p.purgeBy(ctx, s, func(ctx context.Context, message []byte) (err error) {
		acknowledged, err = p.o.Announce(ctx, message)
		return err
	})
	return func(ctx context.Context) error {
		if acknowledged == nil {
			return nil // it was not announced, as err says
		}
		missing, err := acknowledged(ctx)
		if err != nil {
			return fmt.Errorf("purged here, and announced; whether all machines have it is not known: %w", err)
		}
		if len(missing) > 0 {
			return &MissingError{missing}
		}
		return nil
	}, err
}

// CaughtUp reports whether no purge of another machine can have been missed so far, but for
// those that are on their way.
func (p *Purger) CaughtUp() bool { return p.o.Line == nil || p.o.Line.CaughtUp() }

// CatchUp is for a machine that has not: see the package's comment. false means that what it
// has must be validated before its next use.
func (p *Purger) CatchUp(ctx context.Context) bool {
	err := p.o.Line.CatchUp(ctx)
	return err == nil || errors.Is(err, store.ErrDown)
}

// Lagging is called when CaughtUp becomes false: answers that are ready are no longer sure.
func (p *Purger) Lagging() { p.generation.Invalidate() }

// purgeBy is Purge with a way to tell the others.
func (p *Purger) purgeBy(ctx context.Context, s Selector, publish func(context.Context, []byte) error) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.URL = key.Normal(s.URL)
	if p.o.Publish == nil {
		return p.journal.add(p.purge(s))
	}
	a := announcement{ID: rand.Text(), Purge: s}
	message, merr := json.Marshal(a)
	if !utf8.ValidString(s.URL+s.Prefix+s.Glob+s.Tag+s.Host) || len(message) > maxMessage {
		a.Purge = Selector{All: true, Hard: s.Hard} // what cannot be said counts for everything
		message, merr = json.Marshal(a)
	}
	var done []purged
	p.order.announceOwn(a, func() Time { done = p.purge(s); return done[0].at })
	err := p.journal.add(done)
	if merr == nil {
		merr = publish(ctx, message)
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
		message, err := json.Marshal(announcement{ID: p.name + rand.Text(), Hello: true})
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

// Began receives the name of the run that the shared store's server is in, before the
// announcements of that run, of which none is missing. Of those of other runs some may
// be: the server may have come back from a snapshot.
func (p *Purger) Began(run string) {
	if run != p.o.Index.Run() {
		p.missed(run)
	}
}

// missed is called when announcements of other machines may be missing. Everything older
// is validated before its next use here, and has no place in the order of purges any more.
func (p *Purger) missed(run string) {
	p.suspectAll() // first: what is younger has another number
	unheard := p.order.restart()
	p.o.Index.setRun(run)
	p.saveSuspect()
	if p.o.Publish == nil {
		return
	}
	for id, u := range unheard {
		if !p.outbox.waiting(id) { // nobody may have received it
			_ = p.later(announcement{ID: id, Purge: u.selector}, errUnheard) // who purged has been answered
		}
	}
	p.start(p.announce) // this machine's place in the order
}

// suspectAll has everything validated before its next use here.
func (p *Purger) suspectAll() {
	p.o.Index.suspectAll()
	p.generation.Invalidate()
}

func (p *Purger) saveSuspect() {
	if err := p.journal.save(); err != nil {
		p.o.ErrorLog.Warn("that purges of other machines may be missing may not survive a restart", "err", err)
	}
}

// errUnheard is why an announcement that was published is published again.
var errUnheard = errors.New("it may be lost")

// Message receives an announcement that a machine has published, maybe this one. lost
// means that others were missed: everything older is validated before its next use.
func (p *Purger) Message(message []byte, lost bool) {
	if lost {
		p.missed(p.o.Index.Run())
	}
	if message == nil {
		return
	}
	var a announcement
	if err := json.Unmarshal(message, &a); err != nil {
		p.o.ErrorLog.Warn("another machine said what this one does not understand; everything is validated before its next use", "err", err)
		p.suspectAll()
		p.saveSuspect()
		return
	}
	var done []purged
	p.order.receive(a.ID, p.o.Index, func() {
		if !a.Hello {
			done = p.purge(a.Purge)
		}
	})
	if a.Hello && strings.HasPrefix(a.ID, p.name) {
		p.o.Index.trust() // all before it were received
	}
	if err := p.journal.add(done); err != nil {
		p.o.ErrorLog.Warn("a purge of another machine may not survive a restart", "err", err)
	}
}
