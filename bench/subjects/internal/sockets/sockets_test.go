package sockets

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lxzan/gws"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/wsload"
)

// TestMain lets this test's own program be the client and the servers: it is
// called by their names.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "wsload":
		if err := wsload.Serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "server":
		_ = http.ListenAndServe(os.Args[1], newServer(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// server echoes, and lets who wants to subscribe.
type server struct {
	gws.BuiltinEventHandler
	lies bool
	mu   sync.Mutex
	subs map[*gws.Conn]struct{}
}

func newServer(what string) http.Handler {
	s := &server{lies: what == "lies", subs: map[*gws.Conn]struct{}{}}
	upgrader := gws.NewUpgrader(s, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if c, err := upgrader.Upgrade(w, r); err == nil {
			go c.ReadLoop()
		}
	})
	mux.HandleFunc("POST /publish", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.subs {
			c.WriteMessage(gws.OpcodeText, body)
		}
	})
	return mux
}

func (s *server) OnMessage(c *gws.Conn, m *gws.Message) {
	defer m.Close()
	switch text := m.Bytes(); {
	case strings.HasPrefix(string(text), `{"subscribe"`):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subs[c] = struct{}{}
		c.WriteMessage(gws.OpcodeText, []byte(`{"subscribed":"bench"}`))
	case s.lies:
		c.WriteMessage(m.Opcode, text[1:])
	default:
		c.WriteMessage(m.Opcode, text)
	}
}

func (s *server) OnClose(c *gws.Conn, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, c)
}

// testPlaces has the programs under their names.
func testPlaces(t *testing.T) stage.Places {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"wsload", "server"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return stage.Places{Bench: t.TempDir(), Bin: bin, Binary: filepath.Join(bin, "millrace"), Temp: t.TempDir()}
}

func testArm(name string, program arm.Program, what string, modes ...arm.Mode) arm.Arm {
	return arm.Arm{
		Name: name, Title: name, Program: program, TCP: true, Any: true, Modes: modes,
		Command: func(e arm.Env) ([]string, error) {
			return []string{filepath.Join(e.Bin, "server"), e.Address, what}, nil
		},
	}
}

// testPlan is the shortest that there is, a few seconds.
func testPlan(arms []arm.Arm, parts ...string) Plan {
	p := NewPlan(arms, parts, stage.Quick, 1, 20_000)
	p.Rounds, p.Slot, p.Warm, p.CastRounds = 1, 20*time.Millisecond, 10*time.Millisecond, 1
	p.Connections, p.Sizes = []int{5}, []int{16, 20}
	p.Casts = []Cast{{20, []time.Duration{10 * time.Millisecond, 5 * time.Millisecond}, 30 * time.Millisecond}}
	p.Idle, p.Proxied, p.Rest = 50, 20, 50*time.Millisecond
	p.Ramp, p.Many, p.Servers = 60, 90, 3
	return p
}

func TestRun(t *testing.T) {
	if _, err := proc.ReadLoad(); err != nil {
		t.Skip("no /proc to read:", err)
	}
	arms := []arm.Arm{
		testArm("millrace", arm.Millrace, "", arm.Echo, arm.Channels, arm.Proxy),
		testArm("gws", arm.GWS, "", arm.Echo),
	}
	var out strings.Builder
	r, err := Run(t.Context(), testPlan(arms), testPlaces(t), &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	s := r.Sockets
	if len(s.Notes) != 0 || len(s.Echoes) != 4 || len(s.Casts) != 2 || len(s.Idle) != 4 || len(s.Ramps) != 4 || len(r.Arms) != 2 {
		t.Fatalf("%+v\n%s", s, out.String())
	}
	for _, e := range s.Echoes {
		if e.Failed != 0 || e.Messages < 5 || e.Server.Total <= 0 || e.Client.Total <= 0 || e.Wall <= 0 || e.P50 <= 0 {
			t.Errorf("%+v", e)
		}
	}
	for _, c := range s.Casts {
		if c.Lost+c.Doubled+c.Refused != 0 || c.Delivered != c.Published*20 || c.Server.Total <= 0 {
			t.Errorf("%+v", c)
		}
	}
	for _, i := range s.Idle {
		if i.Open != i.Connections || i.Before.RSS == 0 || i.After.RSS == 0 || i.Fresh.RSS == 0 {
			t.Errorf("%+v", i)
		}
	}
	for _, ramp := range s.Ramps {
		if ramp.Failed != 0 || ramp.Echoed != ramp.Connections || ramp.Held.RSS == 0 || ramp.First != "" {
			t.Errorf("%+v", ramp)
		}
	}
	if len(s.Commands) != 4 || !strings.Contains(s.Commands[0].Command, ":PORT") {
		t.Errorf("%+v", s.Commands)
	}
	if steps, _ := testPlan(arms).steps(); strings.Count(out.String(), " left] ") != steps {
		t.Errorf("the progress was\n%s", out.String())
	}
}

// TestRunGoesOnAfterAPartThatFails, and says so.
func TestRunGoesOnAfterAPartThatFails(t *testing.T) {
	arms := []arm.Arm{testArm("millrace", arm.Millrace, "lies", arm.Echo)}
	var out strings.Builder
	r, err := Run(t.Context(), testPlan(arms, EchoPart, IdlePart), testPlaces(t), &out)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Sockets; len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "not what was sent") || len(s.Idle) != 1 || len(s.Echoes) != 0 {
		t.Errorf("%+v\n%s", s, out.String())
	}
	if _, err := Run(t.Context(), testPlan(arms, EchoPart), testPlaces(t), io.Discard); err == nil {
		t.Error("a run without a figure has no error")
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, testPlan([]arm.Arm{testArm("gws", arm.GWS, "", arm.Echo)}), testPlaces(t), io.Discard); err == nil {
		t.Error("no error")
	}
}

// TestRampCountsWhatFails: more connections than there is a server for.
func TestRampCountsWhatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := startClient(testPlaces(t).Bin)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	state, err := c.open(t.Context(), opening(l.Addr().String(), 3))
	if err != nil || state.Failed != 3 || state.First == "" {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := c.echo(t.Context(), 20, 0); err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("an echo on nothing: %v", err)
	}
}

func TestPlan(t *testing.T) {
	arms := arm.Sockets()
	for _, c := range []struct {
		length stage.Length
		most   time.Duration
	}{{stage.Quick, 3 * time.Minute}, {stage.Default, 15 * time.Minute}} {
		p := NewPlan(arms, nil, c.length, 1, 20_000)
		if _, total := p.steps(); total > c.most {
			t.Errorf("%v: it takes %v, more than %v", c.length, total, c.most)
		}
	}
	p := NewPlan(arms, nil, stage.Default, 1, 20_000)
	if p.Idle != 18_000 || p.Proxied != 9000 || p.Ramp != 19_000 || p.Many != 100_000 || p.Short != "" {
		t.Errorf("%+v", p)
	}
	if few := NewPlan(arms, nil, stage.Default, 1, 1024); few.Idle != 624 || few.Proxied != 312 || few.Ramp != 624 || few.Many != 6*624 || few.Short == "" {
		t.Errorf("with 1024 descriptors: %+v", few)
	}
	if p := NewPlan(arms, []string{RampPart, EchoPart}, stage.Quick, 1, 20_000); len(p.Parts) != 2 || p.Parts[0] != EchoPart {
		t.Errorf("parts %v", p.Parts)
	}
	modes := map[arm.Mode]int{}
	for _, r := range p.rests() {
		modes[r.mode]++
	}
	if modes[arm.Echo] != 4 || modes[arm.Channels] != 1 || modes[arm.TLS] != 2 || modes[arm.Proxy] != 2 {
		t.Errorf("%v", modes)
	}
	if n := len(p.climbs()); n != 6 {
		t.Errorf("%d ramps", n)
	}
}

func TestShares(t *testing.T) {
	w := climb{servers: 6, connections: 100_000}
	p := &party{}
	for range 6 {
		p.servers = append(p.servers, &arm.Running{Env: arm.Env{Address: "127.0.0.1:9"}})
	}
	sum := 0
	sources := map[int]bool{}
	for i := range 6 {
		o := w.order(i, p)
		sum += o.Connections
		for s := range o.Sources {
			if sources[o.FirstSource+s] {
				t.Errorf("the address 127.0.0.%d is used twice", o.FirstSource+s)
			}
			sources[o.FirstSource+s] = true
		}
	}
	if sum != 100_000 {
		t.Errorf("%d connections", sum)
	}
}
