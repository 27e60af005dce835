package conn

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"millrace/websocket/frame"
)

// TestFloods: who sends frames with nothing in them is not read for ever.
func TestFloods(t *testing.T) {
	params := frame.Params{On: true, Window: 15}
	for name, c := range map[string]struct{ first, again []byte }{
		"empty fragments":            {packet(frame.Binary, false, false, nil), packet(frame.Continuation, false, false, nil)},
		"empty compressed fragments": {packet(frame.Binary, false, true, nil), packet(frame.Continuation, false, false, nil)},
		"tiny fragments":             {packet(frame.Text, false, false, nil), packet(frame.Continuation, false, false, []byte("x"))},
		"empty pings":                {nil, packet(frame.Ping, true, false, nil)},
		"pongs":                      {nil, packet(frame.Pong, true, false, []byte("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			drivers(t, func(t *testing.T, r *rig) {
				for app, settings := range apps() {
					s := settings(nil)
					p := r.connect(s, nil, params)
					// A second may end meanwhile, and the count begins anew.
					p.send(c.first, bytes.Repeat(c.again, 3*maxSlight))
					for {
						h, b, err := p.frame()
						if err != nil {
							t.Fatalf("%s: %v", app, err)
						}
						if h.Op != frame.Close {
							continue // what was answered before
						}
						if code, _, _ := frame.ParseClose(b); code != frame.PolicyViolation {
							t.Fatalf("%s: got %q", app, b)
						}
						break
					}
				}
			})
		})
	}
}

// TestLargeCompressed: what comes behind a message that is decompressed in
// steps is taken behind it, and all memory is given back.
func TestLargeCompressed(t *testing.T) {
	params := frame.Params{On: true, Window: 15}
	drivers(t, func(t *testing.T, r *rig) {
		for app, settings := range apps() {
			const budget = 64 << 20
			s := settings(nil)
			s.MaxMessage, s.Budget = 8<<20, NewBudget(budget)
			p := r.connect(s, nil, params)
			large := strings.Repeat("all the same, ", 200_000)
			packed := params.Deflate(nil, []byte(large))
			if len(packed) <= directIn {
				t.Fatalf("%d bytes are decompressed at once", len(packed))
			}
			p.send(packet(frame.Text, true, true, packed), packet(frame.Ping, true, false, []byte("between")),
				packet(frame.Text, false, true, packed[:7]), packet(frame.Continuation, true, false, packed[7:]), text("behind"))
			p.want(frame.Text, large)
			p.want(frame.Pong, "between")
			p.want(frame.Text, large)
			p.want(frame.Text, "behind")
			nothingLeft(t, s)
			if left := s.Budget.left.Load(); left != budget {
				t.Errorf("%s: %d bytes of the budget are left", app, left)
			}
			// What is not UTF-8 is found behind the steps as well.
			p.send(packet(frame.Text, true, true, params.Deflate(nil, append([]byte(large), 0xff))), text("never"))
			p.wantClose(frame.InvalidPayload)
		}
	})
}

// TestBombs: many messages that would become very large at once are refused one
// after the other. Who sends a small one meanwhile does not wait for them.
func TestBombs(t *testing.T) {
	const bombs, budget = 40, 64 << 20
	most := 16 << 20
	if underRace { // the detector makes it ten times as slow
		most = 1 << 20
	}
	params := frame.Params{On: true, Window: 15}
	bomb := packet(frame.Binary, true, true, params.Deflate(nil, make([]byte, 4*most)))
	drivers(t, func(t *testing.T, r *rig) {
		s := &Settings{App: &echoApp{done: make(chan frame.Code, bombs+1)}, MaxMessage: int64(most), Budget: NewBudget(budget)}
		good := r.connect(s, nil, params)
		var bad []*peer
		for range bombs {
			p := r.connect(s, nil, params)
			p.send(bomb)
			bad = append(bad, p)
		}
		for range 3 {
			good.send(packet(frame.Text, true, true, params.Deflate(nil, []byte("hello"))))
			good.want(frame.Text, "hello")
		}
		for _, p := range bad {
			h, b, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			if code, _, _ := frame.ParseClose(b); h.Op != frame.Close || code != frame.TooBig && code != frame.TryAgainLater {
				t.Fatalf("got opcode %d %q", h.Op, b)
			}
		}
		good.send(text("still here"))
		good.want(frame.Text, "still here")
		nothingLeft(t, s)
	})
}

// TestInflatingCut: connections may end while their message is decompressed.
func TestInflatingCut(t *testing.T) {
	params := frame.Params{On: true, Window: 15}
	bomb := packet(frame.Binary, true, true, params.Deflate(nil, make([]byte, 64<<20)))
	drivers(t, func(t *testing.T, r *rig) {
		const n, budget = 20, 256 << 20
		app := &echoApp{done: make(chan frame.Code, n)}
		s := &Settings{App: app, MaxMessage: 128 << 20, Budget: NewBudget(budget)}
		for range n {
			p := r.connect(s, nil, params)
			p.send(bomb)
			_ = p.SetLinger(0)
			p.Close()
		}
		for range n {
			<-app.done
		}
		nothingLeft(t, s)
	})
}

// TestLine: the smallest and the oldest take turns.
func TestLine(t *testing.T) {
	var l line[string]
	l.push("a", 5)
	l.push("b", 9)
	l.push("c", 1)
	l.push("d", 3)
	var got []string
	for {
		who, ok := l.pop()
		if !ok {
			break
		}
		got = append(got, who)
	}
	if want := "c a d b"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestLimitIsOfTheMessage: what cannot be compressed is longer on the wire, and
// may still have as many bytes as a message may.
func TestLimitIsOfTheMessage(t *testing.T) {
	const size, block = 1 << 20, 128 // zlib with memLevel 1 stores such blocks
	message := bytes.Repeat([]byte("x"), size)
	var packed []byte
	for i := 0; i < size; i += block {
		packed = append(append(packed, 0, block, 0, 0xff-block, 0xff), message[i:i+block]...)
	}
	packed = append(packed, 0)
	drivers(t, func(t *testing.T, r *rig) {
		for _, settings := range apps() {
			s := settings(nil)
			s.MaxMessage = size
			p := r.connect(s, nil, frame.Params{On: true, Window: 15})
			p.send(packet(frame.Binary, true, true, packed))
			p.want(frame.Binary, string(message))
			// One byte more is one too many.
			more := append(bytes.Clone(packed[:len(packed)-1]), 0, 1, 0, 0xfe, 0xff, 'x', 0)
			p.send(packet(frame.Binary, true, true, more))
			p.wantClose(frame.TooBig)
		}
	})
}

// TestPackedLeavesNoGarbage: what is held of a compressed message takes as much
// memory as it counts for, which is hardly more than has come, however small
// the parts are.
func TestPackedLeavesNoGarbage(t *testing.T) {
	const size, part = 1 << 20, 1000
	s := &Settings{Budget: NewBudget(2 * size)}
	s.prepare()
	var h partialInput
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for sum := 0; sum < size; sum += part {
		if !h.pack(s, make([]byte, part)[:min(part, size-sum)]) {
			t.Fatalf("%d bytes are over the budget", sum)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 2*size {
		t.Errorf("%d bytes were allocated for %d", got, size)
	}
	if h.packed.Size() != size || h.taken > size+32<<10 {
		t.Errorf("%d bytes are held, and %d counted for them, want %d", h.packed.Size(), h.taken, size)
	}
	h.dropPacked(s)
	if left := s.Budget.left.Load(); left != 2*size || h.taken != 0 {
		t.Errorf("%d bytes of the budget are left in the end", left)
	}
}
