package conn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/websocket/frame"
)

// sink is a stream of which only the writing is used.
type sink struct {
	bytes.Buffer
	closed bool
}

func (s *sink) Close() error { s.closed = true; return nil }

// said is an App that remembers what it was told, and sends it back.
type said struct {
	calls   []string
	message []byte
}

func (a *said) Open(*Conn) { a.calls = append(a.calls, "open") }

func (a *said) Message(c *Conn, op frame.Opcode, data []byte) {
	a.calls = append(a.calls, fmt.Sprintf("%d %q", op, data))
	c.Send(op, data)
}

func (a *said) Closed(_ *Conn, code frame.Code) {
	a.calls = append(a.calls, fmt.Sprint("closed ", code))
}

// saidPieces takes messages in pieces, and remembers them whole.
type saidPieces struct{ said }

func (a *saidPieces) Piece(c *Conn, op frame.Opcode, data []byte, first, last bool) {
	if first != (a.message == nil) {
		panic("the first piece is not told")
	}
	if first {
		a.message = []byte{}
	}
	a.message = append(a.message, data...)
	c.SendPiece(op, data, first, last)
	if last {
		a.calls = append(a.calls, fmt.Sprintf("%d %q", op, a.message))
		a.message = nil
	}
}

// Kinds of connections that FuzzConsume knows, as bits.
const (
	inPieces = 1 << iota
	withDeflate
	smallLimit
	smallBudget
)

// talk gives a connection what a client sends, in pieces of so many bytes at
// most (0: as much as is read at once), and returns what the App was told and
// what was answered.
func talk(t *testing.T, e *Engine, input []byte, kind uint8, cut func() int) (calls []string, output []byte) {
	t.Helper()
	app := &said{}
	s := &Settings{App: app, MaxMessage: 1 << 20}
	var pieces *saidPieces
	if kind&inPieces != 0 {
		pieces = &saidPieces{}
		app = &pieces.said
		s.App, s.MaxMessage = pieces, 0
	}
	if kind&smallLimit != 0 {
		s.MaxMessage = 100
	}
	budget := int64(1 << 30)
	if kind&smallBudget != 0 {
		budget = 3 << 10
	}
	s.Budget = NewBudget(budget)
	p := frame.Params{}
	if kind&withDeflate != 0 {
		p = frame.Params{On: true, Window: 15}
		s.CompressFrom = 20
	}
	s.prepare()
	e.count(s, 1)
	rw := &sink{}
	c := e.strand.newConn(rw, s, p, nil)
	c.driver.finishTurn(c, func() { s.App.Open(c) })
	// What is read is unmasked in place.
	input = bytes.Clone(input)
	for len(input) > 0 && !rw.closed {
		n := min(len(input), cut())
		c.driver.take(c, func() { c.input(input[:n]) })
		input = input[n:]
	}
	violated := c.is(failed)
	c.driver.finish(c)
	m := s.Meters
	if m.QueuedBytes.Load() != 0 || m.HeldBytes.Load() != 0 || m.QueuedMessages.Load() != 0 || s.Budget.left.Load() != budget {
		t.Errorf("in the end %d bytes wait, %d are held, and %d of %d are left", m.QueuedBytes.Load(), m.HeldBytes.Load(), s.Budget.left.Load(), budget)
	}
	list, rest := split(rw.Bytes())
	if len(rest) > 0 {
		t.Fatalf("the output ends in %q", rest)
	}
	closes := 0
	for i, f := range list {
		if f[0] == '0'+byte(frame.Close) {
			if closes++; i != len(list)-1 {
				t.Errorf("behind a close frame comes %q", list[i+1])
			}
		}
	}
	if closes > 1 || violated && closes == 0 {
		t.Errorf("%d close frames; a violation: %v", closes, violated)
	}
	if violated {
		code, _, err := frame.ParseClose([]byte(list[len(list)-1][1:]))
		switch code {
		case frame.ProtocolError, frame.InvalidPayload, frame.TooBig:
		case frame.TryAgainLater:
			if kind&smallBudget == 0 {
				t.Error("there is memory enough")
			}
		default:
			t.Errorf("a violation is answered with %d (%v)", code, err)
		}
	}
	n := uint64(0)
	m.Closed.Each(func(_ string, k uint64) { n += k })
	if n != 1 {
		t.Errorf("one end is counted %d times: %v", n, reasons(&m.Closed))
	}
	return app.calls, rw.Bytes()
}

// FuzzConsume gives a connection arbitrary bytes, at once and in arbitrary
// pieces: both come to the same.
func FuzzConsume(f *testing.F) {
	params := frame.Params{On: true, Window: 15}
	long := strings.Repeat("große Worte, ", 400)
	for i, seed := range [][]byte{
		text("hello"),
		bytes.Join([][]byte{packet(frame.Text, false, false, []byte("gr\xc3")), packet(frame.Ping, true, false, []byte("x")), packet(frame.Continuation, true, false, []byte("\xbc\xc3\x9fe")), packet(frame.Close, true, false, []byte{3, 232})}, nil),
		append(text(long), text("and more")...),
		bytes.Repeat(packet(frame.Continuation, false, false, nil), 5),
		append(packet(frame.Text, true, true, params.Deflate(nil, []byte(long))), packet(frame.Close, true, false, nil)...),
		append(packet(frame.Binary, false, true, []byte{0xff}), packet(frame.Continuation, true, false, []byte{1, 2, 3})...),
		packet(frame.Close, true, false, []byte{1}),
		bytes.Repeat(packet(frame.Ping, true, false, make([]byte, 125)), 30),
		append(packet(frame.Binary, false, false, nil), bytes.Repeat(packet(frame.Continuation, false, false, nil), 100)...),
		text("\xff"),
		append(packet(frame.Binary, false, false, make([]byte, 2000)), packet(frame.Continuation, true, false, make([]byte, 3000))...),
	} {
		for kind := range uint8(16) {
			f.Add(seed, kind, uint64(i))
		}
	}
	e := NewEngine(nil)
	f.Cleanup(func() { _ = e.Close() })
	f.Fuzz(func(t *testing.T, input []byte, kind uint8, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		calls, output := talk(t, e, input, kind, func() int { return readCap })
		cutCalls, cutOutput := talk(t, e, input, kind, func() int { return 1 + random.IntN(1<<random.IntN(12)) })
		if kind&smallBudget != 0 {
			return // what is held depends on how it comes
		}
		if strings.Join(calls, "\n") != strings.Join(cutCalls, "\n") {
			t.Fatalf("at once:\n%s\nin pieces:\n%s", strings.Join(calls, "\n"), strings.Join(cutCalls, "\n"))
		}
		if kind&inPieces == 0 && !bytes.Equal(output, cutOutput) {
			t.Fatalf("at once:\n%q\nin pieces:\n%q", output, cutOutput)
		}
	})
}

// readCap is the most that is read at once.
const readCap = 64 << 10
