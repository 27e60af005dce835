package labcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/ops/admin"
	"millrace/lab/pgo"
)

// Record is `millrace-lab pgo record`.
type Record struct {
	From string `arg:"" optional:"" help:"Where the server offers its profiles: an admin address (unix:/path, host:port), or a URL of net/http/pprof. Default: the millrace that runs here."`

	Out      string        `short:"o" default:"cpu.pprof" placeholder:"FILE" complete:"file" help:"Where to write the profile. Default cpu.pprof."`
	Duration time.Duration `short:"d" default:"30s" placeholder:"TIME" help:"How long to record, at most 5m. Default 30s."`
	PID      int           `name:"pid" placeholder:"PID" help:"Record this process by signals (SIGUSR2 starts and ends a profile), without any HTTP route."`
}

// Run records while the server works.
func (c *Record) Run(s cli.Streams) error {
	if c.From != "" && c.PID != 0 {
		return cli.Usage("an address and --pid: only one of them can say what to record", "leave one of them out")
	}
	if c.Duration < time.Second || c.Duration > pgo.MaxRecording {
		return cli.Usage(fmt.Sprintf("--duration %v: a profile takes 1s to %v", c.Duration, pgo.MaxRecording), "for instance --duration 30s")
	}
	target := c.From
	if target == "" && c.PID == 0 {
		var err error
		if target, err = theServer(admin.Find()); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	data, err := c.record(ctx, target, s)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("stopped before the profile was complete: nothing was written")
		}
		return profileFailure(err)
	}
	if err := replaceFile(c.Out, data); err != nil {
		return err
	}
	p, err := pgo.Parse(c.Out, bytes.NewReader(data))
	if err != nil {
		return profileFailure(err)
	}
	s.Print("wrote %s: %d samples, %.1f s of CPU time in %.1f s\n  next: millrace-lab pgo predict %s\n",
		c.Out, p.Samples(), p.CPU().Seconds(), p.Span().Seconds(), c.Out)
	return nil
}

func (c *Record) record(ctx context.Context, target string, s cli.Streams) ([]byte, error) {
	what := "recording " + target
	if c.PID != 0 {
		what = fmt.Sprintf("recording process %d", c.PID)
	}
	step, end := cli.Countdown(s, what, c.Duration)
	defer end()
	r := pgo.Recording{Target: target, Duration: c.Duration, Progress: step}
	if c.PID == 0 {
		return pgo.Record(ctx, r)
	}
	if err := cli.IsMillrace(c.PID); err != nil { // another program may do anything at SIGUSR2
		return nil, cli.Failure(err, "")
	}
	data, file, err := pgo.RecordBySignal(ctx, c.PID, r)
	if err == nil {
		end()
		s.Print("the server's own copy is %s\n", file)
	}
	return data, err
}

// theServer is the one that can be meant when nobody says which.
func theServer(found []string, err error) (string, error) {
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if err != nil {
			return "", err
		}
		return "", cli.Failure(
			errors.New("no running millrace was found"),
			"start one (millrace serve), or say where: millrace-lab pgo record HOST:PORT, or --pid PID",
		)
	}
	return "", cli.Failure(
		fmt.Errorf("%d servers run here", len(found)),
		"say which:\n    millrace-lab pgo record "+strings.Join(found, "\n    millrace-lab pgo record "),
	)
}
