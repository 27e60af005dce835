package fill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// pad is a overflow in memory that takes so many bytes; like a store.Writer, it
// cannot be read after its end.
type pad struct {
	mu    sync.Mutex
	b     []byte
	room  int
	ended bool
}

var errFull = errors.New("no room")

func (p *pad) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) > p.room-len(p.b) {
		n := p.room - len(p.b)
		p.b = append(p.b, b[:n]...)
		return n, errFull
	}
	p.b = append(p.b, b...)
	return len(b), nil
}

func (p *pad) ReadAt(b []byte, offset int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, os.ErrClosed
	}
	return bytes.NewReader(p.b).ReadAt(b, offset)
}

func (p *pad) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *pad) open() (Overflow, error) { return p, nil }

// text is n bytes that differ from place to place.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

func readAll(t *testing.T, b *Body, offset int64) ([]byte, error) {
	t.Helper()
	r := b.Reader(t.Context(), offset)
	if r == nil {
		t.Fatalf("no reader at %d", offset)
	}
	defer r.Close()
	return io.ReadAll(struct{ io.Reader }{r})
}

// TestBytes: what has come whole is one piece of exactly its size, and every
// way to read gives it.
func TestBytes(t *testing.T) {
	for _, size := range []int{0, 1, 40, 511, 512, 513, 70_000, 3 << 20} {
		for _, known := range []bool{true, false} {
			for _, step := range []int{1000, 1 << 20} {
				want := text(size)
				o := BodyOptions{Expected: -1, Memory: 4 << 20}
				if known {
					o.Expected = int64(size)
				}
				b := NewBody(o)
				for p := want; len(p) > 0; {
					n, err := b.Write(p[:min(step, len(p))])
					if err != nil {
						t.Fatal(err)
					}
					p = p[n:]
				}
				if b.Bytes() != nil {
					t.Error("a body that has not ended has Bytes")
				}
				if known && size > 0 && (len(b.chunks) != 1 || cap(b.chunks[0].b) != size) {
					t.Errorf("a body of known size %d was not allocated at once", size)
				}
				early := b.Reader(t.Context(), 0)
				b.Close(nil)
				if n, ok := b.Whole(); n != int64(size) || !ok {
					t.Errorf("Whole is %d, %v", n, ok)
				}
				got := b.Bytes()
				if got == nil || !bytes.Equal(got, want) || cap(got) != size {
					t.Errorf("size %d known %v: %d bytes, capacity %d", size, known, len(got), cap(got))
				}
				if again := b.Bytes(); size > 0 && &again[0] != &got[0] {
					t.Error("Bytes were joined twice")
				}
				var out bytes.Buffer
				if n, err := early.WriteTo(&out); n != int64(size) || err != nil || !bytes.Equal(out.Bytes(), want) {
					t.Errorf("WriteTo gave %d bytes, %v", n, err)
				}
				early.Close()
				offset := size / 3
				if got, err := readAll(t, b, int64(offset)); err != nil || !bytes.Equal(got, want[offset:]) {
					t.Errorf("from %d: %d bytes, %v", offset, len(got), err)
				}
				if b.Overflowed() != nil {
					t.Error("what is in memory was overflowed")
				}
			}
		}
	}
}

func TestBroken(t *testing.T) {
	cause := errors.New("reset by the origin")
	for name, c := range map[string]struct {
		expected int64
		writes   string
		close    error
		cause    error
		read     string
	}{
		"cut off":  {-1, "hello", cause, cause, "hello"},
		"short":    {6, "hello", nil, io.ErrUnexpectedEOF, "hello"},
		"overlong": {4, "hello", nil, nil, ""},
		"nothing":  {1, "", nil, io.ErrUnexpectedEOF, ""},
		"empty":    {0, "x", nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBody(BodyOptions{Expected: c.expected, Memory: 100})
			_, err := b.Write([]byte(c.writes))
			if over := c.expected >= 0 && int64(len(c.writes)) > c.expected; over != errors.Is(err, ErrBroken) {
				t.Errorf("Write returned %v", err)
			}
			b.Close(c.close)
			b.Close(errors.New("later"))
			b.Close(nil)
			for range 2 {
				got, err := readAll(t, b, 0)
				if string(got) != c.read || !errors.Is(err, ErrBroken) || c.cause != nil && !errors.Is(err, c.cause) {
					t.Errorf("read %q, %v", got, err)
				}
			}
			if _, ok := b.Whole(); ok || b.Bytes() != nil {
				t.Error("a broken body is whole")
			}
			if _, err := b.Write([]byte("x")); !errors.Is(err, ErrBroken) {
				t.Errorf("writing to it returned %v", err)
			}
		})
	}
	b := NewBody(BodyOptions{Expected: -1, Memory: 100})
	b.Close(nil)
	if _, err := b.Write([]byte("x")); err == nil {
		t.Error("a body can be written after its end")
	}
	if size, ok := b.Whole(); size != 0 || !ok {
		t.Error("that made it broken")
	}
}

// TestReadersWait: all readers see the same bytes as soon as they come.
func TestReadersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(BodyOptions{Expected: -1, Memory: 100})
		var mu sync.Mutex
		seen := map[int]string{}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				r := b.Reader(t.Context(), int64(i%2))
				defer r.Close()
				var buf [100]byte
				for {
					n, err := r.Read(buf[:])
					mu.Lock()
					seen[i] += string(buf[:n])
					mu.Unlock()
					if err != nil {
						if !errors.Is(err, io.EOF) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		sent := ""
		for _, part := range []string{"", "a", "bcd", "", "ef"} {
			b.Write([]byte(part))
			sent += part
			synctest.Wait()
			mu.Lock()
			for i := range 10 {
				if want := sent[min(i%2, len(sent)):]; seen[i] != want {
					t.Errorf("reader %d has %q, want %q", i, seen[i], want)
				}
			}
			mu.Unlock()
		}
		b.Close(nil)
		wg.Wait()
	})
}

func TestReaderContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(BodyOptions{Expected: -1, Memory: 100})
		b.Write([]byte("x"))
		ctx, cancel := context.WithCancel(t.Context())
		r, other := b.Reader(ctx, 1), b.Reader(t.Context(), 1)
		go func() { // the test is the writer; this one is gone when it returns
			if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.Canceled) {
				t.Errorf("Read returned %d, %v", n, err)
			}
			r.Close()
			r.Close()
			if _, err := r.Read(make([]byte, 1)); err == nil {
				t.Error("a closed reader reads")
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		b.Write([]byte("y"))
		var p [2]byte
		if n, err := other.Read(p[:]); n != 1 || p[0] != 'y' || err != nil {
			t.Errorf("the other reader got %q, %v", p[:n], err)
		}
		other.Close()
		if _, err := other.Read(p[:]); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a closed reader returned %v", err)
		}
		if n, err := other.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing returned %d, %v", n, err)
		}
		b.Close(nil)
	})
}

// aliases keeps what was written to it as it was handed over.
type aliases [][]byte

func (a *aliases) Write(p []byte) (int, error) { *a = append(*a, p); return len(p), nil }

func TestWriteToDoesNotCopy(t *testing.T) {
	b := NewBody(BodyOptions{Expected: 5, Memory: 100})
	b.Write([]byte("hello"))
	b.Close(nil)
	r := b.Reader(t.Context(), 1)
	defer r.Close()
	var got aliases
	if _, err := r.WriteTo(&got); err != nil || len(got) != 1 || &got[0][0] != &b.Bytes()[1] {
		t.Errorf("WriteTo wrote %q, %v", got, err)
	}
}

// stub fails, or takes less than it is given.
type stub struct {
	most int
	err  error
}

func (s stub) Write(p []byte) (int, error) { return min(s.most, len(p)), s.err }

func TestWriteToFails(t *testing.T) {
	b := NewBody(BodyOptions{Expected: 5, Memory: 100})
	b.Write([]byte("hello"))
	b.Close(nil)
	for _, c := range []struct {
		stub
		want error
	}{{stub{2, nil}, io.ErrShortWrite}, {stub{2, errFull}, errFull}} {
		r := b.Reader(t.Context(), 0)
		if n, err := r.WriteTo(c.stub); n != 2 || !errors.Is(err, c.want) {
			t.Errorf("WriteTo returned %d, %v, want %v", n, err, c.want)
		}
		if rest, err := io.ReadAll(r); string(rest) != "llo" || err != nil {
			t.Errorf("after that, %q is left, %v", rest, err)
		}
		r.Close()
	}
}

// TestFlush: what was written reaches the client before the reader waits.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(BodyOptions{Expected: -1, Memory: 100})
		var log strings.Builder
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := b.Reader(t.Context(), 0)
			defer r.Close()
			r.Flush(func() { log.WriteByte('|') })
			if _, err := r.WriteTo(&log); err != nil {
				t.Error(err)
			}
		}()
		for _, p := range []string{"a", "b"} {
			synctest.Wait()
			b.Write([]byte(p))
		}
		synctest.Wait()
		b.Close(nil)
		<-done
		if got := log.String(); got != "|a|b|" {
			t.Errorf("written and flushed: %q", got)
		}
	})
}
