package proof

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"time"

	"millrace/lab/pgo"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// portMark is where a program's arguments have its port.
const portMark = "{port}"

// ready is how long a server may take until it accepts connections.
const ready = 20 * time.Second

// millraceArgs are those of millrace itself.
func (p *proof) millraceArgs(noLane bool, admin string) []string {
	args := []string{"serve", p.Site, "--listen", "127.0.0.1:" + portMark, "--log", "off", "--admin", admin}
	if noLane {
		args = append(args, "--no-lane")
	}
	return args
}

// serve starts an executable and waits until it answers.
func (p *proof) serve(ctx context.Context, exe string, args []string) (*subject.Process, error) {
	return subject.StartFree(ctx, ready, func(address string) (*exec.Cmd, error) {
		_, port, _ := strings.Cut(address, ":")
		filled := make([]string, len(args))
		for i, a := range args {
			filled[i] = strings.ReplaceAll(a, portMark, port)
		}
		return exec.Command(exe, filled...), nil
	})
}

// trialArms are the executables for the trial. Millrace runs three times in each
// instance, with and without its lane and as an image server; what is not asked costs
// nothing.
func (p *proof) trialArms() []trial.Arm {
	var all []trial.Arm
	for _, a := range p.arms {
		shares := &kernelShares{}
		all = append(all, trial.Arm{
			Name: a.name, About: a.about, Size: a.size, Version: a.proof, Command: append([]string{a.exe}, p.exampleArgs()...),
			Start: func(ctx context.Context) (*trial.Instance, error) {
				in := &trial.Instance{URL: map[string]string{}}
				if err := p.startAll(ctx, a, in); err != nil {
					return nil, err
				}
				shares.begin(in)
				stop := in.Stop
				in.Stop = func() error {
					shares.forget(in)
					return stop()
				}
				return in, nil
			},
			Extra: func(_ context.Context, in *trial.Instance) map[string]float64 { return shares.since(in) },
		})
	}
	return all
}

// startAll starts the processes of an instance.
func (p *proof) startAll(ctx context.Context, a arm, in *trial.Instance) error {
	runs := map[string][]string{"": p.Args}
	var ends []func() error
	in.Stop = func() error {
		var err error
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	if p.itself() {
		images, remove, err := p.imageArgs()
		if err != nil {
			return err
		}
		defer func() { ends = append(ends, remove) }() // when the processes have ended
		runs = map[string][]string{fastLane: p.millraceArgs(false, "off"), slowLane: p.millraceArgs(true, "off"), imageServer: images}
	}
	for workload, args := range maps.All(runs) {
		s, err := p.serve(ctx, a.exe, args)
		if err != nil {
			return errors.Join(err, in.Stop())
		}
		ends = append(ends, s.Stop)
		in.URL[workload] = "http://" + s.Address() + "/"
		in.PIDs = append(in.PIDs, s.PID)
	}
	return nil
}

func (p *proof) exampleArgs() []string {
	if p.itself() {
		return p.millraceArgs(false, "off")
	}
	return p.Args
}

// takeProfile records a server over its admin listener.
func takeProfile(ctx context.Context, admin string, length time.Duration) (*pgo.Profile, error) {
	data, err := pgo.Record(ctx, pgo.Recording{Target: admin, Duration: length})
	if err != nil {
		return nil, err
	}
	return pgo.Parse("the profile of "+admin, bytes.NewReader(data))
}

// kernelShare is the metric of the negative control.
const kernelShare = "kernel_share"

// leastTicks is how much CPU time a slot must have used for its division into
// user and kernel to say anything: the kernel counts both in ticks of 10 ms.
const leastTicks = 50 * time.Millisecond

// kernelShares tells what part of an instance's CPU time was spent in the
// kernel since it was asked last: in a slot with its warm-up, since nothing
// happens between slots. An arm and its placebo share one; it holds as many
// entries as instances run.
type kernelShares struct {
	mu      sync.Mutex
	targets map[*trial.Instance]*watchedInstance
}

type watchedInstance struct {
	target *record.Target
	last   record.Reading
}

// begin watches an instance from its start. Where that fails the control says
// that it could not look.
func (k *kernelShares) begin(in *trial.Instance) {
	target, err := record.Open(in.PIDs...)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.targets == nil {
		k.targets = map[*trial.Instance]*watchedInstance{}
	}
	k.targets[in] = &watchedInstance{target: target}
}

// since is the share since the last call for an instance, or since it began.
func (k *kernelShares) since(in *trial.Instance) map[string]float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.targets[in]
	if w == nil {
		return nil
	}
	now, err := w.target.Read()
	if err != nil {
		return nil
	}
	used := now.Sub(w.last)
	w.last = now
	if used.User+used.System < leastTicks {
		return nil
	}
	return map[string]float64{kernelShare: float64(used.System) / float64(used.User+used.System)}
}

func (k *kernelShares) forget(in *trial.Instance) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.targets[in]; w != nil {
		_ = w.target.Close() // it only read
		delete(k.targets, in)
	}
}
