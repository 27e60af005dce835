package labcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/cmd/millrace/internal/cli"
	"millrace/lab"
	"millrace/lab/load"
	"millrace/lab/record"
	"millrace/lab/report"
)

// Load is `millrace lab load`.
type Load struct {
	URL string `arg:"" help:"What to load: http://, https://, ws://, wss:// or unix:/path/of/socket."`

	Request  Request  `embed:""`
	Progress Progress `embed:""`

	Duration time.Duration `short:"d" default:"10s" placeholder:"TIME" help:"How long to measure."`
	Warmup   time.Duration `default:"500ms" placeholder:"TIME" help:"Load before that, which is not measured."`
	Requests uint64        `short:"n" placeholder:"N" help:"End after this many answers."`
	Closed   bool          `help:"Send a connection's next request when its answer is there. This is the default."`
	Rate     float64       `placeholder:"R" help:"Send this many requests a second by the clock, whatever the server does."`
	Poisson  bool          `help:"With --rate: at random moments, as independent visitors do."`
	RampTo   float64       `placeholder:"R" help:"With --rate: rise to this many requests a second until the end."`
	Syscalls bool          `help:"Count the server's system calls; that slows each of them a little and needs root."`
	PID      int           `name:"pid" placeholder:"PID" help:"The server's process. Default: who listens at the URL's address."`

	JSON string `name:"json" placeholder:"FILE" complete:"file" help:"Keep the result in this file; lab report draws it again. - is the standard output; the summary then goes to the standard error."`
	HTML string `name:"html" placeholder:"FILE" complete:"file" help:"Write a report."`
	PNG  string `name:"png" placeholder:"FILE" complete:"file" help:"Draw the server's CPU and memory over time."`
}

// Run loads a server.
func (c *Load) Run(s cli.Streams) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	res, err := c.Progress.Measure(s, "load "+c.URL, func(ctx context.Context, watch record.Watch) (*record.Result, error) {
		return lab.Load(ctx, lab.LoadOptions{Config: cfg, PID: c.PID, Syscalls: c.Syscalls}, watch)
	})
	return Conclude(s, res, err, c.JSON == ToOutput || c.Progress.Events == ToOutput, func(res *record.Result) ([]string, error) {
		return keep(s, res, map[string]func(io.Writer, *record.Result) error{
			c.JSON: report.Write, c.HTML: report.HTML, c.PNG: report.Usage,
		})
	})
}

func (c *Load) config() (load.Config, error) {
	cfg, err := c.Request.config()
	if err != nil {
		return cfg, err
	}
	cfg.URL, cfg.Duration, cfg.Warmup, cfg.Requests = c.Request.target(c.URL), c.Duration, c.Warmup, c.Requests
	cfg.Rate, cfg.RampTo = c.Rate, c.RampTo
	switch {
	case c.Closed && c.Rate != 0:
		return cfg, cli.Usage("--closed and --rate: a closed loop has no rate", "leave one of them out")
	case c.Rate == 0 && (c.Poisson || c.RampTo != 0):
		return cfg, cli.Usage("--poisson and --ramp-to are about a rate", "--rate 1000 says which")
	case c.Poisson && c.RampTo != 0:
		return cfg, cli.Usage("--poisson and --ramp-to cannot be combined", "leave one of them out")
	case c.Rate == 0:
	case c.RampTo != 0:
		cfg.Arrival = load.Ramp
	case c.Poisson:
		cfg.Arrival = load.Poisson
	default:
		cfg.Arrival = load.Constant
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
