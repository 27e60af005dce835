package labcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/lab"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/report"
)

// Load is `millrace-lab load`.
type Load struct {
	URL string `arg:"" help:"What to load: http://, https://, ws://, wss:// or unix:/path/of/socket."`

	Request  Request  `embed:""`
	Progress Progress `embed:""`

	Duration time.Duration  `short:"d" default:"10s" placeholder:"TIME" help:"How long to measure."`
	Warmup   *time.Duration `placeholder:"TIME" help:"Load before that, which is not measured. Default 500ms."`
	Requests uint64         `short:"n" name:"max-requests" aliases:"requests" placeholder:"N" help:"Send exactly this many requests, without a warm-up unless one is given, and end when all of them have."`
	Closed   bool           `help:"Send a connection's next request when its answer is there. This is the default."`
	Rate     float64        `placeholder:"R" help:"Send this many requests a second by the clock, whatever the server does."`
	Poisson  bool           `help:"With --rate: at random moments, as independent visitors do."`
	RampTo   float64        `placeholder:"R" help:"With --rate: rise to this many requests a second until the end."`
	Stages   []string       `placeholder:"TIME:R" help:"Change the rate in stages: 10s:100,1m:1000,10s:0 rises from --rate (or 0) to 100/s in ten seconds, and so on. The load is as long as they are."`
	Require  []string       `sep:"none" placeholder:"WHAT" help:"Exit with 1 unless this holds: 'p99 < 200ms', 'errors < 0.1 %', 'rate > 1000', 'cpu < 50us', and with --against 'p99 < +10 %'. May be repeated."`
	Against  string         `placeholder:"FILE" complete:"file" help:"Show the figures beside those of this earlier result."`
	Syscalls bool           `help:"Count the server's system calls; that slows each of them a little and needs root."`
	PID      int            `name:"pid" placeholder:"PID" help:"The server's process. Default: who listens at the URL's address."`

	JSON string `name:"json" placeholder:"FILE" complete:"file" help:"Keep the result in this file; millrace-lab report draws it again. - is the standard output; the summary then goes to the standard error."`
	HTML string `name:"html" placeholder:"FILE" complete:"file" help:"Write a report."`
	PNG  string `name:"png" placeholder:"FILE" complete:"file" help:"Draw the server's CPU and memory over time."`
}

// defaultWarmup is long enough for caches and connections of a server.
const defaultWarmup = 500 * time.Millisecond

// Run loads a server.
func (c *Load) Run(s cli.Streams) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	requirements, earlier, err := c.requirements()
	if err != nil {
		return err
	}
	unmet := 0
	res, err := c.Progress.Measure(s, "load "+c.URL, func(ctx context.Context, watch record.Watch) (*record.Result, error) {
		res, err := lab.Load(ctx, lab.LoadOptions{Config: cfg, PID: c.PID, Syscalls: c.Syscalls}, watch)
		unmet = lab.Require(res, requirements, earlier)
		return res, err
	})
	err = Conclude(s, res, err, c.JSON == ToOutput || c.Progress.Events == ToOutput, func(res *record.Result) ([]string, error) {
		return keep(s, res, map[string]func(io.Writer, *record.Result) error{
			c.JSON: report.Write, c.HTML: report.HTML, c.PNG: report.Usage,
		})
	})
	if err == nil && unmet > 0 {
		err = fmt.Errorf("%d of %d requirements not met", unmet, len(requirements))
	}
	return err
}

// requirements reads --require and --against.
func (c *Load) requirements() (out []lab.Requirement, earlier *record.Result, err error) {
	if c.Against != "" {
		if earlier, err = readResult(c.Against); err != nil {
			return nil, nil, err
		}
	}
	for _, text := range c.Require {
		r, err := lab.ParseRequirement(text)
		if err != nil {
			return nil, nil, cli.Usage(err.Error(), "--require 'p99 < 200ms'")
		}
		if r.Relative() && earlier == nil {
			return nil, nil, cli.Usage(fmt.Sprintf("%q is about an earlier result", text), "name it: --against result.json")
		}
		out = append(out, r)
	}
	return out, earlier, nil
}

func (c *Load) config() (load.Config, error) {
	cfg, err := c.Request.config()
	if err != nil {
		return cfg, err
	}
	cfg.URL, cfg.Duration, cfg.Requests, cfg.Rate = c.Request.target(c.URL), c.Duration, c.Requests, c.Rate
	switch {
	case c.Warmup != nil:
		cfg.Warmup = *c.Warmup
	case c.Requests == 0:
		cfg.Warmup = defaultWarmup
	}
	if cfg.Stages, err = stages(c.Stages); err != nil {
		return cfg, err
	}
	if c.RampTo != 0 {
		cfg.Stages = []load.Stage{{Rate: c.RampTo, Length: c.Duration}}
	}
	byClock := c.Rate != 0 || c.Stages != nil
	switch {
	case c.Closed && byClock:
		return cfg, cli.Usage("--closed and --rate or --stages: a closed loop has no rate", "leave one of them out")
	case c.RampTo != 0 && c.Stages != nil:
		return cfg, cli.Usage("--ramp-to and --stages both say how the rate changes", "leave one of them out")
	case !byClock && (c.Poisson || c.RampTo != 0):
		return cfg, cli.Usage("--poisson and --ramp-to are about a rate", "--rate 1000 says which")
	case !byClock:
	case c.Poisson:
		cfg.Arrival = load.Poisson
	default:
		cfg.Arrival = load.Constant
	}
	if c.Stages != nil {
		cfg.Duration = 0
		for _, s := range cfg.Stages {
			cfg.Duration += s.Length
		}
	}
	if err := cfg.Check(); err != nil {
		return cfg, err
	}
	return cfg, nil
}

// keep writes a result to the files that were asked for; "" is none.
func keep(s cli.Streams, res *record.Result, files map[string]func(io.Writer, *record.Result) error) ([]string, error) {
	var written []string
	for name, write := range files {
		if name == "" {
			continue
		}
		var text bytes.Buffer
		if err := write(&text, res); err != nil {
			return written, fmt.Errorf("writing %s: %w", name, err)
		}
		if name == ToOutput {
			if _, err := s.Out.Write(text.Bytes()); err != nil {
				return written, fmt.Errorf("writing the result: %w", err)
			}
			continue
		}
		if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil { // a report is meant to be read
			return written, fmt.Errorf("keeping the result: %w", err)
		}
		written = append(written, name)
	}
	return written, nil
}
