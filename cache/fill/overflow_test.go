package fill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

func TestOverflow(t *testing.T) {
	want := text(200_000)
	for name, o := range map[string]BodyOptions{
		"outgrows memory": {Expected: -1, Memory: 60_000},
		"known":           {Expected: 200_000, Memory: 60_000},
		"no memory":       {Expected: -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pad{room: 1 << 20}
			opened := 0
			o.Overflow = func() (Overflow, error) { opened++; return p, nil }
			b := NewBody(o)
			if (opened == 1) != (o.Expected > o.Memory) {
				t.Errorf("the overflow was opened %d times at the start", opened)
			}
			early := b.Reader(t.Context(), 0)
			defer early.Close()
			var got bytes.Buffer
			for i := 0; i < len(want); i += 10_000 {
				if n, err := b.Write(want[i : i+10_000]); n != 10_000 || err != nil {
					t.Fatal(n, err)
				}
				if i == 50_000 { // in memory with some, and goes on in the overflow
					io.CopyN(&got, struct{ io.Reader }{early}, 45_001)
				}
			}
			b.Close(nil)
			if size, ok := b.Whole(); size != 200_000 || !ok || b.Bytes() != nil || b.Overflowed() != Overflow(p) || opened != 1 {
				t.Errorf("Whole is %d, %v; opened %d times", size, ok, opened)
			}
			if !bytes.Equal(p.b, want) || b.allocated != 0 || b.chunks != nil {
				t.Error("the overflow does not hold the body alone")
			}
			if _, err := io.Copy(&got, early); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("the early reader got %d bytes, %v", got.Len(), err)
			}
			if late, err := readAll(t, b, 100); err != nil || !bytes.Equal(late, want[100:]) {
				t.Errorf("the late reader got %d bytes, %v", len(late), err)
			}
		})
	}
}

// TestOverflowWakes: readers of a overflowed body get what comes as soon as it comes.
func TestOverflowWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(BodyOptions{Expected: -1, Overflow: (&pad{room: 100}).open})
		r := b.Reader(t.Context(), 0)
		got := ""
		go func() {
			defer r.Close()
			var p [10]byte
			for {
				n, err := r.Read(p[:])
				got += string(p[:n])
				if err != nil {
					return
				}
			}
		}()
		for _, want := range []string{"a", "ab", "abc"} {
			synctest.Wait()
			b.Write([]byte(want[len(want)-1:]))
			synctest.Wait()
			if got != want {
				t.Errorf("the reader has %q, want %q", got, want)
			}
		}
		b.Close(nil)
	})
}

// TestOverflowFull: where the overflow has no room, readers get everything
// nevertheless, and nothing is stored.
func TestOverflowFull(t *testing.T) {
	want := text(100_000)
	for name, open := range map[string]func() (Overflow, error){
		"none":             nil,
		"cannot be opened": func() (Overflow, error) { return nil, errFull },
		"at once":          (&pad{room: 10}).open,
		"in the middle":    (&pad{room: 50_000}).open,
		"at the very end":  (&pad{room: 99_999}).open,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBody(BodyOptions{Expected: -1, Memory: 20_000, Overflow: open})
				r := b.Reader(t.Context(), 0)
				var got bytes.Buffer
				done := make(chan error)
				go func() {
					_, err := r.WriteTo(&got)
					r.Close()
					done <- err
				}()
				for i := 0; i < len(want); i += 777 {
					if _, err := b.Write(want[i:min(i+777, len(want))]); err != nil {
						t.Fatal(err)
					}
					if b.allocated > 20_000 {
						t.Fatalf("%d bytes are held", b.allocated)
					}
				}
				b.Close(nil)
				if err := <-done; err != nil || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("the reader got %d bytes, %v", got.Len(), err)
				}
				if _, ok := b.Whole(); ok || b.Bytes() != nil {
					t.Error("a window is whole")
				}
			})
		})
	}
}

// TestJoinBehindFullOverflow: the bytes before the overflow failed can still be
// joined, until those behind it have moved on.
func TestJoinBehindFullOverflow(t *testing.T) {
	want := text(3000)
	b := NewBody(BodyOptions{Expected: -1, Memory: 100, Window: 800, Overflow: (&pad{room: 1000}).open})
	for i := 0; i < 1500; i += 100 {
		if _, err := b.Write(want[i : i+100]); err != nil {
			t.Fatal(err)
		}
	}
	early := b.Reader(t.Context(), 0)
	if early == nil {
		t.Fatal("cannot be joined although all bytes are there")
	}
	got := make([]byte, 1500)
	if _, err := io.ReadFull(early, got); err != nil || !bytes.Equal(got, want[:1500]) {
		t.Fatal("read something else", err)
	}
	if _, err := b.Write(want[1500:2300]); err != nil {
		t.Fatal(err)
	}
	if b.Reader(t.Context(), 0) != nil || b.Reader(t.Context(), 1000) != nil {
		t.Error("can be joined although there is a gap")
	}
	early.Close()
	b.Close(errFull)
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := text(4000)
		b := NewBody(BodyOptions{Expected: 4000, Memory: 800}) // chunks of 100
		wrote := make(chan error, 1)
		go func() {
			_, err := b.Write(want)
			b.Close(err)
			wrote <- err
		}()
		size := func(want int64) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.size != want || b.allocated > 800 {
				t.Fatalf("the writer is at %d, want %d; %d bytes are held", b.size, want, b.allocated)
			}
		}
		size(800) // waits for a first reader
		quick, slow := b.Reader(t.Context(), 0), b.Reader(t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		stuck := b.Reader(ctx, 0)
		read := func(r *Reader, from, to int) {
			t.Helper()
			got := make([]byte, to-from)
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want[from:to]) {
				t.Fatal("read something else", err)
			}
		}
		read(quick, 0, 500)
		read(slow, 0, 250)
		size(800) // for the one that is stuck
		cancel()
		size(1000) // and by the slow one, in whole chunks
		if _, err := stuck.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("the stuck one got %v", err)
		}
		stuck.Close()
		read(quick, 500, 1000)
		size(1000)
		if b.Reader(t.Context(), 0) != nil || b.Reader(t.Context(), 199) != nil {
			t.Error("joined what has gone")
		}
		if r := b.Reader(t.Context(), 200); r == nil {
			t.Error("cannot join what is there")
		} else {
			read(r, 200, 300)
			r.Close()
		}
		slow.Close() // no longer counts
		size(1800)
		read(quick, 1000, 4000)
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if n, err := quick.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %d, %v", n, err)
		}
		quick.Close()
		if _, ok := b.Whole(); ok {
			t.Error("a window is whole")
		}
	})
}

// TestWindowFirstReader: the first reader lets the writer go, though it has read nothing.
func TestWindowFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBody(BodyOptions{Expected: 120, Memory: 80})
		wrote := make(chan error, 1)
		go func() {
			_, err := b.Write(text(120))
			wrote <- err
		}()
		synctest.Wait()
		r := b.Reader(t.Context(), 40) // of a range
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		b.Close(nil)
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text(120)[40:]) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		r.Close()
	})
}

// TestWindowWriterIsReleased: nothing makes a window's writer wait for ever.
func TestWindowWriterIsReleased(t *testing.T) {
	cause := errors.New("over")
	for name, c := range map[string]struct {
		want    error
		release func(b *Body, r *Reader, cancelReader func(), cancelWriter context.CancelCauseFunc)
	}{
		"the last reader leaves":     {ErrUnread, func(_ *Body, r *Reader, _ func(), _ context.CancelCauseFunc) { r.Close() }},
		"the last reader's context":  {ErrUnread, func(_ *Body, _ *Reader, cancel func(), _ context.CancelCauseFunc) { cancel() }},
		"the body is closed":         {cause, func(b *Body, _ *Reader, _ func(), _ context.CancelCauseFunc) { b.Close(cause) }},
		"the writer's context":       {cause, func(_ *Body, _ *Reader, _ func(), cancel context.CancelCauseFunc) { cancel(cause) }},
		"closed as if all were well": {ErrBroken, func(b *Body, _ *Reader, _ func(), _ context.CancelCauseFunc) { b.Close(nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writing, cancelWriter := context.WithCancelCause(t.Context())
				reading, cancelReader := context.WithCancel(t.Context())
				defer cancelWriter(nil)
				defer cancelReader()
				b := NewBody(BodyOptions{Expected: -1, Memory: 1, Window: 80, Context: writing})
				r := b.Reader(reading, 0)
				wrote := make(chan error)
				go func() {
					n, err := b.Write(text(1000))
					if n != 80 {
						t.Errorf("wrote %d bytes", n)
					}
					wrote <- err
				}()
				synctest.Wait()
				c.release(b, r, cancelReader, cancelWriter)
				if err := <-wrote; !errors.Is(err, c.want) {
					t.Errorf("the writer got %v, want %v", err, c.want)
				}
				r.Close()
			})
		})
	}
}

// TestReseat: a overflow's life may end while there are readers.
func TestReseat(t *testing.T) {
	want := text(100_000)
	fill := func() (*Body, *pad, *Reader) {
		p := &pad{room: 1 << 20}
		b := NewBody(BodyOptions{Expected: 100_000, Memory: 100, Overflow: p.open})
		b.Write(want)
		b.Close(nil)
		r := b.Reader(t.Context(), 0)
		if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		return b, p, r
	}
	b, p, r := fill()
	err := b.Reseat(func() (io.ReaderAt, error) { p.end(); return bytes.NewReader(want), nil })
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, want[1000:]) {
		t.Errorf("after the move, %d bytes, %v", len(rest), err)
	}
	released := 0
	b.Retire(func() { released++ })
	if released != 0 || b.Reader(t.Context(), 0) != nil {
		t.Errorf("released %d times with a reader; or a reader came later", released)
	}
	r.Close()
	r.Close()
	if released != 1 {
		t.Errorf("released %d times", released)
	}

	b, p, r = fill()
	if err := b.Reseat(func() (io.ReaderAt, error) { p.end(); return nil, errFull }); !errors.Is(err, errFull) {
		t.Errorf("the error is %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, ErrBroken) {
		t.Errorf("after a failed move, reading returned %v", err)
	}
	r.Close()
	b.Retire(func() { released++ })
	if released != 2 {
		t.Error("without readers it is not released at once")
	}

	b, p, r = fill()
	p.end() // under its readers, against the rule
	if _, err := r.WriteTo(io.Discard); !errors.Is(err, ErrBroken) {
		t.Errorf("reading a dead overflow returned %v", err)
	}
	if err := b.Reseat(func() (io.ReaderAt, error) { return nil, nil }); err == nil {
		t.Error("a body sits nowhere")
	}
	r.Close()
}
