//go:build linux

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"millrace/store"
)

// TestIndexLost: whatever happens to the index, the objects are found and the
// quota is right.
func TestIndexLost(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"lost":            os.Remove,
		"empty":           func(path string) error { return os.Truncate(path, 0) },
		"torn at the end": func(path string) error { return os.Truncate(path, 8+recordSize*5+7) },
		"bit":             func(path string) error { return rewrite(path, func(b []byte) { b[8+recordSize*3+17] ^= 4 }) },
		"other magic":     func(path string) error { return rewrite(path, func(b []byte) { b[0] = 'M' }) },
		"cut off between records, by a loss of power": func(path string) error {
			reboot(t, filepath.Dir(path))
			return os.Truncate(path, 8+recordSize*5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := openTest(t, dir, 2<<20)
			for n := range 20 {
				if err := putBytes(d, fmt.Sprint(n), -1, []byte("h"), make([]byte, 5000*n)); err != nil {
					t.Fatal(err)
				}
			}
			before := d.Stats()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, indexName)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				d = openTest(t, dir, 2<<20)
				if s := d.Stats(); s != before {
					t.Errorf("stats %+v, want %+v", s, before)
				}
				settled(t, d)
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// A walk that is not finished is done again.
			d = openTest(t, dir, 2<<20)
			if err := putBytes(d, "new", -1, []byte("h"), make([]byte, 5000)); err != nil {
				t.Error(err)
			}
			settled(t, d)
		})
	}
}

// TestIndexBound: replacing and deleting for ever makes no long index.
func TestIndexBound(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 4<<20)
	longest := int64(0)
	for n := range 2500 {
		key := fmt.Sprint(n % 7)
		if err := putBytes(d, key, 1, nil, []byte("b")); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			if err := d.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(dir, indexName))
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, info.Size())
	}
	if bound := int64(recordSize * (2*7 + indexSlack + indexLater + 1)); longest > bound || longest < bound/2 {
		t.Errorf("the index had %d bytes, the bound is %d", longest, bound)
	}
	if len(d.index.wait) > indexLater*recordSize {
		t.Errorf("%d bytes wait to be written", len(d.index.wait))
	}
}

// TestLoading: objects are found, but not taken, before the index is read.
func TestLoading(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	if err := putBytes(d, "key", -1, []byte("h"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := putBytes(d, "other", -1, []byte("h"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.table, d.used, d.loading = table{}, 0, true // as if nothing were read yet
	d.mu.Unlock()
	d.index.close()
	if !d.Stats().Loading {
		t.Error("Stats does not tell that it is loading")
	}
	mustHold(t, d, "key", []byte("h"), []byte("b"))
	if err := putBytes(d, "key", -1, []byte("h"), []byte("b2")); !errors.Is(err, store.ErrFull) {
		t.Errorf("put: %v", err)
	}
	if err := d.Delete(t.Context(), "key"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, _, err := getBytes(d, "key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after delete: %v", err)
	}
	if err := d.walk(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.finish(true)
	if s := d.Stats(); s.Objects != 1 || s.Loading {
		t.Errorf("stats %+v", s)
	}
	settled(t, d)
}

// TestBackground reads a large index while objects are asked for, and is
// closed in the middle of it or not: nothing is lost.
func TestBackground(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<30)
	if err := putBytes(d, "key", -1, []byte("h"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	d.changes.Lock()
	d.mu.Lock()
	for n := range 60_000 { // that are not there; a walk finds out
		d.used += 1 - d.table.put(idOf(fmt.Sprint("phantom ", n)), 1)
	}
	d.mu.Unlock()
	d.changes.Unlock()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, indexName)); err != nil || info.Size() <= loadAtOnce {
		t.Fatalf("the index has %d bytes, %v: this test shows nothing", info.Size(), err)
	}
	for range 3 {
		d, err := Open(Options{Dir: dir, Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, d, "key", []byte("h"), []byte("b"))
		if err := d.Close(); err != nil { // maybe before it is loaded
			t.Fatal(err)
		}
	}
	d = openTest(t, dir, 1<<30)
	if s := d.Stats(); s.Objects != 60_001 {
		t.Errorf("stats %+v", s)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	reboot(t, dir)
	d = openTest(t, dir, 1<<30)
	if s := d.Stats(); s.Objects != 1 {
		t.Errorf("after a walk: stats %+v", s)
	}
	settled(t, d)
}

// TestLowerLimit: a limit that is lower than before holds at once.
func TestLowerLimit(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 4<<20)
	for n := range 30 {
		if err := putBytes(d, fmt.Sprint(n), -1, nil, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, dir, 1<<20)
	settled(t, d)
	if s := d.Stats(); s.Objects < 8 {
		t.Errorf("stats %+v", s)
	}
}

// TestTooManyOpen: descriptors are bounded.
func TestTooManyOpen(t *testing.T) {
	d := openTest(t, t.TempDir(), 1<<20)
	d.most = 2
	if err := putBytes(d, "key", -1, []byte("h"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	var open []*store.Object
	for range 2 {
		o, err := d.Get(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
	}
	if _, err := d.Get(t.Context(), "key"); !errors.Is(err, store.ErrDown) {
		t.Errorf("the third: %v", err)
	}
	for range 2 {
		if err := open[0].Close(); err != nil { // twice counts once
			t.Fatal(err)
		}
	}
	o, err := d.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "key"); !errors.Is(err, store.ErrDown) {
		t.Errorf("the third again: %v", err)
	}
	o.Close()
	open[1].Close()
	if _, err := d.Get(t.Context(), "nothing"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	if n := d.reading.Load(); n != 0 {
		t.Errorf("%d objects are counted as open", n)
	}
}

// TestManyWriters: their buffers are bounded.
func TestManyWriters(t *testing.T) {
	d := openTest(t, t.TempDir(), 1<<30)
	var all []store.Writer
	for n := range maxWriters {
		w, err := d.Create(t.Context(), fmt.Sprint(n), 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	if _, err := d.Create(t.Context(), "key", 1); !errors.Is(err, store.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	for _, w := range all {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Create(t.Context(), "key", 1<<30); !errors.Is(err, store.ErrFull) {
		t.Errorf("as large as all: %v", err)
	}
	settled(t, d)
}

// TestAdmission: what was offered lately is remembered.
func TestAdmission(t *testing.T) {
	const offered = 20_000
	var a Admission
	for n := range offered {
		if a.again(idOf(fmt.Sprint(n))) {
			t.Fatalf("%d was never offered", n)
		}
	}
	known := 0
	for n := range offered {
		if a.again(idOf(fmt.Sprint(n))) {
			known++
		}
	}
	if known < offered*95/100 {
		t.Errorf("of %d keys %d are remembered", offered, known)
	}
}

// TestTable compares a table with a map while both go through the same.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var tab table
	want := map[id]int64{}
	for step := range 60_000 {
		// Few different ids, of which many have the same first slot.
		i := id{8 * byte(r.IntN(32)), 0, 0, 0, 0, 0, 0, 0, byte(r.IntN(9))}
		switch n := r.IntN(10); {
		case n < 5:
			size := 1 + r.Int64N(maxBlocks)
			if before := tab.put(i, size); before != want[i] {
				t.Fatalf("step %d: it was %d before, want %d", step, before, want[i])
			}
			want[i] = size
		case n < 9:
			if size := tab.remove(i); size != want[i] {
				t.Fatalf("step %d: removed %d, want %d", step, size, want[i])
			}
			delete(want, i)
		default:
			tab.flag(i, used)
			victim, ok := tab.victim()
			if ok != (len(want) > 0) || ok && want[victim] == 0 || ok && victim == i && len(want) > 1 {
				t.Fatalf("step %d: victim %v %v of %d objects", step, victim, ok, len(want))
			}
		}
		if tab.len() != len(want) || tab.blocks(i) != want[i] {
			t.Fatalf("step %d: %d objects, want %d; %d blocks, want %d", step, tab.len(), len(want), tab.blocks(i), want[i])
		}
	}
	byBytes := func(a, b id) int { return bytes.Compare(a[:], b[:]) }
	got := slices.SortedFunc(slices.Values(tab.ids()), byBytes)
	if !slices.Equal(got, slices.SortedFunc(maps.Keys(want), byBytes)) {
		t.Errorf("%d ids, want %d", len(got), len(want))
	}
}

func TestIDs(t *testing.T) {
	i := idOf("key")
	name := filepath.Base(i.path())
	if back, ok := idOfName(name); !ok || back != i {
		t.Errorf("%s read back: %v %v", name, back, ok)
	}
	// It names files that outlive the process, so it may never change.
	if want := "2/c7/2c70e12b7a0646f92279f427c7b38e73"; i.path() != want {
		t.Errorf("path %s, want %s", i.path(), want)
	}
	for _, bad := range []string{"", name[1:], name + "0", "G" + name[1:], "A" + name[1:], "../../../../../../../etc/passwd0"} {
		if _, ok := idOfName(bad); ok {
			t.Errorf("%q is taken for an id", bad)
		}
	}
}
