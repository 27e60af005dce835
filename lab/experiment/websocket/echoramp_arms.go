package websocket

import (
	"context"
	"os/exec"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/subject"
)

// The arms of the ramp.
const (
	baselineArm = "xnet"
	arm386      = "xnet-386"
	placeboArm  = "xnet′"
	millraceArm = "millrace"
)

// An echoServer is one arm.
type echoServer struct {
	name, about string
	library     string   // of lab/bench/subjects/websocket; empty: it is millrace
	env         []string // of go build
	module      string   // whose version is told
	placebo     string
	path        string                        // of its WebSocket
	args        func(address string) []string // of its program
	exe         string
}

// subjectName is the folder of lab/bench/subjects that has the servers and the client.
const subjectName = "websocket"

// libraryArgs start a server of lab/bench/subjects/websocket, whose WebSocket is at any path.
func libraryArgs(library string) func(string) []string {
	return func(address string) []string { return []string{"-library", library, "-listen", address} }
}

// millrace ws is the echo.
func millraceArgs(address string) []string {
	return []string{"ws", "--listen", address, "--log", "off", "--admin", "off"}
}

// command is what a reader types to start the arm's server at an address.
func (a *echoServer) command(address string) []string {
	program := a.name
	if a.library != "" {
		program = subjectName
	}
	return append([]string{program}, a.args(address)...)
}

func echoServers() []*echoServer {
	arms := []*echoServer{
		{name: baselineArm, about: "golang.org/x/net/websocket and one io.Copy per connection, as published", library: "xnet", module: "golang.org/x/net"},
		{name: arm386, about: "the same built for 32 bits (GOARCH=386), which the author suspected", library: "xnet", env: []string{"GOARCH=386"}, module: "golang.org/x/net"},
		{name: "gws", about: "github.com/lxzan/gws with its default options", library: "gws", module: "github.com/lxzan/gws"},
		{name: "coder", about: "github.com/coder/websocket with its default options", library: "coder", module: "github.com/coder/websocket"},
		{name: millraceArm, about: "millrace ws, its echo, no log", path: "/echo", args: millraceArgs},
		{name: placeboArm, about: "the same as xnet once more, to see how far apart two of the same are", library: "xnet", module: "golang.org/x/net", placebo: baselineArm},
	}
	for _, a := range arms {
		if a.library != "" {
			a.path, a.args = "/", libraryArgs(a.library)
		}
	}
	return arms
}

// build compiles servers and client, finds millrace, and lists the arms in the
// result. It is an error only where nothing can be measured.
func (w *ramp) build(ctx context.Context) error {
	if w.env.Bench == nil {
		return experiment.ErrNoSources
	}
	list := []experiment.Program{{Name: subjectName}}
	for _, arm := range echoServers() {
		if arm.env != nil {
			list = append(list, experiment.Program{Key: arm.name, Name: subjectName, Env: arm.env})
		}
	}
	programs, err := w.Build(ctx, list)
	if err == nil {
		w.client, err = programs.Path(subjectName)
	}
	if err != nil {
		return err
	}
	var failed error
	for _, arm := range echoServers() {
		shown := record.Arm{Name: arm.name, About: arm.about, Command: arm.command("127.0.0.1:PORT"), Placebo: arm.placebo}
		if err := w.program(programs, arm); err != nil {
			shown.Skipped = err.Error()
			w.Note("%s was left out: %v", arm.name, err)
			failed = err
		} else {
			w.arms = append(w.arms, arm)
			shown.Size = subject.Size(arm.exe)
			if arm.library == "" {
				shown.Version = subject.Version(ctx, arm.exe, "version")
			} else {
				shown.Version = subject.GoVersion(arm.exe, arm.module)
			}
		}
		w.res.Arms = append(w.res.Arms, shown)
	}
	if len(w.arms) == 0 {
		return failed
	}
	return nil
}

// program builds an arm's executable; millrace's is the very program that runs
// this.
func (w *ramp) program(programs *experiment.Programs, arm *echoServer) (err error) {
	if arm.library == "" {
		if arm.exe = w.env.Millrace; arm.exe == "" {
			return experiment.ErrNoMillrace
		}
		return nil
	}
	key := subjectName
	if arm.env != nil {
		key = arm.name
	}
	arm.exe, err = programs.Path(key)
	return err
}

// A stepFinding is what one arm did at one step.
type stepFinding struct {
	arm          string
	connections  int
	round, block int
	report       clientsReport
	died         string        // what a server said that ended by itself
	spent        time.Duration // with starting and stopping
	cpu          float64       // ns for each connection, of the servers; 0: unknown
	rss          float64       // bytes for each open connection, of the servers; 0: unknown
}

// sample is the finding as figures. What is unknown is not there.
func (f *stepFinding) sample() record.Sample {
	v := map[string]float64{
		"step_ns": float64(f.report.Duration), "succeeded": float64(f.report.Succeeded), "failed": float64(f.report.Failed),
	}
	for key, figure := range map[string]float64{"cpu_ns_per_connection": f.cpu, "rss_bytes_per_connection": f.rss} {
		if figure > 0 {
			v[key] = figure
		}
	}
	for key, h := range map[string]*load.Histogram{"connect": &f.report.connect, "upgrade": &f.report.upgrade, "echo": &f.report.echo} {
		if h.Count() > 0 {
			v[key+"_p50_ns"], v[key+"_p99_ns"] = float64(h.Quantile(0.5)), float64(h.Quantile(0.99))
		}
	}
	return record.Sample{
		Arm: f.arm, Workload: workloadName(f.connections), Restart: f.block, Block: f.block,
		Seconds: f.report.Duration.Seconds(), Values: v,
	}
}

// measureArm starts an arm's servers, as many as the connections need, has the
// same number of clients ramp against them, and stops everything.
func (w *ramp) measureArm(ctx context.Context, arm *echoServer, n int) (f stepFinding, err error) {
	began := time.Now()
	f = stepFinding{arm: arm.name, connections: n}
	processes := (n + w.rampPlan.perProcess - 1) / w.rampPlan.perProcess
	var servers []*subject.Process
	defer func() {
		for _, s := range servers {
			if stopErr := s.Stop(); stopErr != nil && f.died == "" {
				f.died = stopErr.Error()
			}
		}
		f.spent = time.Since(began)
	}()
	var pids []int
	var addresses []string
	for range processes {
		s, err := startServer(ctx, arm)
		if err != nil {
			return f, err
		}
		servers = append(servers, s)
		pids = append(pids, s.PID)
		addresses = append(addresses, s.Address())
	}
	target, err := record.Open(pids...)
	if err != nil {
		return f, err
	}
	defer target.Close() //nolint:errcheck // it was only read
	idle, err := target.Read()
	if err != nil {
		return f, err
	}
	var held record.Reading
	var heldErr error
	f.report, err = runClients(ctx, w.clientCommands(arm, addresses, n), func() { held, heldErr = target.Read() })
	if err != nil {
		return f, err
	}
	if heldErr == nil && f.report.Succeeded > 0 && held.RSS > idle.RSS {
		f.rss = float64(held.RSS-idle.RSS) / float64(f.report.Succeeded)
	}
	if after, err := target.Read(); err == nil && f.report.Succeeded > 0 {
		f.cpu = float64(after.Sub(idle).CPU) / float64(f.report.Succeeded)
	}
	return f, nil
}

func startServer(ctx context.Context, arm *echoServer) (*subject.Process, error) {
	return subject.StartFree(ctx, rampStartTime, func(address string) (*exec.Cmd, error) { return exec.Command(arm.exe, arm.args(address)...), nil })
}

// rampStartTime is how long a server may take until it listens.
const rampStartTime = 10 * time.Second
