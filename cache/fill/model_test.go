package fill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestModel races readers at random offsets, some of which give up, against a
// writer; whatever becomes of the body, each gets an exact part of it from its
// offset on, and all of it when nothing broke.
func TestModel(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			modelRun(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

func modelRun(t *testing.T, rnd *rand.Rand) {
	want := text(1 + rnd.IntN(40_000))
	o := BodyOptions{Expected: -1, Memory: int64(rnd.IntN(60_000)), Window: int64(1 + rnd.IntN(5000))}
	if rnd.IntN(2) == 0 {
		o.Expected = int64(len(want))
	}
	if rnd.IntN(2) == 0 {
		o.Overflow = (&pad{room: rnd.IntN(60_000)}).open
	}
	broken := rnd.IntN(4) == 0
	b := NewBody(o)
	stay := b.Reader(t.Context(), 0) // so that a window has one reader throughout
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stay.Close()
		var got bytes.Buffer
		_, err := stay.WriteTo(&got)
		model{want, 0, broken, false}.check(t, got.Bytes(), err)
	})
	for range 8 {
		m := model{want: want, from: rnd.IntN(len(want)), broken: broken, quits: rnd.IntN(3) == 0}
		if rnd.IntN(2) == 0 {
			m.from = 0
		}
		own := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		wg.Go(func() { m.read(t, b, own) })
	}
	for rest := want; len(rest) > 0; {
		n := min(1+rnd.IntN(3000), len(rest))
		if m, err := b.Write(rest[:n]); m != n || err != nil {
			t.Errorf("Write: %d of %d, %v", m, n, err)
			break
		}
		rest = rest[n:]
	}
	if broken {
		b.Close(errFull)
	} else {
		b.Close(nil)
	}
	if _, whole := b.Whole(); whole && broken {
		t.Error("whole, though broken")
	} else if got := b.Bytes(); got != nil && (!bytes.Equal(got, want) || cap(got) != len(want)) {
		t.Errorf("Bytes has %d bytes, capacity %d", len(got), cap(got))
	}
	wg.Wait()
	if b.open != 0 || b.first != nil {
		t.Errorf("%d readers are left", b.open)
	}
}

// model is what a reader may see.
type model struct {
	want   []byte
	from   int
	broken bool
	quits  bool // its context may end before it has read all
}

func (m model) read(t *testing.T, b *Body, rnd *rand.Rand) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.Reader(ctx, int64(m.from))
	if r == nil {
		return // a window that has moved on
	}
	defer r.Close()
	var got []byte
	var err error
	for err == nil {
		if m.quits && rnd.IntN(5) == 0 {
			if rnd.IntN(2) == 0 {
				return
			}
			cancel()
		}
		p := make([]byte, 1+rnd.IntN(4000))
		var n int
		n, err = r.Read(p)
		got = append(got, p[:n]...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	m.check(t, got, err)
}

func (m model) check(t *testing.T, got []byte, err error) {
	want := m.want[m.from:]
	switch {
	case len(got) > len(want) || !bytes.Equal(got, want[:len(got)]):
		t.Errorf("from %d, read something else", m.from)
	case m.quits && errors.Is(err, context.Canceled):
	case len(got) != len(want):
		t.Errorf("from %d, read %d of %d bytes, %v", m.from, len(got), len(want), err)
	case m.broken != errors.Is(err, ErrBroken) || !m.broken && err != nil:
		t.Errorf("the end is %v", err)
	}
}
