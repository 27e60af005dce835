package labcmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/lab"
	"millrace/lab/record"
	"millrace/lab/report"
)

// Compare is `millrace-lab compare`.
type Compare struct {
	Arms []string `arg:"" name:"arm" help:"NAME=URL of a server that runs, or NAME='command' that starts one, with {port} where its port goes. The first is what the others are held against."`

	Request  Request  `embed:""`
	Progress Progress `embed:""`

	Quick  bool          `help:"Within a minute. This is the default."`
	Full   bool          `help:"Longer slots and more blocks: some ten minutes, for differences of 1 % and less."`
	Delta  float64       `default:"1" placeholder:"PERCENT" help:"What counts as equal, in percent."`
	Differ string        `placeholder:"REASON" help:"Why the answers need not be the same; without it, different answers make the result void."`
	Path   string        `default:"/" placeholder:"PATH" help:"What to ask a started command for, without --paths."`
	Blocks []int         `placeholder:"N,N,N" help:"Judge after so many blocks, at most three times. Default 12,24,48, and 24,72,160 with --full, as long as something is undecided and there is time."`
	Slot   time.Duration `placeholder:"TIME" help:"How long one arm is measured in a block. Default 250ms, and 1s with --full."`
	Seed   uint64        `placeholder:"N" help:"Repeat the order of another run."`

	JSON     string `name:"json" placeholder:"FILE" complete:"file" help:"Keep the result in this file; millrace-lab report draws it again. - is the standard output; the summary then goes to the standard error."`
	HTML     string `name:"html" placeholder:"FILE" complete:"file" help:"Write a report."`
	Markdown string `placeholder:"FILE" complete:"file" help:"Write the report as Markdown."`
}

// Run compares.
func (c *Compare) Run(s cli.Streams) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	res, err := c.Progress.Measure(s, "compare "+strings.Join(c.Arms, " "), func(ctx context.Context, watch record.Watch) (*record.Result, error) {
		return lab.Compare(ctx, o, watch)
	})
	return Conclude(s, res, err, c.JSON == ToOutput || c.Progress.Events == ToOutput, func(res *record.Result) ([]string, error) {
		return keep(s, res, map[string]func(io.Writer, *record.Result) error{
			c.JSON: report.Write, c.HTML: report.HTML, c.Markdown: report.Markdown,
		})
	})
}

func (c *Compare) options() (lab.CompareOptions, error) {
	o := lab.CompareOptions{Mode: record.Quick, Delta: c.Delta / 100, Differ: c.Differ, Seed: c.Seed, Blocks: c.Blocks, Slot: c.Slot}
	if c.Quick && c.Full {
		return o, cli.Usage("--quick and --full: only one of them", "leave one of them out")
	}
	if c.Full {
		o.Mode = record.Full
	}
	if len(c.Arms) < 2 {
		return o, cli.Usage("one server is nothing to compare", "millrace-lab compare A=http://127.0.0.1:8080/ B=http://127.0.0.1:8081/")
	}
	var err error
	if o.Load, err = c.Request.config(); err != nil {
		return o, err
	}
	for _, text := range c.Arms {
		arm, err := lab.ParseArm(text)
		if err != nil {
			return o, cli.Usage(err.Error(), "millrace-lab compare A=http://127.0.0.1:8080/ B='./server --listen 127.0.0.1:{port}'")
		}
		if arm.Path = c.Path; !strings.HasPrefix(arm.Path, "/") {
			return o, cli.Usage(fmt.Sprintf("the path %q does not begin with /", c.Path), "--path /index.html")
		}
		arm.URL = c.Request.target(arm.URL)
		o.Arms = append(o.Arms, arm)
	}
	return o, nil
}
