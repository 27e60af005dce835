package purge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// station is a shared store's line for announcements, which may be down.
type station struct {
	mu   sync.Mutex
	down bool
	said []string // purges that were published

	running sync.WaitGroup // of all machines
}

var errDown = errors.New("down")

func (s *station) publish(_ context.Context, m []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	if !strings.Contains(string(m), "hello") {
		s.said = append(s.said, string(m))
	}
	return nil
}

func (s *station) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// machine is a purger with a line and an outbox.
func machine(t *testing.T, s *station, outbox string) *Purger {
	t.Helper()
	p, err := NewPurger(Options{
		Index: New(0), Alike: func(s Selector) []Selector { return []Selector{s} },
		Publish: s.publish, Outbox: outbox, Purged: func() {}, ErrorLog: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Run(t.Context(), s.running.Go)
	t.Cleanup(func() { s.end(t, p) })
	return p
}

// end ends a machine.
func (s *station) end(t *testing.T, p *Purger) {
	t.Helper()
	p.Stop()
	s.running.Wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// stateAfter is what becomes of an object that another machine has stored after an
// announcement.
func stateAfter(p *Purger, id string) State {
	at, _ := p.Time(id)
	return p.Index().State(&Object{URL: "http://a.example/x", Host: "a.example", At: at}, nil)
}

// TestOutbox: a purge that others could not be told of holds over a restart, and
// they are told when that is possible.
func TestOutbox(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		line := &station{down: true}
		h := machine(t, line, dir)
		h.Message([]byte(`{"id":"old","hello":true}`), false)
		if err := h.Purge(t.Context(), Selector{URL: "http://a.example/x", Hard: true}); !errors.Is(err, errDown) || errors.Is(err, errNoOutbox) {
			t.Errorf("error %v", err)
		}
		if s := stateAfter(h, "old"); s != Gone {
			t.Errorf("after the purge what was stored before it is %v", s)
		}
		line.end(t, h)

		h = machine(t, line, dir)
		h.Message([]byte(`{"id":"old","hello":true}`), false) // as the stream is read again
		if s := stateAfter(h, "old"); s != Gone {
			t.Errorf("after a restart what was purged is %v", s)
		}
		line.set(false)
		time.Sleep(2 * outboxPause)
		synctest.Wait()
		if len(line.said) != 1 || !strings.Contains(line.said[0], "http://a.example/x") {
			t.Fatalf("published: %q", line.said)
		}
		h.Message([]byte(line.said[0]), false)
		h.Message([]byte(`{"id":"new","hello":true}`), false)
		if old, fresh := stateAfter(h, "old"), stateAfter(h, "new"); old != Gone || fresh != Valid {
			t.Errorf("once it was told: what was stored before is %v, after it %v", old, fresh)
		}
		line.end(t, h)
		if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestOutboxBounds: repeated purges need no room, and too many count as one.
func TestOutboxBounds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) { // so that nothing is tried again meanwhile
		line := &station{down: true}
		h := machine(t, line, dir)
		files := func() int {
			synctest.Wait() // files that are being written or removed do not count
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			return len(left)
		}
		one := Selector{Tag: "a", Hard: true}
		for range 10 {
			h.Purge(t.Context(), one)
			h.Purge(t.Context(), Selector{Tag: "a"})
		}
		if n := files(); n > 3 { // a hard one, a soft one, and one that was under way
			t.Errorf("%d files for one purge, again and again", n)
		}
		for i := range 2*maxOutbox + 10 {
			h.Purge(t.Context(), Selector{Tag: fmt.Sprint(i)})
		}
		if n := files(); n > 2 {
			t.Errorf("%d files, want one that stands for all", n)
		}
		if n := len(h.order.own); n > 3 {
			t.Errorf("%d announcements are waited for", n)
		}
		line.end(t, h)
		h = machine(t, line, dir)
		h.Message([]byte(`{"id":"old","hello":true}`), false)
		if s := stateAfter(h, "old"); s != Gone {
			t.Errorf("after too many purges and a restart it is %v", s)
		}
		line.end(t, h)
	})
}

// TestOutboxDamaged: what cannot be read counts for everything, and nothing
// there holds up the start.
func TestOutboxDamaged(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"cut":   func(path string) error { return os.WriteFile(path, []byte(`{"id":"x","pur`), 0o600) },
		"large": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte(" "), maxUnsent+1), 0o600) },
		"link":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"dir":   func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := put(filepath.Join(dir, "x"+outboxName)); err != nil {
			t.Fatal(err)
		}
		h := machine(t, &station{down: true}, dir)
		h.Message([]byte(`{"id":"old","hello":true}`), false)
		if s := stateAfter(h, "old"); s != Gone {
			t.Errorf("%s: it is %v", name, s)
		}
	}
}

// TestOutboxInMemory: without a folder the one who purges is told what is at stake.
func TestOutboxInMemory(t *testing.T) {
	h := machine(t, &station{down: true}, "")
	if err := h.Purge(t.Context(), Selector{All: true}); !errors.Is(err, errNoOutbox) {
		t.Errorf("error %v", err)
	}
}
