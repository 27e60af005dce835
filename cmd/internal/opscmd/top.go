package opscmd

// This file has the verb that shows a running server's figures in a terminal.

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"millrace/cmd/internal/cli"
	"millrace/internal/ops/dashboard"
	"millrace/lab/live"
)

// Top is `millrace top`.
type Top struct {
	Once  bool   `help:"Print the figures once, as text. So it is, too, where the output is no terminal."`
	Sort  string `enum:"rate,p99,errors,sent" default:"rate" help:"What routes are sorted by: rate, p99, errors or sent."`
	Route string `placeholder:"TEXT" help:"Only routes that have this text in their site, path or job."`

	cli.Flags `embed:""`
}

// TopExamples end the help of the verb.
func TopExamples() cli.Examples {
	return cli.Examples{
		"top": {
			"millrace top                               # live: q ends, s sorts, / chooses routes, arrows scroll",
			"millrace top --once --sort p99",
		},
	}
}

// Run shows the figures until a key ends it.
func (c *Top) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := c.FindAny(ctx)
	if err != nil {
		return err
	}
	first, err := ask(ctx, r)
	if err != nil {
		return err
	}
	view := screen{panels: first, sort: c.Sort, filter: c.Route, at: r.At, width: 80, height: 24}
	out, terminal := s.Out.(*os.File)
	if c.Once || !terminal || !live.IsTerminal(out) || os.Getenv("TERM") == "dumb" {
		view.width = live.Width(s.Out, plainWidth)
		if _, err := io.WriteString(s.Out, ansi.Strip(strings.Join(view.lines(), "\n"))+"\n"); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return nil
	}
	view.ask = func() figures {
		panels, err := ask(ctx, r)
		return figures{panels, err}
	}
	return watch(ctx, out, &view)
}

// plainWidth is how wide lines are where nobody knows how wide they may be.
const plainWidth = 120

// ask gets the dashboard's panels.
func ask(ctx context.Context, r *cli.Server) (panels []dashboard.Panel, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return panels, r.List(ctx, dashboard.Prefix+"all.json", "figures", &panels)
}

const (
	// every is how often the server is asked.
	every = time.Second
	// patience is how long it may take to answer.
	patience = 5 * time.Second
)

// figures are what a server has answered.
type figures struct {
	panels []dashboard.Panel
	err    error
}
