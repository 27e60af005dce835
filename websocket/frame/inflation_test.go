package frame_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/websocket/frame"
)

// inPieces is what has come in frames of many sizes.
func inPieces(b []byte) *frame.Pieces {
	var p frame.Pieces
	for n := 1; len(b) > 0; n = 3*n%40_000 + 1 {
		n := min(n, len(b))
		p.Add(b[:n], func(int) bool { return true })
		b = b[n:]
	}
	return &p
}

// inflated runs an Inflation to its end.
func inflated(t testing.TB, compressed []byte, limit int64, memory int) (message []byte, steps, taken int, err error) {
	t.Helper()
	x := frame.NewInflation(inPieces(compressed), limit, func(n int) bool {
		taken += n
		return taken <= memory
	})
	for steps = 1; !x.Step(); steps++ {
		if steps > 1<<20 {
			t.Fatal("it never ends")
		}
	}
	message, err = x.Result(nil)
	return message, steps, taken, err
}

func refusedWith(err error) frame.Code {
	if e, ok := errors.AsType[*frame.Error](err); ok {
		return e.Code
	}
	return 0
}

// emptyBlocks are DEFLATE blocks without content: a stored one takes five
// bytes.
func emptyBlocks(n int) []byte {
	return withoutTail(bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, n))
}

// withoutTail leaves out what is not sent (RFC 7692, 7.2.1).
func withoutTail(b []byte) []byte { return b[:len(b)-4] }

func TestInflationIsInflate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	p := frame.Params{On: true, Window: 15}
	text := []byte(strings.Repeat("a sentence that comes again. ", 20_000))
	for name, message := range map[string][]byte{"nothing": {}, "short": []byte("hello"), "text": text, "noise": noise, "zeros": make([]byte, 3<<20)} {
		compressed := p.Deflate(nil, message)
		// Final blocks in between: what follows refers to what came before.
		twice := append(append(bytes.Clone(compressed), 0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff), compressed...)
		for form, in := range map[string][]byte{"once": compressed, "twice": twice} {
			want, err := frame.Inflate(nil, in, 8<<20)
			if err != nil {
				t.Fatalf("%s %s: %v", name, form, err)
			}
			got, steps, taken, err := inflated(t, in, 8<<20, 64<<20)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s %s: %d bytes and %v, want %d", name, form, len(got), err, len(want))
			}
			if least := len(want)/(64<<10) - 1; steps < least || taken < len(want) {
				t.Errorf("%s %s: %d bytes in %d steps, and %d were counted", name, form, len(want), steps, taken)
			}
			if len(want) > 0 {
				if _, _, _, err := inflated(t, in, int64(len(want))-1, 64<<20); refusedWith(err) != frame.TooBig {
					t.Errorf("%s %s beyond the limit: %v", name, form, err)
				}
			}
		}
	}
	if _, _, _, err := inflated(t, []byte("not compressed"), 100, 1<<20); refusedWith(err) != frame.InvalidPayload {
		t.Errorf("nonsense: %v", err)
	}
}

// TestInflationMemory: what has come out is counted, and refused at the bound.
func TestInflationMemory(t *testing.T) {
	bomb := frame.Params{On: true, Window: 15}.Deflate(nil, make([]byte, 16<<20))
	_, steps, taken, err := inflated(t, bomb, 16<<20, 1<<20)
	if refusedWith(err) != frame.TryAgainLater || taken > 1<<20+64<<10 || steps > 20 {
		t.Errorf("%v after %d steps, %d bytes", err, steps, taken)
	}
}

// TestInflationOfNothing: blocks without content cost steps as well, and end soon.
func TestInflationOfNothing(t *testing.T) {
	_, steps, _, err := inflated(t, emptyBlocks(3<<20), 16<<20, 64<<20)
	if refusedWith(err) != frame.PolicyViolation || steps < 100 || steps > 1000 {
		t.Errorf("%v after %d steps", err, steps)
	}
	if _, _, _, err := inflated(t, emptyBlocks(10_000), 16<<20, 64<<20); err != nil {
		t.Errorf("some empty blocks: %v", err)
	}
	// A sender that flushes behind every byte.
	one := frame.Params{On: true, Window: 15}.Deflate(nil, []byte("x"))
	flushed := bytes.Repeat(append(one, 0, 0, 0xff, 0xff), 200_000)
	if got, _, _, err := inflated(t, withoutTail(flushed), 16<<20, 64<<20); err != nil || len(got) != 200_000 {
		t.Errorf("flushed often: %d bytes, %v", len(got), err)
	}
}

func TestInflationStopped(t *testing.T) {
	bomb := frame.Params{On: true, Window: 15}.Deflate(nil, make([]byte, 16<<20))
	x := frame.NewInflation(inPieces(bomb), 16<<20, func(int) bool { return true })
	if x.Step() {
		t.Fatal("16 MiB in one step")
	}
	x.Stop()
	x = frame.NewInflation(inPieces(bomb), 16<<20, func(int) bool { return true })
	x.Stop() // before it began
}
