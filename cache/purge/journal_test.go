package purge

import (
	"log/slog"
	"path/filepath"
	"testing"
)

// TestJournalReplaced: another process has begun a journal of its own in the same
// place, and has failed. What was purged meanwhile is in the file after save.
func TestJournalReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "purges")
	var ours, theirs, after journal
	open := func(j *journal) *Index {
		t.Helper()
		index := New(0)
		if err := j.open(path, index, slog.Default()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.close() })
		return index
	}
	index := open(&ours)
	open(&theirs)
	s := Selector{URL: "http://a.example/b"}
	at := index.Purge(s)
	if err := ours.add([]purged{{s, at}}); err != nil {
		t.Fatal(err)
	}
	if err := ours.save(); err != nil {
		t.Fatal(err)
	}
	if got, want := len(open(&after).Save()), len(index.Save()); got != want {
		t.Errorf("%d bytes are known of %d", got, want)
	}
	if err := new(journal).save(); err != nil {
		t.Error(err)
	}
}
