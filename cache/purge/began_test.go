package purge

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBegan: in another run of the shared store's server, what was stored before is not
// known, and purges that were not heard are announced again.
func TestBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &station{}
		h := machine(t, line, "")
		h.Began("one")
		h.Message([]byte(`{"id":"old","hello":true}`), false)
		mine := Object{URL: "http://a.example/y", At: h.Index().Now()}
		if err := h.Purge(t.Context(), Selector{URL: "http://a.example/x", Hard: true}); err != nil {
			t.Fatal(err)
		}
		h.Began("one")
		if _, known := h.Time("old"); !known || h.Index().State(&mine, nil) != Valid {
			t.Error("a connection that is made again, in the same run, makes things unknown")
		}
		h.Began("two")
		if at, known := h.Time("old"); known {
			t.Errorf("what was stored in the run before is taken for known, at %d", at)
		}
		if s := h.Index().State(&mine, nil); s != Unsure {
			t.Errorf("what this machine has fetched before is %v", s)
		}
		if epoch := h.Epoch(mine.At); epoch != "" {
			t.Errorf("it has a place in the order of the new run: %q", epoch)
		}
		time.Sleep(2 * outboxPause)
		synctest.Wait()
		if len(line.said) != 2 || line.said[0] != line.said[1] {
			t.Fatalf("published: %q", line.said)
		}
		h.Message([]byte(line.said[1]), false)
		h.Message([]byte(`{"id":"new","hello":true}`), false)
		if s := stateAfter(h, "new"); s != Valid {
			t.Errorf("what others store in the new run is %v", s)
		}
		mine.At = h.Index().Now()
		if epoch := h.Epoch(mine.At); epoch != "new" {
			t.Errorf("what this machine stores in the new run has the place %q", epoch)
		}
		line.end(t, h)
	})
}

// TestPublishedTwice: an announcement whose answer was lost is published again, behind a
// purge. What another machine has stored behind the first one is older than that.
func TestPublishedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := &station{}
		h := machine(t, line, "")
		h.Began("one")
		other := []byte(`{"id":"other","purge":{"tag":"news"}}`)
		h.Message(other, false)
		if s := stateAfter(h, "other"); s != Valid {
			t.Errorf("before the purge: %v", s)
		}
		if err := h.Purge(t.Context(), Selector{URL: "http://a.example/x", Hard: true}); err != nil {
			t.Fatal(err)
		}
		h.Message([]byte(line.said[len(line.said)-1]), false)
		h.Message(other, false)
		if s := stateAfter(h, "other"); s != Gone {
			t.Errorf("what was stored before the purge is %v, want %v", s, Gone)
		}
		h.Message([]byte(`{"id":"new","hello":true}`), false)
		if s := stateAfter(h, "new"); s != Valid {
			t.Errorf("what was stored behind it is %v", s)
		}
		line.end(t, h)
	})
}

// TestDoubt: after a start, what is on the disk is used without validation as soon as all
// announcements of the run were received, if the earlier run of this machine was in it.
func TestDoubt(t *testing.T) {
	for run, want := range map[string]State{"one": Valid, "two": Unsure} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			var greetings chan string
			open := func() (*Purger, func()) {
				var running sync.WaitGroup
				greetings = make(chan string, 10)
				p, err := NewPurger(Options{
					Index: New(0), Alike: func(s Selector) []Selector { return []Selector{s} }, Journal: filepath.Join(dir, "purges"),
					Publish: func(_ context.Context, m []byte) error { greetings <- string(m); return nil },
					Purged:  func() {}, ErrorLog: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				p.Run(t.Context(), running.Go)
				return p, func() { p.Stop(); running.Wait(); _ = p.Close() } // the file was read
			}
			p, end := open()
			p.Began("one")
			stored := Object{URL: "http://a.example/x", At: p.Index().Now()}
			end()

			time.Sleep(time.Second)
			p, end = open()
			defer end()
			if s := p.Index().State(&stored, nil); s != Unsure {
				t.Errorf("before anything was received it is %v", s)
			}
			p.Began(run)
			p.Message([]byte(`{"id":"other","hello":true}`), false)
			if s := p.Index().State(&stored, nil); s != Unsure {
				t.Errorf("before all was received it is %v", s)
			}
			p.Message([]byte(<-greetings), false)
			if s := p.Index().State(&stored, nil); s != want {
				t.Errorf("in the run %s it is %v", run, s)
			}
		})
	}
}
