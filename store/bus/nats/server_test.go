package nats

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/process/servertest"
	"millrace/store/bus"
	"millrace/store/bus/bustest"
)

func TestMain(m *testing.M) {
	// nats.go 1.55 starts it with the first asynchronous publication, and it waits
	// for ever where the connection is closed at that moment: one for each
	// connection, at its end.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// patience is how long a test waits for what must happen; a machine in tests
// may be slow.
const patience = 30 * time.Second

// A server is a real nats-server of its own.
type server struct {
	*servertest.Process
	t    *testing.T
	dir  string
	port string
	args []string
}

// newServer returns one that does not run yet; args add to its settings.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("nats-server"); err != nil {
		t.Skip("nats-server is not installed (Debian: apt install nats-server)")
	}
	return &server{Process: servertest.New(t), t: t, dir: t.TempDir(), port: servertest.FreePort(t), args: args}
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.run()
	return s
}

func (s *server) addr() string { return "127.0.0.1:" + s.port }
func (s *server) url() string  { return "nats://" + s.addr() }

// run starts it with the store that it had.
func (s *server) run() {
	s.t.Helper()
	args := append([]string{"-a", "127.0.0.1", "-p", s.port}, s.args...)
	if s.dir != "" {
		args = append(args, "-js", "-sd", s.dir)
	}
	s.Run(exec.Command("nats-server", args...), patience, func() error {
		c, err := net.Dial("tcp", s.addr())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		hello := make([]byte, 5)
		if _, err = io.ReadFull(c, hello); err == nil && string(hello) != "INFO " {
			err = fmt.Errorf("it says %q", hello)
		}
		return err
	})
}

// A wire is a way to the server that can be cut.
type wire struct {
	t        *testing.T
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool // nobody gets through
	mute  bool // what the server says does not arrive
	conns []net.Conn
	all   sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listener: l, to: to}
	w.all.Go(w.accept)
	t.Cleanup(func() {
		l.Close()
		w.set(true, false)
		w.all.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.listener.Addr().String() }

// set cuts the wire or mends it.
func (w *wire) set(cut, mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.mute = cut, mute
	if cut {
		for _, c := range w.conns {
			c.Close()
		}
		w.conns = nil
	}
}

func (w *wire) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.to)
		w.mu.Lock()
		if err != nil || w.cut {
			from.Close()
			if err == nil {
				to.Close()
			}
			w.mu.Unlock()
			continue
		}
		w.conns = append(w.conns, from, to)
		w.mu.Unlock()
		w.all.Go(func() { w.copy(to, from, false) })
		w.all.Go(func() { w.copy(from, to, true) })
	}
}

func (w *wire) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		mute := w.mute && answers
		w.mu.Unlock()
		if mute {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A host is a bus, and what its listener was told, in order.
type host struct {
	*Bus
	t       *testing.T
	mu      sync.Mutex
	got     map[string][]bus.Message
	placed  map[string]uint64 // by ID
	twice   []string          // what was placed twice
	resets  []string
	states  []error
	members []bus.Member
}

func (h *host) Deliver(m bus.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got[m.Channel] = append(h.got[m.Channel], m)
}

func (h *host) Placed(_, id string, offset uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.placed[id] != 0 {
		h.twice = append(h.twice, id)
	}
	h.placed[id] = offset
}

func (h *host) Reset(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resets = append(h.resets, channel)
}

func (h *host) State(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, err)
}

func (h *host) Members(string) []bus.Member {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members
}

func usual() bus.Keep { return bus.Keep{Messages: 1000, Age: 10 * time.Minute} }

// openHost makes a bus and starts it.
func openHost(t *testing.T, url string, keep bus.Keep, listen ...string) *host {
	t.Helper()
	b, err := Open(Options{URL: url, Name: "test", Keep: keep, ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Bus: b, t: t, got: map[string][]bus.Message{}, placed: map[string]uint64{}}
	if err := b.Start(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close(0) })
	for _, c := range listen {
		if err := b.Listen(c); err != nil {
			t.Fatal(err)
		}
	}
	if len(listen) > 0 {
		h.tryHistory(listen[0], nil) // behind it all of them hold; without a server it fails
	}
	return h
}

// until waits for what must happen.
func (h *host) until(what string, ok func() bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		done := ok()
		h.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.t.Fatalf("did not happen: %s. States %v, resets %q, delivered %v", what, h.states, h.resets, h.summary())
		}
	}
}

func (h *host) summary() map[string][]string {
	all := map[string][]string{}
	for c, got := range h.got {
		for _, m := range got[max(0, len(got)-50):] {
			all[c] = append(all[c], fmt.Sprintf("%s@%d", m.Data, m.Offset))
		}
	}
	return all
}

func (h *host) isUp() {
	h.t.Helper()
	h.until("the bus is up", func() bool {
		p, _ := h.link.now()
		return p == up && len(h.states) > 0 && h.states[len(h.states)-1] == nil
	})
}

func (h *host) isDown() {
	h.t.Helper()
	h.until("the bus is down", func() bool { p, _ := h.link.now(); return p == down })
}

func (h *host) publish(channel, text string) bus.Message {
	h.t.Helper()
	m, err := h.Publish(h.t.Context(), bus.Message{Channel: channel, Data: []byte(text)})
	if err != nil {
		h.t.Fatalf("publishing %s: %v", text, err)
	}
	return m
}

func (h *host) tryHistory(channel string, since *bus.Position) (bus.History, error) {
	h.t.Helper()
	type answer struct {
		h   bus.History
		err error
	}
	answers := make(chan answer, 1)
	h.History(channel, since, 0, func(got bus.History, err error) { answers <- answer{got, err} })
	select {
	case a := <-answers:
		return a.h, a.err
	case <-time.After(patience):
		h.t.Fatal("done was not called for a history")
		panic("not reached")
	}
}

func (h *host) history(channel string, since *bus.Position) bus.History {
	h.t.Helper()
	got, err := h.tryHistory(channel, since)
	if err != nil {
		h.t.Fatalf("the history of %s: %v", channel, err)
	}
	return got
}

// texts waits for n publications of a channel, and returns their texts in
// the order of delivery.
func (h *host) texts(channel string, n int) []string {
	h.t.Helper()
	h.until(fmt.Sprintf("%d publications of %s", n, channel), func() bool { return len(h.got[channel]) >= n })
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, m := range h.got[channel] {
		all = append(all, string(m.Data))
	}
	return all
}

// sound looks whether anything came twice or out of order.
func (h *host) sound() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel, got := range h.got {
		ids := map[string]bool{}
		last := uint64(0)
		for _, m := range got {
			if ids[m.ID] {
				h.t.Errorf("%s of %s was delivered twice", m.Data, channel)
			}
			ids[m.ID] = true
			if m.Offset != 0 && m.Offset <= last {
				h.t.Errorf("%s of %s was delivered with the offset %d after %d", m.Data, channel, m.Offset, last)
			}
			last = max(last, m.Offset)
		}
	}
	if len(h.twice) > 0 {
		h.t.Errorf("placed twice: %q", h.twice)
	}
}

func (h *host) resetOf() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.resets)
}

// TestSuite runs the suite of the seam on a real server.
func TestSuite(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	bustest.Run(t, true, func(t *testing.T, keep bus.Keep) bus.Bus {
		name := strings.Map(func(r rune) rune {
			if r > 127 || !plain(byte(r)) {
				return '-'
			}
			return r
		}, t.Name())
		b, err := Open(Options{URL: s.url(), Name: name, Keep: keep, ErrorLog: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}
