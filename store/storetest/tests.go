package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"millrace/store"
)

// mebi is the largest body that every engine must take.
const mebi = 1 << 20

// start opens a store for one test.
func (s suite) start(t *testing.T) store.Store {
	t.Helper()
	st := s.open(t)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return st
}

// content makes a body whose every 8 bytes tell where they belong, so that a
// mix of two bodies, a shift or a hole is seen.
func content(seed uint64, size int) []byte {
	r := rand.NewPCG(seed, uint64(size))
	b := make([]byte, 0, size+8)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:size]
}

// put stores an object in one go.
func put(ctx context.Context, st store.Store, key string, head, body []byte) error {
	w, err := st.Create(ctx, key, int64(len(body)))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := w.Write(body); err != nil {
		_ = w.Abort()
		return fmt.Errorf("write: %w", err)
	}
	if err := w.Commit(head); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// get reads an object in one go.
func get(ctx context.Context, st store.Store, key string) (head, body []byte, err error) {
	o, err := st.Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = o.Close() }()
	body, err = read(o)
	return o.Head, body, err
}

// read returns the body of an open object, by both ways where there are two.
func read(o *store.Object) ([]byte, error) {
	body, err := io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size))
	if err != nil {
		return nil, fmt.Errorf("reading a body: %w", err)
	}
	if int64(len(body)) != o.Size {
		return nil, fmt.Errorf("the body has %d bytes, Size says %d", len(body), o.Size)
	}
	if n, err := o.Body.ReadAt(make([]byte, 1), o.Size); n != 0 || !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("read %d bytes after the body's end", n), err)
	}
	if o.File == nil {
		return body, nil
	}
	sent := make([]byte, o.Size)
	if _, err := o.File.ReadAt(sent, o.Offset); err != nil && (!errors.Is(err, io.EOF) || o.Size > 0) {
		return nil, fmt.Errorf("reading File at Offset: %w", err)
	}
	if !bytes.Equal(sent, body) {
		return nil, errors.New("the object's File holds other bytes than Body")
	}
	return body, nil
}

// PutText puts an object with a body, and a head that [GetText] knows.
func PutText(st store.Store, key, body string) error {
	return put(context.Background(), st, key, []byte("head of "+key), []byte(body))
}

// GetText gets the body of an object that [PutText] has put.
func GetText(st store.Store, key string) (string, error) {
	head, body, err := get(context.Background(), st, key)
	if err == nil && string(head) != "head of "+key {
		err = errors.New("another head: " + string(head))
	}
	return string(body), err
}

func mustPut(t *testing.T, st store.Store, key string, head, body []byte) {
	t.Helper()
	if err := put(t.Context(), st, key, head, body); err != nil {
		t.Fatalf("putting %.40q: %v", key, err)
	}
}

func mustGet(t *testing.T, st store.Store, key string, head, body []byte) {
	t.Helper()
	h, b, err := get(t.Context(), st, key)
	if err != nil {
		t.Fatalf("getting %.40q: %v", key, err)
	}
	same(t, "head of "+key, h, head)
	same(t, "body of "+key, b, body)
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	t.Fatalf("%.60q: got %d bytes, want %d; the first %d are the same", what, len(got), len(want), at)
}

func mustMiss(t *testing.T, st store.Store, key string) {
	t.Helper()
	o, err := st.Get(t.Context(), key)
	if err == nil {
		_ = o.Close()
	}
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("getting %.40q: %v, want ErrNotFound", key, err)
	}
}

func mustCreate(t *testing.T, st store.Store, key string, size int64) store.Writer {
	t.Helper()
	w, err := st.Create(t.Context(), key, size)
	if err != nil {
		t.Fatalf("creating %.40q: %v", key, err)
	}
	return w
}

func mustWrite(t *testing.T, w store.Writer, p []byte) {
	t.Helper()
	if n, err := w.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
	}
}

func mustCommit(t *testing.T, w store.Writer, head []byte) {
	t.Helper()
	if err := w.Commit(head); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func (s suite) putGet(t *testing.T) {
	st := s.start(t)
	for i := range 20 {
		mustPut(t, st, fmt.Sprint("key ", i), fmt.Appendf(nil, "head %d", i), content(uint64(i), 100*i+1))
	}
	for i := range 20 {
		mustGet(t, st, fmt.Sprint("key ", i), fmt.Appendf(nil, "head %d", i), content(uint64(i), 100*i+1))
	}
	mustGet(t, st, "key 3", []byte("head 3"), content(3, 301)) // a second time
}

func (s suite) notFound(t *testing.T) {
	st := s.start(t)
	mustMiss(t, st, "nothing")
	mustPut(t, st, "something", []byte("h"), []byte("b"))
	for _, key := range []string{"", "somethin", "something ", "Something", "nothing"} {
		mustMiss(t, st, key)
	}
}

func (s suite) replace(t *testing.T) {
	st := s.start(t)
	for i, size := range []int{1000, 10, 0, 100_000, 999} {
		head, body := fmt.Appendf(nil, "head %d", i), content(uint64(i), size)
		mustPut(t, st, "key", head, body)
		mustGet(t, st, "key", head, body)
	}
}

func (s suite) remove(t *testing.T) {
	st := s.start(t)
	if err := st.Delete(t.Context(), "nothing"); err != nil {
		t.Fatalf("deleting what is not there: %v", err)
	}
	mustPut(t, st, "a", []byte("h"), []byte("1"))
	mustPut(t, st, "b", []byte("h"), []byte("2"))
	if err := st.Delete(t.Context(), "a"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	mustMiss(t, st, "a")
	mustGet(t, st, "b", []byte("h"), []byte("2"))
	mustPut(t, st, "a", []byte("h"), []byte("3"))
	mustGet(t, st, "a", []byte("h"), []byte("3"))
}

func (s suite) emptyBody(t *testing.T) {
	st := s.start(t)
	mustPut(t, st, "known", []byte("head"), nil)
	mustGet(t, st, "known", []byte("head"), nil)
	w := mustCreate(t, st, "unknown", -1)
	mustCommit(t, w, []byte("head"))
	mustGet(t, st, "unknown", []byte("head"), nil)
}

func (s suite) emptyHead(t *testing.T) {
	st := s.start(t)
	mustPut(t, st, "nil", nil, []byte("body"))
	mustGet(t, st, "nil", nil, []byte("body"))
	mustPut(t, st, "empty", []byte{}, []byte("body"))
	mustGet(t, st, "empty", nil, []byte("body"))
	mustPut(t, st, "both", nil, nil)
	mustGet(t, st, "both", nil, nil)
}

// sizes tries those around the blocks and buffers that engines like to have.
func (s suite) sizes(t *testing.T) {
	st := s.start(t)
	for _, around := range []int{64, 512, 4096, 32 << 10, 64 << 10, 128 << 10} {
		for size := around - 2; size <= around+2; size++ {
			for _, announced := range []int64{int64(size), -1} {
				body := content(uint64(size), size)
				w := mustCreate(t, st, "key", announced)
				for _, part := range [][]byte{body[:size/3], body[size/3 : size-1], body[size-1:]} {
					mustWrite(t, w, part)
				}
				head := content(7, around%1000)
				mustCommit(t, w, head)
				mustGet(t, st, "key", head, body)
			}
		}
	}
	body := content(9, mebi)
	mustPut(t, st, "mebi", []byte("h"), body)
	mustGet(t, st, "mebi", []byte("h"), body)
}

// large may be refused, at any moment, but then nothing may be left.
func (s suite) large(t *testing.T) {
	st := s.start(t)
	const size = 3*mebi + 17
	body := content(1, size)
	err := func() error {
		w, err := st.Create(t.Context(), "large", -1)
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(2, 2))
		for rest := body; len(rest) > 0; {
			n := min(1+r.IntN(100_000), len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				_ = w.Abort()
				return err
			}
			rest = rest[n:]
		}
		return w.Commit([]byte("head"))
	}()
	switch {
	case err == nil:
		mustGet(t, st, "large", []byte("head"), body)
	case errors.Is(err, store.ErrFull):
		mustMiss(t, st, "large")
	default:
		t.Fatalf("writing %d bytes: %v", size, err)
	}
	mustPut(t, st, "small", []byte("h"), []byte("b"))
	mustGet(t, st, "small", []byte("h"), []byte("b"))
}

// wrongSize: an announced size is a promise. What breaks it is not stored.
func (s suite) wrongSize(t *testing.T) {
	st := s.start(t)
	w := mustCreate(t, st, "short", 10)
	mustWrite(t, w, []byte("123456789"))
	if err := w.Commit([]byte("h")); err == nil {
		t.Error("a body shorter than announced was committed")
	}
	mustMiss(t, st, "short")
	w = mustCreate(t, st, "long", 10)
	_, err := w.Write([]byte("12345678901"))
	if err == nil {
		err = w.Commit([]byte("h"))
	} else {
		_ = w.Abort()
	}
	if err == nil {
		t.Error("a body longer than announced was committed")
	}
	mustMiss(t, st, "long")
}

func (s suite) buffers(t *testing.T) {
	st := s.start(t)
	head, body := []byte("head"), []byte("body")
	w := mustCreate(t, st, "key", 8)
	mustWrite(t, w, body)
	copy(body, "BODY")
	mustWrite(t, w, body)
	mustCommit(t, w, head)
	copy(head, "HEAD")
	mustGet(t, st, "key", []byte("head"), []byte("bodyBODY"))
}

func (s suite) stats(t *testing.T) {
	st := s.start(t)
	mustPut(t, st, "key", []byte("head"), content(1, 1000))
	if v := st.Stats(); v.Objects < 0 || v.Bytes < 0 || v.Limit < 0 || v.Down || v.Limit > 0 && v.Bytes > v.Limit {
		t.Errorf("stats %+v", v)
	}
}

func (s suite) persistence(t *testing.T) {
	if s.again == nil {
		t.Skip("this engine keeps nothing over a Close")
	}
	st := s.open(t)
	body := content(5, 200_000)
	mustPut(t, st, "kept", []byte("head"), body)
	mustPut(t, st, "replaced", []byte("old"), []byte("old"))
	mustPut(t, st, "replaced", []byte("new"), []byte("newer"))
	mustPut(t, st, "deleted", []byte("h"), []byte("b"))
	if err := st.Delete(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	aborted := mustCreate(t, st, "aborted", -1)
	mustWrite(t, aborted, body)
	if err := aborted.Abort(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = s.again(t)
		mustGet(t, st, "kept", []byte("head"), body)
		mustGet(t, st, "replaced", []byte("new"), []byte("newer"))
		mustMiss(t, st, "deleted")
		mustMiss(t, st, "aborted")
	}
	if err := st.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	mustMiss(t, st, "kept")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
