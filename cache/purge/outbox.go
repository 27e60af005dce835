package purge

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxOutbox is how many purges wait until other machines can be told of them.
	// More than that count as one purge of everything.
	maxOutbox = 1000
	// outboxPause lies between attempts to tell them. A store that is down says
	// so at once.
	outboxPause = time.Second
	// maxUnsent is the most that a file of it may have: longer announcements are
	// made into a purge of everything.
	maxUnsent = 64 << 10
	// outboxName ends the names of its files.
	outboxName = ".purge.json"
)

// outbox holds the purges that other machines could not be notified of, each in a file
// until they are. So a restart neither brings back what was purged here, nor keeps it
// from the others. Several processes may share the folder: a purge that is announced
// twice takes effect twice.
type outbox struct {
	dir string // "": in memory only

	mu   sync.Mutex
	list []*unsent
	wake chan struct{} // tells deliver; room for one
}

// unsent is an announcement that waits.
type unsent struct {
	announcement
	sending bool // it is on its way: what comes later is not covered by it
}

// open takes in what an earlier run has left. The folder is made when it is needed.
func (b *outbox) open(dir string, log *slog.Logger) {
	b.wake = make(chan struct{}, 1)
	if dir == "" {
		return
	}
	b.dir = dir
	files, err := os.ReadDir(dir) // at most maxOutbox of each process that has it
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("purges of an earlier run cannot be read: everything is purged", "err", err)
		b.list = append(b.list, everything())
		return
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), outboxName)
		if !ok {
			continue
		}
		var a announcement
		saved, err := readSmall(filepath.Join(dir, f.Name()))
		if err == nil {
			err = json.Unmarshal(saved, &a)
		}
		if err == nil {
			err = a.Purge.Check()
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has told it meanwhile
		}
		if err != nil {
			log.Warn("a purge of an earlier run cannot be read: everything is purged", "err", err)
			a.Purge = Selector{All: true, Hard: true}
		}
		a.ID = id // the file's, so that it goes when this was told
		b.list = append(b.list, &unsent{announcement: a})
	}
	b.ring()
}

// readSmall reads a file of the outbox. What is not a file (a FIFO would hold up the
// start for ever) or larger than a purge is an error.
func readSmall(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxUnsent {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxUnsent)
	}
	return os.ReadFile(path)
}

// everything is what stands for purges that are not known any more.
func everything() *unsent {
	return &unsent{announcement: announcement{ID: rand.Text(), Purge: Selector{All: true, Hard: true}}}
}

func (b *outbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Waiting is how many purges wait until other machines can be told of them.
func (p *Purger) Waiting() int {
	p.outbox.mu.Lock()
	defer p.outbox.mu.Unlock()
	return len(p.outbox.list)
}

// waiting reports whether an announcement is in the outbox.
func (b *outbox) waiting(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.list, func(u *unsent) bool { return u.ID == id })
}

// covered reports whether a purge that waits in the outbox covers s as well, and will
// be announced later than now.
func (b *outbox) covered(s Selector) bool {
	for _, u := range b.list {
		all, same := Selector{All: true, Hard: u.Purge.Hard}, s
		same.Hard = u.Purge.Hard
		if !u.sending && (u.Purge.Hard || !s.Hard) && (u.Purge == all || u.Purge == same) {
			return true
		}
	}
	return false
}

// What add did.
type noted int

const (
	waits    noted = iota // it will be told
	needless              // another one that waits says as much
	tooMany               // nothing: merge them
)

// add puts an announcement into the outbox. The error says that it may be lost if this
// process ends first.
func (b *outbox) add(a announcement) (noted, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.covered(a.Purge) {
		return needless, b.inMemory()
	}
	if len(b.list) >= maxOutbox {
		return tooMany, nil
	}
	b.list = append(b.list, &unsent{announcement: a})
	b.ring()
	return waits, errors.Join(b.save(a), b.inMemory())
}

// errNoOutbox is the error for the operator where there is no folder.
var errNoOutbox = errors.New("if this server ends before that, purge again; `disk: DIR` in the config keeps purges over a restart")

func (b *outbox) inMemory() error {
	if b.dir == "" {
		return errNoOutbox
	}
	return nil
}

func (b *outbox) save(a announcement) error {
	if b.dir == "" {
		return nil
	}
	saved, err := json.Marshal(a)
	if err == nil {
		err = os.MkdirAll(b.dir, 0o700)
	}
	if err == nil {
		path := b.path(a.ID)
		if err = os.WriteFile(path+".new", saved, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return fmt.Errorf("keeping a purge for other machines: %w", err)
	}
	return nil
}

func (b *outbox) path(id string) string { return filepath.Join(b.dir, filepath.Base(id)+outboxName) }

// merge makes one of all that wait, and returns those that it replaces.
func (b *outbox) merge(into announcement) (replaced []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.save(into)
	for _, u := range b.list {
		replaced = append(replaced, u.ID)
		if err == nil {
			b.remove(u.ID)
		}
	}
	b.list = []*unsent{{announcement: into}}
	return replaced, errors.Join(err, b.inMemory())
}

// remove deletes a file that is of no more use. One that stays is told again.
func (b *outbox) remove(id string) {
	if b.dir != "" {
		_ = os.Remove(b.path(id))
	}
}

// next returns the oldest announcement, which is being sent from now on; nil: none.
func (b *outbox) next() *unsent {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return nil
	}
	b.list[0].sending = true
	return b.list[0]
}

// sent takes u out of the list if it was published, and otherwise leaves it there.
func (b *outbox) sent(u *unsent, told bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.sending = false; !told {
		return
	}
	for i, x := range b.list {
		if x == u {
			b.list = append(b.list[:i], b.list[i+1:]...)
			b.remove(u.ID)
			return
		}
	}
}

// later has a purge announced when the shared store answers again. why is what kept it
// from being announced now.
func (p *Purger) later(a announcement, why error) error {
	did, err := p.outbox.add(a)
	switch did {
	case waits:
	case needless:
		p.order.forgetOwn(a.ID) // nobody will hear of it; the other one is older, and stands for both
	case tooMany:
		one := everything().announcement
		p.order.announceOwn(one, func() Time { return p.purge(one.Purge)[0].at })
		var replaced []string
		replaced, err = p.outbox.merge(one)
		for _, id := range append(replaced, a.ID) {
			p.order.forgetOwn(id)
		}
		p.o.ErrorLog.Warn("too many purges wait until other machines can be told: everything is purged", "limit", maxOutbox)
	}
	return errors.Join(fmt.Errorf("purged here, but other machines were not told: %w; they will be, as soon as the shared store answers", why), err)
}

// reopen puts the purges into effect here that an earlier run could not announce.
// Until they are announced, what other machines have stored counts as older.
func (p *Purger) reopen() {
	for _, u := range p.outbox.list {
		p.order.announceOwn(u.announcement, func() Time { return p.purge(u.Purge)[0].at })
	}
}

// deliver announces what waits, until Close.
func (p *Purger) deliver() {
	for {
		select {
		case <-p.outbox.wake:
		case <-p.done:
			return
		}
		for u := p.outbox.next(); u != nil; u = p.outbox.next() {
			message, err := json.Marshal(u.announcement)
			if err == nil {
				err = p.o.Publish(p.ctx, message)
			}
			if p.outbox.sent(u, err == nil); err == nil {
				p.o.ErrorLog.Info("other machines have been told of a purge that waited", "purge", u.Purge)
				continue
			}
			select {
			case <-time.After(outboxPause):
			case <-p.done:
				return
			}
		}
	}
}
