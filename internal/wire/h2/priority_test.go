package h2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestParseUrgency(t *testing.T) {
	for v, want := range map[string]uint8{
		"": 3, "u=0": 0, "u=7": 7, "u=8": 3, "u=-1": 3, "u=10": 3, "u=1.5": 3, "i": 3, "u": 3, "u=": 3,
		"u=1, i": 1, "i,\tu=5;x=y": 5, "u=1,u=2": 2, "xu=1": 3, "i;u=1": 3,
	} {
		if got := parseUrgency(v); got != want {
			t.Errorf("%q: %d, want %d", v, got, want)
		}
	}
}

// Answers of one turn go out by urgency, and by their order within one. What
// stands between two of them keeps its place.
func TestUrgentAnswersComeFirst(t *testing.T) {
	r := start(t, pages())
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	ask := func(id uint32, priority ...string) {
		block := r.fields("/hot", priority...)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
	}
	update := func(id uint32, value string) {
		_ = fr.WriteRawFrame(framePriorityUpdate, 0, 0, append([]byte{0, 0, 0, byte(id)}, value...))
	}
	update(11, "u=2") // of a stream to come
	ask(1, "priority", "u=7")
	ask(3)
	ask(5, "priority", "u=0, i")
	ask(7)
	update(7, "u=1") // of one that has just come
	ask(9, "priority", "u=0")
	ask(11, "priority", "u=7")
	_ = fr.WritePing(false, [8]byte{1})
	ask(13, "priority", "u=0")
	ask(15)
	update(15, "nonsense")
	_ = fr.WriteRawFrame(framePriorityUpdate, 0, 9, []byte("x")) // wrong, and ignored
	if b.Len() >= waitBuffer {
		t.Fatalf("%d bytes are more than one turn", b.Len())
	}
	r.raw(b.Bytes())
	var got []string
	for len(got) < 9 {
		switch f := r.next().(type) {
		case *http2.HeadersFrame:
			got = append(got, fmt.Sprint(f.StreamID))
		case *http2.PingFrame:
			got = append(got, "ping")
		}
	}
	if want := strings.Fields("5 9 7 11 3 1 ping 13 15"); !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// asked answers all but the first request, and notes when net/http had that.
type asked struct {
	deaf
	c       *Conn
	answers int
	handed  int
}

func (*asked) Inner(net.Conn) {}

func (a *asked) Answer(dst []byte, id uint32, _ []hpack.HeaderField, _ Room) ([]byte, int, bool) {
	if id == 1 {
		return dst, 0, false
	}
	if a.answers++; a.handed == 0 && bytes.Contains(a.c.inner.Load().pipe.b, []byte("/cold")) {
		a.handed = a.answers
	}
	return AppendHeaders(dst, id, []byte{0x88}, true), 0, true
}

// A request for net/http does not wait for all hot answers of a turn.
func TestHotAnswersOfOneTurn(t *testing.T) {
	host := &asked{}
	host.c = New(host, Options{HeaderList: 1 << 10})
	block := appendLiteral(nil, &hpack.HeaderField{Name: ":path", Value: "/cold"})
	b := appendHead(nil, head{kind: frameSettings})
	for id := uint32(1); len(b) < maxRead-100; id += 2 {
		b = AppendHeaders(b, id, block, true)
	}
	if _, err := host.c.handleFrames(&task{}, b); err != nil {
		t.Fatal(err)
	}
	if host.answers < 2*maxPendingAnswers || host.handed == 0 || host.handed > maxPendingAnswers+1 {
		t.Errorf("net/http hears of the first request behind %d of %d hot answers, want %d at most", host.handed, host.answers, maxPendingAnswers)
	}
}

// A download does not delay hot answers: each stands behind what was being
// written when it was asked for, and no more. The pipe holds nothing, so what the
// client reads before an answer is all that was sent before it.
func TestDownloadDelaysNoAnswer(t *testing.T) {
	const most, rounds = maxOut + record, 200 // a write, and what it may be longer by
	client, server := net.Pipe()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	download := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 256<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	h := &host{Conn: server, h: download, nobody: l, hot: map[string]string{"/hot": strings.Repeat("h", 500)}}
	c := New(h, Options{HeaderList: 64 << 10, Stall: patience})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run()
		_ = server.Close()
		h.inner.Wait()
	}()
	defer func() {
		_ = client.Close()
		<-done
	}()
	_ = client.SetDeadline(time.Now().Add(patience))
	say := make(chan []byte)
	defer close(say)
	var heard atomic.Bool
	go func() { // a pipe that is written to while it is read from
		for b := range say {
			_, _ = client.Write(b)
			heard.Store(true)
		}
	}()
	block := func(path string) (b []byte) {
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", path}} {
			b = appendLiteral(b, &hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		return b
	}
	b := appendHead([]byte(preface), head{kind: frameSettings, length: 6})
	b = appendSetting(b, settingInitialWindow, maxWindow)
	b = appendWindowUpdate(b, 0, maxWindow-defaultWindow)
	say <- AppendHeaders(b, 1, block("/download"), true)
	fr := http2.NewFramer(io.Discard, client)
	fr.SetMaxReadFrameSize(1 << 24)
	var waited []int // bytes of the download that came between a request and its answer
	for since, asked := 0, false; len(waited) < rounds; {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch h := f.Header(); {
		case h.Type == http2.FrameHeaders && h.StreamID > 1:
			waited = append(waited, since)
			since, asked = 0, false
		case h.Type != http2.FrameData || h.StreamID != 1:
			continue
		case heard.Swap(false):
			since = int(h.Length)
		default:
			since += int(h.Length)
		}
		if !asked && since > 100<<10 { // in the middle
			say <- AppendHeaders(nil, uint32(2*len(waited)+3), block("/hot"), true)
			asked = true
		}
	}
	slices.Sort(waited)
	t.Logf("%d bytes, at most %d", waited[rounds/2], waited[rounds-1])
	if n := waited[rounds/2]; n > most { // the worst are of threads that lost their processor
		t.Errorf("%d bytes of the download before an answer, want %d at most", n, most)
	}
}
