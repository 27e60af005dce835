package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// CompareOptions say what Compare does.
type CompareOptions struct {
	Arms []CompareArm // the first is the baseline
	// Load is given to each; its URL comes from the arm.
	Load  load.Config
	Mode  record.Mode // Quick: within a minute; Full: some ten
	Delta float64     // what counts as equal, as a share; 0: 0.01
	// Differ is why answers need not be equal between the arms; empty: they must.
	Differ string
	Blocks []int         // at each look; nil: by the mode
	Slot   time.Duration // of one arm in one block; 0: by the mode
	Seed   uint64        // 0: a new one
}

// A CompareArm is a server by its URL or by the command that starts it.
type CompareArm struct {
	Name    string
	URL     string // of a server that runs
	Command string // for /bin/sh; {port} in it is replaced by a free port of 127.0.0.1
	Path    string // with Command: what to ask for; empty: "/"
}

// portMark is what a command has where its port goes.
const portMark = "{port}"

// ParseArm reads NAME=URL or NAME='command'. What begins with a scheme
// is a URL, everything else a command, which must have {port}
// in it: two instances of a baseline run side by side.
func ParseArm(s string) (CompareArm, error) {
	name, what, ok := strings.Cut(s, "=")
	if !ok || name == "" || what == "" || strings.ContainsAny(name, " /:") {
		return CompareArm{}, fmt.Errorf("%q is not NAME=URL or NAME='command'", s)
	}
	arm := CompareArm{Name: name}
	if scheme, _, found := strings.Cut(what, "://"); found && !strings.ContainsAny(scheme, " /") || strings.HasPrefix(what, "unix:") {
		arm.URL = what
		return arm, nil
	}
	if !strings.Contains(what, portMark) {
		return arm, fmt.Errorf("the command of %s needs %s where its port goes (127.0.0.1:%s), so that two of it can run side by side", name, portMark, portMark)
	}
	arm.Command = what
	return arm, nil
}

// maxReady is how long a command may take until it accepts connections.
const maxReady = 30 * time.Second

// Compare holds arms against each other, in interleaved blocks, until a verdict
// is there or the time is over.
func Compare(ctx context.Context, o CompareOptions, watch record.Watch) (*record.Result, error) {
	res := &record.Result{
		Format: record.Format, Kind: record.KindCompare, Name: "compare", Mode: o.Mode, Started: time.Now(),
	}
	if len(o.Arms) < 2 {
		return res, errors.New("a comparison needs two arms, A=… and B=…")
	}
	plan, err := o.plan(res)
	if err != nil {
		return res, err
	}
	err = trial.Run(ctx, plan, res, watch)
	res.Ended = time.Now()
	return res, err
}

// plan is the trial that answers the question.
func (o CompareOptions) plan(res *record.Result) (trial.Plan, error) {
	names := make([]string, len(o.Arms))
	p := trial.Plan{
		Decide: []string{"user_instructions", "cpu_ns", "requests_per_second", "latency_p99_ns"},
		Delta:  o.Delta, Differ: o.Differ, Seed: o.Seed,
		Blocks: []int{12, 24, 48}, Slot: 250 * time.Millisecond, Warmup: 50 * time.Millisecond,
		Budget: 60 * time.Second,
	}
	if o.Mode == record.Full {
		p.Blocks, p.PerRestart = []int{24, 72, 160}, 2
		p.Slot, p.Warmup, p.Budget = time.Second, 200*time.Millisecond, 10*time.Minute
	}
	if o.Blocks != nil {
		p.Blocks = o.Blocks
	}
	if o.Slot != 0 {
		p.Slot = o.Slot
	}
	if p.Seed == 0 {
		p.Seed = rand.Uint64()
	}
	p.Delta = cmp.Or(p.Delta, 0.01)
	scheme := "http"
	if o.Load.Protocol == load.WebSocket {
		scheme = "ws"
	}
	for i, a := range o.Arms {
		names[i] = a.Name
		p.Arms = append(p.Arms, a.arm(scheme, o.Load.ConnectTo))
	}
	cfg := o.Load
	for _, a := range slices.Backward(o.Arms) {
		if cfg.URL = a.URL; cfg.URL == "" {
			cfg.URL = scheme + "://127.0.0.1/"
		}
		if err := cfg.Check(); err != nil {
			return p, fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	p.Workloads = []trial.Workload{{Name: "load", About: describe(cfg), Load: o.Load}}
	res.Title = strings.Join(names, " against ")
	res.Question = fmt.Sprintf("Does %s differ from %s, and by how much?", strings.Join(names[1:], " or "), names[0])
	res.Rule = fmt.Sprintf("Better or worse where the whole 95 %% interval of the ratio lies on one side of 1, its centre is further away than %.3g %%, "+
		"and the permutation test, adjusted for %d metrics and %d looks, leaves a chance of at most 1 %%; "+
		"equal where the whole interval is within ±%.3g %%; undecided otherwise.", p.Delta*100, len(p.Decide), len(p.Blocks), p.Delta*100)
	return p, nil
}

// arm is how the trial starts it.
func (a CompareArm) arm(scheme, connectTo string) trial.Arm {
	if a.URL != "" {
		pids, err := listening(a.URL, connectTo)
		about := a.URL
		if err != nil {
			about += " (its costs are unknown: " + err.Error() + ")"
		}
		return trial.Arm{
			Name: a.Name, About: about, Fixed: true,
			Start: func(context.Context) (*trial.Instance, error) {
				return &trial.Instance{URL: map[string]string{"": a.URL}, PIDs: pids}, nil
			},
		}
	}
	return trial.Arm{
		Name: a.Name, About: a.Command, Command: []string{"/bin/sh", "-c", a.Command},
		Start: func(ctx context.Context) (*trial.Instance, error) { return a.start(ctx, scheme) },
	}
}

func (a CompareArm) start(ctx context.Context, scheme string) (*trial.Instance, error) {
	p, err := subject.StartFree(ctx, maxReady, func(address string) (*exec.Cmd, error) {
		_, port, _ := strings.Cut(address, ":")
		cmd := subject.Shell(strings.ReplaceAll(a.Command, portMark, port))
		cmd.Env = append(os.Environ(), "PORT="+port)
		return cmd, nil
	})
	if err != nil {
		return nil, err
	}
	path := cmp.Or(a.Path, "/")
	return &trial.Instance{
		URL:  map[string]string{"": scheme + "://" + p.Address() + path},
		PIDs: []int{p.PID}, Stop: p.Stop,
	}, nil
}
