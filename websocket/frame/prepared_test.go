package frame_test

import (
	"bytes"
	"sync"
	"testing"

	"millrace/websocket/frame"
)

// open takes a frame apart, and decompresses it if it says so.
func open(t *testing.T, b []byte) (h frame.Header, message []byte) {
	t.Helper()
	h, n, err := frame.Parse(b)
	if err != nil || n == 0 || int(h.Length) != len(b)-n || h.Masked || !h.Fin {
		t.Fatalf("%d bytes, header %+v of %d bytes, error %v", len(b), h, n, err)
	}
	message = b[n:]
	if h.Rsv1 {
		if message, err = frame.Inflate(nil, message, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	return h, message
}

func TestPrepared(t *testing.T) {
	for _, c := range []struct {
		name     string
		op       frame.Opcode
		payload  []byte
		from     int
		compress bool
	}{
		{"long enough", frame.Text, words(1024), 1024, true},
		{"long", frame.Binary, words(100_000), 1024, true},
		{"too short", frame.Text, words(1023), 1024, false},
		{"never", frame.Text, words(5000), 0, false},
		{"noise", frame.Binary, noise(5000), 1, false},
		{"empty", frame.Text, nil, 1, false},
		{"control", frame.Ping, bytes.Repeat([]byte("a"), 125), 1, false},
		{"16 bits of length", frame.Text, words(126), 0, false},
		{"64 bits of length", frame.Text, words(65536), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := frame.Prepare(c.op, bytes.Clone(c.payload), c.from)
			if !bytes.Equal(p.Payload(), c.payload) {
				t.Error("the payload is another")
			}
			plain := p.Bytes(frame.Params{})
			h, message := open(t, plain)
			if h.Op != c.op || h.Rsv1 || !bytes.Equal(message, c.payload) {
				t.Errorf("plain: header %+v, %d bytes", h, len(message))
			}
			for window := uint8(8); window <= 15; window++ {
				with := frame.Params{On: true, Window: window}
				b := p.Bytes(with)
				h, message := open(t, b)
				if h.Op != c.op || h.Rsv1 != c.compress || !bytes.Equal(message, c.payload) {
					t.Errorf("window %d: header %+v, %d bytes", window, h, len(message))
				}
				if again := p.Bytes(with); &again[0] != &b[0] {
					t.Errorf("window %d: it is made twice", window)
				}
				if c.compress && len(b) >= len(plain) || !c.compress && &b[0] != &plain[0] {
					t.Errorf("window %d: %d bytes, plain are %d", window, len(b), len(plain))
				}
				if h.Rsv1 {
					checkDeflated(t, b[len(b)-int(h.Length):], c.payload, window)
				}
			}
		})
	}
}

// TestPreparedShares has one compressed form of a short message for all windows
// that it fits into.
func TestPreparedShares(t *testing.T) {
	p := frame.Prepare(frame.Text, words(1500), 1)
	at := func(window uint8) *byte { return &p.Bytes(frame.Params{On: true, Window: window})[0] }
	if at(11) != at(15) || at(10) == at(15) {
		t.Error("1500 bytes are the same for windows of 2048 bytes and more, and not for less")
	}
}

func TestPreparedAtOnce(t *testing.T) {
	message := words(20_000)
	p := frame.Prepare(frame.Text, bytes.Clone(message), 1)
	var first [8][8]*byte
	var wg sync.WaitGroup
	for i := range first {
		wg.Go(func() {
			for k := range first[i] {
				window := (i + k) % 8
				first[i][window] = &p.Bytes(frame.Params{On: true, Window: 8 + uint8(window)})[0]
				p.Bytes(frame.Params{})
			}
		})
	}
	wg.Wait()
	for i := range first {
		if first[i] != first[0] {
			t.Error("not all got the same")
		}
	}
	if _, got := open(t, p.Bytes(frame.Params{On: true, Window: 9})); !bytes.Equal(got, message) {
		t.Error("the message is another")
	}
}

func TestPreparedDoesNotAllocate(t *testing.T) {
	p := frame.Prepare(frame.Text, words(5000), 1)
	with := frame.Params{On: true, Window: 15}
	p.Bytes(with)
	if n := testing.AllocsPerRun(100, func() { p.Bytes(with); p.Bytes(frame.Params{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
