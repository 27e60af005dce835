//go:build linux

package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace/internal/bytesize"
	"millrace/store"
)

func openTest(t testing.TB, dir string, limit bytesize.Size) *Store {
	t.Helper()
	d, err := Open(Options{Dir: dir, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	<-d.loaded
	return d
}

func putBytes(s store.Store, key string, size int64, head, body []byte) error {
	w, err := s.Create(context.Background(), key, size)
	if err != nil {
		return err
	}
	if _, err := w.Write(body); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Commit(head)
}

func getBytes(s store.Store, key string) (head, body []byte, err error) {
	o, err := s.Get(context.Background(), key)
	if err != nil {
		return nil, nil, err
	}
	defer o.Close()
	body, err = io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size))
	return o.Head, body, err
}

func mustHold(t *testing.T, s store.Store, key string, head, body []byte) {
	t.Helper()
	h, b, err := getBytes(s, key)
	if err != nil || !bytes.Equal(h, head) || !bytes.Equal(b, body) {
		t.Errorf("%.20q: head %.20q and %d bytes, %v; want %.20q and %d", key, h, len(b), err, head, len(body))
	}
}

// onDisk sums up the files below a folder in blocks: of objects, and all.
func onDisk(t testing.TB, dir string) (objects, all int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all += blocks(info.Size())
		if len(e.Name()) == 2*len(id{}) {
			objects += blocks(info.Size())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects, all
}

// settled compares what a store believes with what is there; nobody is writing.
func settled(t *testing.T, d *Store) {
	t.Helper()
	objects, all := onDisk(t, d.options.Dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used != objects || d.writers != 0 || all > d.limit {
		t.Errorf("the store counts %d blocks and %d writers; there are %d blocks of objects, %d in all, the limit is %d", d.used, d.writers, objects, all, d.limit)
	}
	if tmp, err := os.ReadDir(filepath.Join(d.options.Dir, writingName)); err != nil || len(tmp) > 0 {
		t.Errorf("%d unfinished objects are left, %v", len(tmp), err)
	}
}

// watched calls after, alone, after everything that happens to a file.
type watched struct {
	files
	mu     *sync.Mutex
	before func(op, name string) error
	after  func()
}

func watch(d *Store, before func(op, name string) error, after func()) {
	w := watched{d.files, new(sync.Mutex), before, after}
	d.files, d.index.files = w, w
}

func (w watched) create(name string) (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.before("create", name); err != nil {
		return nil, err
	}
	defer w.after()
	return w.files.create(name)
}

// write writes half of it before it fails.
func (w watched) write(f *os.File, p []byte, at int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.before("write", f.Name()); err != nil {
		_ = w.files.write(f, p[:len(p)/2], at)
		return err
	}
	defer w.after()
	return w.files.write(f, p, at)
}

func (w watched) rename(from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.before("rename", to); err != nil {
		return err
	}
	defer w.after()
	return w.files.rename(from, to)
}

func (w watched) remove(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.before("remove", name); err != nil {
		return err
	}
	defer w.after()
	return w.files.remove(name)
}

func (w watched) open(name string) (*os.File, error) {
	if err := w.before("open", name); err != nil {
		return nil, err
	}
	return w.files.open(name)
}

// TestQuota writes, replaces, aborts and deletes from many goroutines, and
// looks at the disk after everything that is done to a file.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 2<<20)
	highest := int64(0)
	watch(d, func(string, string) error { return nil }, func() {
		_, all := onDisk(t, dir)
		highest = max(highest, all)
	})
	var everyone sync.WaitGroup
	for worker := range 8 {
		everyone.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 2))
			for range 25 {
				key := fmt.Sprint("key ", r.IntN(300))
				body := make([]byte, r.IntN(1<<(8+r.IntN(12))))
				size := int64(len(body))
				if r.IntN(2) == 0 {
					size = -1
				}
				w, err := d.Create(t.Context(), key, size)
				if err == nil {
					_, err = io.Copy(w, iotestChunks{bytes.NewReader(body), 20_000})
					switch {
					case err != nil || r.IntN(8) == 0:
						err = errors.Join(err, w.Abort())
					default:
						err = w.Commit(make([]byte, r.IntN(6000)))
					}
				}
				if err != nil && !errors.Is(err, store.ErrFull) {
					t.Error(err)
				}
				if r.IntN(10) == 0 {
					if err := d.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	everyone.Wait()
	settled(t, d)
	if highest > d.limit {
		t.Errorf("%d blocks were in use at one time, the limit is %d", highest, d.limit)
	}
	if s := d.Stats(); s.Evicted == 0 || highest < d.limit*8/10 {
		t.Errorf("stats %+v, at most %d of %d blocks were in use: this test shows nothing", s, highest, d.limit)
	}
}

// TestQuotaSmall writes objects of one block, so that index and heads weigh.
func TestQuotaSmall(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	highest := int64(0)
	for n := range 265 {
		if n == 230 { // nearly full
			watch(d, func(string, string) error { return nil }, func() {
				_, all := onDisk(t, dir)
				highest = max(highest, all)
			})
		}
		head := []byte("h")
		if n > 245 && n%5 == 0 {
			head = make([]byte, 150_000)
		}
		if err := putBytes(d, fmt.Sprint(n), 1, head, []byte("b")); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, d)
	if highest > d.limit || highest < d.limit*8/10 {
		t.Errorf("%d blocks were in use at one time, the limit is %d", highest, d.limit)
	}
}

// iotestChunks gives at most n bytes at a time, and hides WriteTo.
type iotestChunks struct {
	r io.Reader
	n int
}

func (c iotestChunks) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.n)]) }

// TestFailures lets every single operation on files fail once, with what
// systems say when there is no room or the disk fails.
func TestFailures(t *testing.T) {
	old, fresh := bytes.Repeat([]byte("old "), 50_000), bytes.Repeat([]byte("new "), 60_000)
	for n := 0; ; n++ {
		fault := []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO}[n%3]
		dir := t.TempDir()
		d := openTest(t, dir, 1<<20)
		for i := range 5 {
			if err := putBytes(d, fmt.Sprint("old ", i), -1, []byte("h"), make([]byte, 150_000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := putBytes(d, "key", -1, []byte("old"), old); err != nil {
			t.Fatal(err)
		}
		op, failed := 0, ""
		watch(d, func(what, name string) error {
			if op++; op-1 == n {
				failed = what + " " + name
				return fault
			}
			return nil
		}, func() {})
		err := putBytes(d, "key", -1, []byte("new"), fresh)
		if failed == "" {
			if err != nil || n < 8 {
				t.Errorf("after %d operations: %v", n, err)
			}
			return
		}
		if err == nil {
			mustHold(t, d, "key", []byte("new"), fresh)
		} else {
			if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), fault.Error()) {
				t.Errorf("%s failed: %v", failed, err)
			}
			if h, b, err := getBytes(d, "key"); err == nil && (string(h) != "old" || !bytes.Equal(b, old)) {
				t.Errorf("%s failed: head %q and %d bytes are left", failed, h, len(b))
			}
		}
		settled(t, d)
		if err := putBytes(d, "key", int64(len(fresh)), []byte("new"), fresh); err != nil {
			t.Errorf("after %s had failed: %v", failed, err)
		}
		mustHold(t, d, "key", []byte("new"), fresh)
		settled(t, d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = openTest(t, dir, 1<<20)
		mustHold(t, d, "key", []byte("new"), fresh)
		settled(t, d)
	}
}

// TestIndexCannotBeWritten at the start: the store goes on, and takes objects
// once it can.
func TestIndexCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	if err := putBytes(d, "key", 1, []byte("h"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	broken := true
	watch(d, func(_, name string) error {
		if broken && strings.HasPrefix(name, "index") {
			return syscall.ENOSPC
		}
		return nil
	}, func() {})
	d.index.close() // as it is when finish has failed
	if err := putBytes(d, "new", 1, []byte("h"), []byte("b")); !errors.Is(err, store.ErrFull) {
		t.Errorf("without an index: %v", err)
	}
	mustHold(t, d, "key", []byte("h"), []byte("b"))
	settled(t, d)
	broken = false
	if err := putBytes(d, "new", 1, []byte("h"), []byte("b")); err != nil {
		t.Error(err)
	}
	mustHold(t, d, "new", []byte("h"), []byte("b"))
	settled(t, d)
}

// TestCollision puts the file of one key where another's belongs.
func TestCollision(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	if err := putBytes(d, "a", -1, []byte("ha"), []byte("of a")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, idOf("a").path()))
	if err != nil {
		t.Fatal(err)
	}
	if err := putBytes(d, "b", -1, []byte("hb"), []byte("of b")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, idOf("b").path()), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := getBytes(d, "b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("b: %v", err)
	}
	mustHold(t, d, "a", []byte("ha"), []byte("of a"))
}

// TestForgetLate: an object that was put in place after it was missed, or after
// a damaged one was read in its place, stays.
func TestForgetLate(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	if err := putBytes(d, "key", -1, []byte("h"), []byte("old")); err != nil {
		t.Fatal(err)
	}
	old, err := d.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := putBytes(d, "key", -1, []byte("h"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	d.forget(idOf("key"), nil)
	d.forget(idOf("key"), old.File)
	mustHold(t, d, "key", []byte("h"), []byte("new"))
	settled(t, d)
}

// reboot makes the next start believe that the machine was started meanwhile.
func reboot(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, stateName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := parseState(string(b))
	if s.epoch == 0 || s.boot != bootID() {
		t.Fatalf("state %+v of %q", s, b)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, stateLine, s.epoch, "another"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamage changes or cuts off an object's file anywhere: it is whole, or
// it is not there.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 1<<20)
	head, body := []byte("the head"), []byte("the body, which is short")
	if err := putBytes(d, "key", -1, head, body); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, idOf("key").path())
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d.epoch++ // as after a start of the machine: all is read with suspicion
	try := func(what string, b []byte) {
		d.mu.Lock()
		if _, e := d.table.find(idOf("key")); e != nil {
			e.word &^= uint32(verified)
		} else {
			d.used += blocks(int64(len(sound)))
			d.table.put(idOf("key"), blocks(int64(len(sound))))
		}
		d.mu.Unlock()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Walk(t.Context(), func(key string, h []byte, _ int64) error {
			if key != "key" || !bytes.Equal(h, head) {
				t.Errorf("%s: walked over %q with the head %q", what, key, h)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		h, got, err := getBytes(d, "key")
		if errors.Is(err, store.ErrNotFound) {
			return
		}
		if err != nil || !bytes.Equal(h, head) || !bytes.Equal(got, body) {
			t.Errorf("%s: head %q, body %q, %v", what, h, got, err)
		}
	}
	for n := range sound {
		for bit := range 8 {
			b := bytes.Clone(sound)
			b[n] ^= 1 << bit
			try(fmt.Sprintf("bit %d of byte %d", bit, n), b)
		}
		try(fmt.Sprintf("cut off at %d", n), sound[:n])
		zeros := bytes.Clone(sound)
		clear(zeros[n:])
		try(fmt.Sprintf("zeros from %d", n), zeros)
	}
	try("the whole file", sound)
	mustHold(t, d, "key", head, body)
	settled(t, d)
	try("an empty file", nil)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged file was not removed: %v", err)
	}
	settled(t, d)
}

// TestPowerLoss: after a new start of the machine, bodies that did not reach
// the disk are noticed, the others are there, and the quota is right.
func TestPowerLoss(t *testing.T) {
	dir := t.TempDir()
	d := openTest(t, dir, 4<<20)
	body := func(n int) []byte {
		b := make([]byte, 100_000)
		binary.LittleEndian.PutUint64(b[99_000:], uint64(n+1))
		return b
	}
	for n := range 10 {
		if err := putBytes(d, fmt.Sprint(n), -1, []byte("head"), body(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	reboot(t, dir)
	path := func(n int) string { return filepath.Join(dir, idOf(fmt.Sprint(n)).path()) }
	lose := []error{
		os.Remove(path(0)),
		os.Truncate(path(1), 0),
		os.Truncate(path(2), 50_000),
		rewrite(path(3), func(b []byte) { clear(b[98_304:]) }),     // a page with the head
		rewrite(path(4), func(b []byte) { clear(b[8192:99_300]) }), // pages of the body
	}
	if err := errors.Join(lose...); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, dir, 4<<20)
	if s := d.Stats(); s.Objects != 9 || s.Loading {
		t.Errorf("stats %+v, want 9 objects: the walk finds what the index does not know, and the other way round", s)
	}
	for range 2 {
		for n := range 10 {
			if n > 4 {
				mustHold(t, d, fmt.Sprint(n), []byte("head"), body(n))
			} else if _, _, err := getBytes(d, fmt.Sprint(n)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the lost object %d: %v", n, err)
			}
		}
	}
	settled(t, d)
	if _, err := os.Stat(path(4)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged file was not removed: %v", err)
	}
	if !d.flagged(idOf("9"), verified) {
		t.Error("a sound body is compared again with every Get")
	}
}

func rewrite(path string, change func(b []byte)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	change(b)
	return os.WriteFile(path, b, 0o600)
}
