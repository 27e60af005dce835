package channels_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os/exec"
	"testing"
	"time"

	"millrace/store/bus"
	"millrace/store/bus/nats"
	"millrace/websocket/channels"
)

// natsServer is a real one, with a store that outlives it.
type natsServer struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
}

func newNATS(t *testing.T) *natsServer {
	t.Helper()
	if _, err := exec.LookPath("nats-server"); err != nil {
		t.Skip("nats-server is not installed (Debian: apt install nats-server)")
	}
	s := &natsServer{t: t, dir: t.TempDir()}
	for range 100 { // below those that the system gives to outgoing connections
		s.addr = fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", s.addr); err == nil {
			l.Close()
			break
		}
	}
	t.Cleanup(s.kill)
	s.run()
	return s
}

// run starts it, and returns when it answers.
func (s *natsServer) run() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command("nats-server", "-a", host, "-p", port, "-js", "-sd", s.dir)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(end)
		hello := make([]byte, 5)
		_, err = io.ReadFull(c, hello)
		c.Close()
		if err == nil && string(hello) == "INFO " {
			return
		}
	}
	s.t.Fatal("nats-server does not answer")
}

// kill is kill -9.
func (s *natsServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// TestEndToEndNATS is TestEndToEnd with two machines, between which clients go
// to and fro, and a server between them that is killed twice. What a client has
// seen without an offset may stand before what has an earlier one; besides, all
// must be complete, in order, and each once.
func TestEndToEndNATS(t *testing.T) {
	server := newNATS(t)
	var machines []*machine
	for range 2 {
		b, err := nats.Open(nats.Options{
			URL: "nats://" + server.addr, Name: "test", Keep: bus.Keep{Messages: 10_000}, ErrorLog: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(t, b, channels.Options{Bus: "nats://" + server.addr, Commands: 1000})
		defer m.close(t)
		machines = append(machines, m)
	}
	w := newWorld(machines...)
	clients := w.populate(t)[:natsClients]
	w.publishAll(t, clients, func() {
		for range 2 {
			time.Sleep(300 * time.Millisecond)
			server.kill()
			time.Sleep(time.Second)
			server.run()
		}
	})
	for i, k := range clients {
		for _, v := range k.views {
			if fault := v.compare((*w.end.Load())[v.channel]); fault != "" {
				t.Fatalf("client %d, %s: %s: %s", i, k.state(), v.channel, fault)
			}
		}
	}
}

// compare says what is wrong with a view. That offsets grow was looked at as they
// came.
func (v *view) compare(truth []bus.Message) string {
	places := map[string]uint64{}
	for _, m := range truth {
		if places[text(m)] > 0 {
			return fmt.Sprintf("%s is there twice: %d and %d", m.Data, places[text(m)], m.Offset)
		}
		places[text(m)] = m.Offset
	}
	seen := map[string]bool{}
	for _, s := range v.got {
		switch place := places[s.data]; {
		case seen[s.data]:
			return fmt.Sprintf("%s came twice, now at %d of %d", s.data, s.offset, place)
		case place == 0:
			return fmt.Sprintf("%s at %d is not in the history", s.data, s.offset)
		case s.offset > 0 && s.offset != place:
			return fmt.Sprintf("%s came at %d, and is at %d", s.data, s.offset, place)
		}
		seen[s.data] = true
	}
	if len(seen) != len(truth) {
		return fmt.Sprintf("%d of %d came", len(seen), len(truth))
	}
	return ""
}
