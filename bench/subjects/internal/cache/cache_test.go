package cache

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/client"
	"millrace/bench/subjects/internal/origin"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// serveVariable lets this test's own program be the cache that is measured: its
// value is what to serve.
const serveVariable = "BENCH_TEST_SERVES"

func TestMain(m *testing.M) {
	if what := os.Getenv(serveVariable); what != "" {
		l, err := net.Listen("tcp", os.Args[1])
		if err != nil {
			os.Exit(1)
		}
		http.Serve(l, &plain{lies: what == "lies", api: os.Args[2], kept: map[string]*kept{}})
	}
	os.Exit(m.Run())
}

// plain is the least cache that the cases can tell something of: it keeps all
// but what is private, for ever, and joins requests, but streams nothing.
type plain struct {
	lies bool
	api  string

	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	once sync.Once
	body []byte
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.URL.RequestURI()
	p.mu.Lock()
	if r.Method == "BAN" {
		clear(p.kept)
	}
	k := p.kept[target]
	if k == nil || strings.Contains(target, "private=1") {
		k = &kept{}
		p.kept[target] = k
	}
	p.mu.Unlock()
	k.once.Do(func() {
		resp, err := http.Get("http://" + p.api + target)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		k.body, _ = io.ReadAll(resp.Body)
	})
	if p.lies && strings.HasPrefix(target, "/hit") {
		w.Write([]byte(`{"count":1}`))
		return
	}
	w.Write(k.body)
}

// testPlan is the shortest that there is, about eight seconds.
func testPlan(t *testing.T) Plan {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Plan{
		Plan: stage.Plan{
			Seed: 1,
			Arms: []arm.Arm{{
				Name: "self", Title: "self", Program: arm.NetHTTP, TCP: true,
				Command: func(e arm.Env) ([]string, error) { return []string{self, e.Address, e.Upstream}, nil },
				Purge: func(e arm.Env, _ string) arm.Purge {
					return arm.Purge{Network: "tcp", Address: e.Address, Text: "BAN /purge HTTP/1.1\r\nHost: h\r\n\r\n"}
				},
			}},
			Workloads: workload.Cache()[:1], Connections: []int{2},
			Rounds: 1, Warm: time.Second, Slot: time.Second,
		},
		Cases: 1, Tagged: 2000, Purges: 2, URLs: 3000, Hold: time.Second, Peers: true,
	}
}

func testPlaces(t *testing.T) stage.Places {
	return stage.Places{Bench: "../../..", Bin: "/no/subjects", Binary: "/no/millrace", Temp: t.TempDir()}
}

func TestRun(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skip("wrk is missing; it is in Debian's package wrk")
	}
	t.Setenv(serveVariable, "truth")
	p := testPlan(t)
	var out strings.Builder
	r, err := Run(t.Context(), p, testPlaces(t), &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Small) != 1 || len(r.Cases) != 4+p.Purges || len(r.Floods) != 1 || len(r.Arms) != 1 {
		t.Fatalf("measured %+v", r)
	}
	if s := r.Small[0]; s.Wrk.Requests == 0 || s.Wrk.Sum() != 0 || s.Upstream != 0 || s.Server.Total <= 0 {
		t.Errorf("the slot is %+v", s)
	}
	if command := r.Arms[0].Command; !strings.HasSuffix(command, " 127.0.0.1:PORT 127.0.0.1:UPSTREAM") {
		t.Errorf("the command is %q", command)
	}
	for _, c := range r.Cases {
		if c.Values[Failed] != 0 || c.Round < 1 || c.Arm != "self" {
			t.Errorf("%+v", c)
		}
		for key, least := range map[string]map[string]float64{
			Cold: {Slowest: 300, Asked: 1}, Private: {Slowest: 300, Second: 300, Asked: 100},
			Follow: {First: 600, Asked: 1}, Stale: {}, Purged: {Purge: 0.001, Seen: 0.001, Stored: 1},
		}[c.Name] {
			if got := c.Values[key]; got < least {
				t.Errorf("case %s: %s is %v, want at least %v", c.Name, key, got, least)
			}
		}
		if c.Name == Cold && c.Values[Asked] != 1 || c.Name == Private && c.Values[Asked] != 100 {
			t.Errorf("the API was asked %v times in the case %s", c.Values[Asked], c.Name)
		}
	}
	f := r.Floods[0]
	if f.Done < p.URLs+hands || f.Failed != 0 || f.Reached != f.Done || f.Filled <= 0 || f.Took < f.Filled+p.Hold || len(f.Readings) == 0 {
		t.Errorf("the flood is %+v", f)
	}
	for _, m := range f.Readings {
		if m.RSS == 0 || m.Done == 0 || m.Done > f.Done {
			t.Errorf("a reading is %+v", m)
		}
	}
	steps, _ := p.steps()
	if lines := strings.Count(out.String(), " left] "); lines != steps {
		t.Errorf("%d of %d steps told of themselves:\n%s", lines, steps, out.String())
	}
}

// TestWrongAnswersEndTheRun: no figures of a cache that serves other bytes.
func TestWrongAnswersEndTheRun(t *testing.T) {
	t.Setenv(serveVariable, "lies")
	_, err := Run(t.Context(), testPlan(t), testPlaces(t), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "/hit?size=40") {
		t.Errorf("the error is %v", err)
	}
}

func TestWave(t *testing.T) {
	right := origin.Object{Path: "/x"}.Body(0)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		failed  float64
		wrong   bool
	}{
		"right":     {func(w http.ResponseWriter, _ *http.Request) { w.Write(right) }, 0, false},
		"refused":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }, 3, false},
		"cut off":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, false},
		"another's": {func(w http.ResponseWriter, _ *http.Request) { w.Write(origin.Object{Path: "/y"}.Body(0)) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			var clients []*client.Client
			defer func() { hangUp(clients) }()
			for range 3 {
				one, err := client.Dial(t.Context(), "tcp", server.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				clients = append(clients, one)
			}
			got, err := wave(clients, "/x", []byte("older"), right)
			if (err != nil) != c.wrong || err == nil && got.failed != c.failed {
				t.Errorf("%+v, %v", got, err)
			}
			if name == "right" && (got.slowest <= 0 || got.first > got.slowest) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestFloodGivesUp when nothing but failures comes, and counts a few of them.
func TestFloodGivesUp(t *testing.T) {
	var mu sync.Mutex
	left := 5
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		left--
		bad := left >= 0
		mu.Unlock()
		if bad || r.URL.Path == "/bad" {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		w.Write(origin.Object{Path: r.URL.Path}.Body(0))
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	some := flood{address: address, count: 200, object: func(uint64) origin.Object { return origin.Object{Path: "/good"} }}
	if err := some.run(t.Context()); err != nil || some.failed.Load() != 5 {
		t.Errorf("%d failures, %v", some.failed.Load(), err)
	}
	all := flood{address: address, count: 1 << 20, object: func(uint64) origin.Object { return origin.Object{Path: "/bad"} }}
	if err := all.run(t.Context()); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("the error is %v", err)
	}
	wrong := flood{address: address, count: 200, object: func(uint64) origin.Object { return origin.Object{Path: "/good", Size: 50} }}
	if err := wrong.run(t.Context()); err == nil || !strings.Contains(err.Error(), "not the API's") {
		t.Errorf("the error is %v", err)
	}
}

// TestPlansFitTheirTime holds the bounds that the user was promised.
func TestPlansFitTheirTime(t *testing.T) {
	for length, limit := range map[stage.Length]time.Duration{
		stage.Quick: 3 * time.Minute, stage.Default: 12 * time.Minute, stage.Full: 40 * time.Minute,
	} {
		p := NewPlan(arm.Caches(), length, 1)
		n, total := p.steps()
		t.Logf("length %v: %d steps, %v", length, n, total)
		if total > limit*9/10 {
			t.Errorf("length %v: %d steps take %v, with nothing left of %v", length, n, total, limit)
		}
		hits := time.Duration(p.Rounds*len(p.Arms)*len(p.Workloads)*len(p.Connections)) * p.SlotTime()
		if hits > origin.DefaultAge*3/4 {
			t.Errorf("length %v: the hits take %v, and may be kept for %v", length, hits, origin.DefaultAge)
		}
	}
}
