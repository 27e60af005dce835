package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/bytesize"
	"millrace/store"
	"millrace/store/memory"
	"millrace/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func BenchmarkMemory(b *testing.B) {
	storetest.Bench(b, func(*testing.B) store.Store { return memory.New(256 << 20) })
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New(64 << 20) }, nil)
}

func fill(s store.Store, key string, announced int64, size int) error {
	w, err := s.Create(context.Background(), key, announced)
	if err != nil {
		return err
	}
	for part := range 4 {
		if _, err := w.Write(make([]byte, size*(part+1)/4-size*part/4)); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Commit([]byte("head"))
}

// TestMemoryBound: what was used last stays, and every byte is counted.
func TestMemoryBound(t *testing.T) {
	const limit = 100_000
	m := memory.New(bytesize.Size(limit))
	for n := range 1000 {
		if err := fill(m, fmt.Sprint(n), -1, n*20%5000); err != nil {
			t.Fatal(n, err)
		}
		if s := m.Stats(); s.Bytes > limit {
			t.Fatalf("stats %+v", s)
		}
		if n > 1 {
			if o, err := m.Get(t.Context(), "1"); err != nil {
				t.Fatalf("the one that is used all the time was evicted: %v", err)
			} else {
				o.Close()
			}
		}
	}
	s := m.Stats()
	if s.Evicted == 0 || s.Bytes < limit*8/10 {
		t.Errorf("stats %+v", s)
	}
	for _, announced := range []int64{-1, limit/2 + 1} {
		if err := fill(m, "large", announced, limit/2+1); !errors.Is(err, store.ErrFull) {
			t.Errorf("more than half: %v", err)
		}
	}
	var writers []store.Writer
	for n := 0; ; n++ {
		w, err := m.Create(t.Context(), fmt.Sprint("w", n), 10_000)
		if errors.Is(err, store.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	if len(writers) != 9 {
		t.Errorf("%d writers of 10,000 bytes each had room", len(writers))
	}
	for _, w := range writers {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if err := fill(m, "key", -1, 1000); err != nil {
		t.Error(err)
	}
	if s := m.Stats(); s.Objects != 1 || s.Bytes != 256+3+4+1000 {
		t.Errorf("stats %+v", s)
	}
	if err := m.Delete(t.Context(), "key"); err != nil {
		t.Error(err)
	}
	if s := m.Stats(); s.Objects != 0 || s.Bytes != 0 {
		t.Errorf("stats of an empty store: %+v", s)
	}
}

func Example() {
	var s store.Store = memory.New(1 << 20)
	defer s.Close()
	ctx := context.Background()

	w, err := s.Create(ctx, "https://example.com/", -1)
	if err != nil {
		return // ErrFull: go on without
	}
	if _, err := io.WriteString(w, "hello"); err != nil {
		_ = w.Abort()
		return
	}
	if err := w.Commit([]byte("text/plain")); err != nil {
		return
	}

	o, err := s.Get(ctx, "https://example.com/")
	if err != nil {
		return
	}
	defer o.Close()
	body, _ := io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size))
	fmt.Printf("%s: %s\n", o.Head, body)
	// Output: text/plain: hello
}
