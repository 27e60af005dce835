package files

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
	"millrace/bench/subjects/internal/workload"
)

// serveVariable lets this test's own program be the server that is measured:
// its value is what to serve.
const serveVariable = "BENCH_TEST_SERVES"

func TestMain(m *testing.M) {
	if what := os.Getenv(serveVariable); what != "" {
		serve(what, os.Args[1], os.Args[2], os.Args[3])
	}
	os.Exit(m.Run())
}

// serve is a file server until the process is stopped. One that serves
// "lies" answers scripts with something else.
func serve(what, root, address, socket string) {
	files := http.FileServer(http.Dir(root))
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if what == "lies" && strings.HasSuffix(r.URL.Path, ".js") {
			io.WriteString(w, "alert(1)")
			return
		}
		files.ServeHTTP(w, r)
	})}
	tcp, err1 := net.Listen("tcp", address)
	unix, err2 := net.Listen("unix", socket)
	if err1 != nil || err2 != nil {
		os.Exit(1)
	}
	go server.Serve(tcp)
	server.Serve(unix)
}

// testPlan is the shortest that there is, about four seconds.
func testPlan(t *testing.T) Plan {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Plan{
		Plan: stage.Plan{
			Seed: 1,
			Arms: []arm.Arm{{Name: "self", Title: "self", Program: arm.NetHTTP, Command: func(e arm.Env) ([]string, error) {
				return []string{self, e.Site, e.Address, e.Socket()}, nil
			}}},
			Workloads:   workload.All()[2:],
			Connections: []int{2},
			Rounds:      1,
			Warm:        time.Second,
			Slot:        time.Second,
		},
		Hold:      time.Second,
		Downloads: 2,
		LargeSize: 3<<20 + 1,
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
	r, err := Run(context.Background(), p, testPlaces(t), &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Small) != 1 || len(r.Large) != 2 || len(r.Memory) != 1 || len(r.Arms) != 1 {
		t.Fatalf("measured %+v", r)
	}
	s := r.Small[0]
	if s.Wrk.Requests == 0 || s.Wrk.Sum() != 0 || s.Server.Total <= 0 || s.Wall < p.Slot || s.Round != 1 || s.Connections != 2 {
		t.Errorf("the slot is %+v", s)
	}
	for _, l := range r.Large {
		if l.Bytes != 2*p.LargeSize || l.Server.Total <= 0 || l.Duration <= 0 {
			t.Errorf("the downloads are %+v", l)
		}
	}
	if m := r.Memory[0]; m.Held.RSS == 0 || m.Peak.RSS < m.Held.RSS || m.End.RSS == 0 || m.Done == 0 {
		t.Errorf("the memory is %+v", m)
	}
	if command := r.Arms[0].Command; !strings.HasSuffix(command, "SITE 127.0.0.1:PORT DIR/http.sock") {
		t.Errorf("the command is %q", command)
	}
	steps, _ := p.steps()
	if lines := strings.Count(out.String(), " left] "); lines != steps {
		t.Errorf("%d of %d steps told of themselves:\n%s", lines, steps, out.String())
	}
}

// TestWrongAnswersEndTheRun: no figures of a server that serves other bytes.
func TestWrongAnswersEndTheRun(t *testing.T) {
	t.Setenv(serveVariable, "lies")
	_, err := Run(context.Background(), testPlan(t), testPlaces(t), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "/assets/js/test.js") {
		t.Errorf("the error is %v", err)
	}
}
