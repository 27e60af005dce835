package cachecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"millrace/cache/control"
	"millrace/cmd/internal/cli"
)

const (
	// maxDecisions is as many as a cache remembers.
	maxDecisions = 1024
	// followEvery is how often --follow asks. A busy server decides more than
	// maxDecisions in that time; a filter keeps what matters.
	followEvery = time.Second
)

// Log is `millrace cache log`.
type Log struct {
	Filter string `arg:"" optional:"" help:"Only decisions whose URL, outcome or reason contains this: miss, bypass, /api/."`
	Number int    `short:"n" default:"50" placeholder:"N" help:"How many. Default 50."`
	Follow bool   `short:"f" help:"Go on with what is decided from now on, until it is interrupted."`
	JSON   bool   `name:"json" help:"Print each as a line of JSON."`

	cli.Flags `embed:""`
}

// Run prints the ring log.
func (c *Log) Run(s cli.Streams) error {
	if c.Number < 1 || c.Number > maxDecisions {
		return cli.Usage(fmt.Sprintf("--number %d: between 1 and %d, which is what a cache remembers", c.Number, maxDecisions), "")
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := find(ctx, c.Flags, c.Filter)
	if err != nil {
		return err
	}
	var last []control.Decision
	for n := c.Number; ; n = maxDecisions {
		now, err := decisions(ctx, r, c.Filter, n)
		if ctx.Err() != nil && c.Follow {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.print(s.Out, unseen(now, last)); err != nil {
			return err
		}
		if !c.Follow {
			return nil
		}
		if len(now) > 0 {
			last = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
}

// decisions are the latest ones, oldest first.
func decisions(ctx context.Context, r *cli.Server, filter string, n int) (list []control.Decision, err error) {
	list, err = caches(r).Recent(ctx, filter, n)
	slices.SortStableFunc(list, func(a, b control.Decision) int { return a.Time.Compare(b.Time) })
	return list, err
}

// unseen are the decisions that the list before did not end with.
func unseen(now, before []control.Decision) []control.Decision {
	if len(before) == 0 {
		return now
	}
	newest := before[len(before)-1].Time
	return slices.DeleteFunc(slices.Clone(now), func(d control.Decision) bool {
		return d.Time.Before(newest) || slices.Contains(before, d)
	})
}

func (c *Log) print(w io.Writer, list []control.Decision) error {
	var b strings.Builder
	for _, d := range list {
		if c.JSON {
			line, err := encodeLine(d)
			if err != nil {
				return err
			}
			b.WriteString(line)
			continue
		}
		fmt.Fprintf(&b, "%s  %-9s %3d  %8s  %s %s", d.Time.Local().Format("15:04:05.000"), d.Outcome, d.Status, cli.Brief(d.Took), d.Method, d.URL)
		if d.Reason != "" {
			fmt.Fprintf(&b, "  (%s)", d.Reason)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func encodeLine(what any) (string, error) {
	text, err := json.Marshal(what)
	return string(text) + "\n", err
}
