package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"millrace/store"
)

// readWhileWriting has readers follow a writer, which is what a cache does
// with an answer that is still coming in.
func (s suite) readWhileWriting(t *testing.T) {
	st := s.start(t)
	const size = 600_000
	body := content(3, size)
	w := mustCreate(t, st, "key", -1)
	written := make(chan int, 1000) // more than there are parts: the writer never waits
	var readers sync.WaitGroup
	check := func(upTo int) error {
		for _, from := range []int{0, upTo / 2, max(0, upTo-5000)} {
			p := make([]byte, upTo-from)
			if n, err := w.ReadAt(p, int64(from)); n != len(p) || err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read %d of %d bytes at %d: %w", n, len(p), from, err)
			}
			if !bytes.Equal(p, body[from:upTo]) {
				return fmt.Errorf("wrong bytes in [%d, %d)", from, upTo)
			}
		}
		return nil
	}
	for range 3 {
		readers.Go(func() {
			for upTo := range written {
				if err := check(upTo); err != nil {
					t.Error(err)
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(4, 4))
	for at := 0; at < size; {
		n := min(1+r.IntN(30_000), size-at)
		mustWrite(t, w, body[at:at+n])
		at += n
		written <- at
	}
	close(written)
	readers.Wait()
	if n, err := w.ReadAt(make([]byte, 10), size-4); n != 4 || !errors.Is(err, io.EOF) {
		t.Errorf("reading over the end of what was written: %d bytes, %v; want 4, EOF", n, err)
	}
	mustCommit(t, w, []byte("head"))
	mustGet(t, st, "key", []byte("head"), body)
}

func (s suite) invisible(t *testing.T) {
	st := s.start(t)
	w := mustCreate(t, st, "key", -1)
	mustMiss(t, st, "key")
	mustWrite(t, w, content(1, 200_000))
	mustMiss(t, st, "key")
	mustCommit(t, w, []byte("head"))
	mustGet(t, st, "key", []byte("head"), content(1, 200_000))
}

func (s suite) abort(t *testing.T) {
	st := s.start(t)
	for _, size := range []int{0, 10, 200_000} {
		w := mustCreate(t, st, "key", -1)
		mustWrite(t, w, content(1, size))
		for range 2 {
			if err := w.Abort(); err != nil {
				t.Errorf("abort: %v", err)
			}
		}
		mustMiss(t, st, "key")
		if err := w.Commit([]byte("head")); err == nil {
			t.Error("commit after abort: no error")
		}
		mustMiss(t, st, "key")
	}
	mustPut(t, st, "key", []byte("old"), []byte("old"))
	w := mustCreate(t, st, "key", -1)
	mustWrite(t, w, content(1, 100))
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
	mustGet(t, st, "key", []byte("old"), []byte("old"))
	w = mustCreate(t, st, "key", -1)
	mustWrite(t, w, []byte("new"))
	mustCommit(t, w, []byte("new"))
	if err := w.Abort(); err != nil {
		t.Errorf("abort after commit: %v", err)
	}
	mustGet(t, st, "key", []byte("new"), []byte("new"))
	if err := w.Commit([]byte("twice")); err == nil {
		t.Error("a second commit: no error")
	}
	mustGet(t, st, "key", []byte("new"), []byte("new"))
}

func (s suite) replaceOpen(t *testing.T) {
	st := s.start(t)
	old := content(1, 300_000)
	mustPut(t, st, "key", []byte("old"), old)
	o, err := st.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	mustPut(t, st, "key", []byte("new"), content(2, 300_000))
	body, err := read(o)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "head of the replaced object", o.Head, []byte("old"))
	same(t, "body of the replaced object", body, old)
	mustGet(t, st, "key", []byte("new"), content(2, 300_000))
}

func (s suite) deleteOpen(t *testing.T) {
	st := s.start(t)
	old := content(1, 300_000)
	mustPut(t, st, "key", []byte("old"), old)
	o, err := st.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	if err := st.Delete(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	mustMiss(t, st, "key")
	body, err := read(o)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "body of the deleted object", body, old)
}

func (s suite) lastCommit(t *testing.T) {
	st := s.start(t)
	first, second := mustCreate(t, st, "key", -1), mustCreate(t, st, "key", -1)
	mustWrite(t, first, []byte("first"))
	mustWrite(t, second, []byte("second"))
	mustCommit(t, second, []byte("2"))
	mustGet(t, st, "key", []byte("2"), []byte("second"))
	mustCommit(t, first, []byte("1"))
	mustGet(t, st, "key", []byte("1"), []byte("first"))
}

// whole checks that head and body are of one and the same put by putNumbered.
func whole(head, body []byte) error {
	var seed uint64
	var size int
	if _, err := fmt.Sscanf(string(head), "%d %d", &seed, &size); err != nil {
		return fmt.Errorf("head %q: %w", head, err)
	}
	if !bytes.Equal(body, content(seed, size)) {
		return fmt.Errorf("head %q with a body of %d bytes that is not its own", head, len(body))
	}
	return nil
}

func putNumbered(ctx context.Context, st store.Store, key string, seed uint64, size int) error {
	return put(ctx, st, key, fmt.Appendf(nil, "%d %d", seed, size), content(seed, size))
}

func (s suite) writers(t *testing.T) {
	st := s.start(t)
	var all sync.WaitGroup
	for writer := range 6 {
		all.Go(func() {
			for i := range 15 {
				if err := putNumbered(t.Context(), st, "key", uint64(writer*100+i), 1+writer*40_000+i); err != nil {
					t.Error(err)
				}
				head, body, err := get(t.Context(), st, "key")
				if err == nil {
					err = whole(head, body)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// everything does all that can be done to a few keys, from many goroutines.
// What is read must be whole; the race detector does the rest.
func (s suite) everything(t *testing.T) {
	st := s.start(t)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for i := range 60 {
				key := fmt.Sprint("key ", r.IntN(5))
				if err := s.anything(t.Context(), st, r, key, uint64(worker*1000+i)); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	all.Wait()
}

func (s suite) anything(ctx context.Context, st store.Store, r *rand.Rand, key string, seed uint64) error {
	switch r.IntN(8) {
	case 0:
		return st.Delete(ctx, key)
	case 1:
		w, err := st.Create(ctx, key, -1)
		if err != nil {
			return err
		}
		if _, err := w.Write(content(seed, r.IntN(100_000))); err != nil {
			return err
		}
		return w.Abort()
	case 2, 3, 4:
		return putNumbered(ctx, st, key, seed, r.IntN(100_000))
	default:
		head, body, err := get(ctx, st, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		st.Stats()
		return whole(head, body)
	}
}

func (s suite) keys(t *testing.T) {
	st := s.start(t)
	long := strings.Repeat("8 KiB of key ", 631)[:8<<10]
	keys := []string{
		"", " ", "\x00", "a\x00b", "a", "a/b", "/", "../../../etc/passwd", ".", "..", "tmp", "index",
		"\xff\xfe not UTF-8", "new\r\nline", "{braces}", "*", "käse", "GET\nhttp://example.com/?a=b&c=%00",
		long, long[:len(long)-1] + "!", long[:len(long)-1],
	}
	for i, key := range keys {
		mustPut(t, st, key, fmt.Append(nil, i), content(uint64(i), 100+i))
	}
	for i, key := range keys {
		mustGet(t, st, key, fmt.Append(nil, i), content(uint64(i), 100+i))
	}
	for _, key := range keys {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Errorf("deleting %.40q: %v", key, err)
		}
		mustMiss(t, st, key)
	}
}

func (s suite) context(t *testing.T) {
	st := s.start(t)
	mustPut(t, st, "key", []byte("h"), []byte("b"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Get(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("get with a canceled context: %v", err)
	}
	if _, err := st.Create(ctx, "key", -1); !errors.Is(err, context.Canceled) {
		t.Errorf("create with a canceled context: %v", err)
	}
	if err := st.Delete(ctx, "key"); !errors.Is(err, context.Canceled) {
		t.Errorf("delete with a canceled context: %v", err)
	}
	mustGet(t, st, "key", []byte("h"), []byte("b"))
}

func (s suite) closed(t *testing.T) {
	st := s.start(t)
	mustPut(t, st, "key", []byte("h"), content(1, 100_000))
	w, half := mustCreate(t, st, "w", -1), mustCreate(t, st, "half", -1)
	mustWrite(t, w, []byte("some"))
	mustWrite(t, half, content(1, 200_000))
	o, err := st.Get(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	if _, err := st.Get(t.Context(), "key"); err == nil {
		t.Error("get after close: no error")
	}
	if _, err := st.Create(t.Context(), "key", 1); err == nil {
		t.Error("create after close: no error")
	}
	if err := st.Delete(t.Context(), "key"); err == nil {
		t.Error("delete after close: no error")
	}
	_, _ = w.Write([]byte("more")) // either is right
	_, _ = w.ReadAt(make([]byte, 1), 0)
	if err := w.Commit([]byte("h")); err == nil {
		t.Error("commit after close: no error")
	}
	if err := half.Abort(); err != nil {
		t.Errorf("abort after close: %v", err)
	}
	_, _ = read(o)
	if err := o.Close(); err != nil {
		t.Errorf("closing an object after close: %v", err)
	}
	st.Stats()
}
