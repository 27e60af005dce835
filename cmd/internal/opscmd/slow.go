package opscmd

// This file has the verb that shows the slow requests of a running server.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/ops/slow"
)

// Slow is `millrace slow`.
type Slow struct {
	Number uint64 `arg:"" optional:"" help:"The one whose steps are printed, by its number in the list."`
	Trace  string `placeholder:"FILE" complete:"file" help:"Save what the Go runtime did at that time in this file, for \"go tool trace FILE\". Needs slow_requests.recorder in the config."`
	JSON   bool   `name:"json" help:"Print as JSON, with all steps."`

	cli.Flags `embed:""`
}

// SlowExamples end the help of the verb.
func SlowExamples() cli.Examples {
	return cli.Examples{
		"slow": {
			"millrace slow                              # what took far longer than usual, and what it waited for",
			"millrace slow 12                           # all steps of number 12",
			"millrace slow 12 --trace slow.trace",
		},
	}
}

// Run asks the running server.
func (c *Slow) Run(s cli.Streams) error {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := c.FindAny(ctx)
	if err != nil {
		return err
	}
	var list slow.List
	if err := r.List(ctx, slow.Prefix, "slow requests", &list); err != nil {
		return err
	}
	if c.Number == 0 {
		return c.all(s, list)
	}
	for i := range list.Entries {
		if e := &list.Entries[i]; e.Number == c.Number {
			return c.one(ctx, s, r, e, list.Recorder)
		}
	}
	return cli.Failure(fmt.Errorf("the server does not have number %d (any more)", c.Number), "`millrace slow` lists those that it has")
}

func (c *Slow) all(s cli.Streams, list slow.List) error {
	switch {
	case c.Trace != "":
		return cli.Failure(errors.New("--trace needs the number of a request"), "`millrace slow` lists them: millrace slow 12 --trace "+c.Trace)
	case c.JSON:
		return s.WriteJSON(list)
	case list.Off:
		s.Print("Slow requests are not kept: the config has slow_requests: off.\n")
		return nil
	case len(list.Entries) == 0:
		s.Print("No request has taken far longer than its route's others.\n")
		return nil
	}
	return writeSlow(s.Out, func(b *strings.Builder) { table(b, list) })
}

// writeSlow prints what a function makes.
func writeSlow(out io.Writer, text func(*strings.Builder)) error {
	var b strings.Builder
	text(&b)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func table(out *strings.Builder, list slow.List) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NO.\tTIME\tTOOK\tP99\tSTATUS\tREQUEST\tMOSTLY")
	for i := range list.Entries {
		e := &list.Entries[i]
		_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Number, e.Began.Local().Format("15:04:05"), cli.Brief(e.Took), p99(e), e.Status,
			short(e.Method+" "+e.Host+e.Target), mostly(e))
	}
	_ = w.Flush() // into memory
	if more := list.Seen - min(list.Seen, uint64(len(list.Entries))); more > 0 {
		fmt.Fprintf(out, "\n%d more were not kept, or not for so long.\n", more)
	}
}

func p99(e *slow.Entry) string {
	if e.P99 == 0 {
		return "-"
	}
	return cli.Brief(e.P99)
}

// longest is how much of a request's address the list has.
const longest = 60

func short(s string) string {
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return s
}

// mostly says what a request spent most of its time with.
func mostly(e *slow.Entry) string {
	step, own, ok := e.Mostly()
	if !ok {
		return cli.Brief(own) + " in this server itself"
	}
	text := cli.Brief(own) + " " + slow.About(step.Kind)
	if step.Note != "" {
		text += ": " + step.Note
	}
	return text
}

// one prints all of a request.
func (c *Slow) one(ctx context.Context, s cli.Streams, r *cli.Server, e *slow.Entry, recorder string) error {
	if c.Trace != "" {
		if err := c.save(ctx, r, e, recorder); err != nil {
			return err
		}
		s.Print("%s written: go tool trace %s\n", c.Trace, c.Trace)
	}
	if c.JSON {
		return s.WriteJSON(e)
	}
	return writeSlow(s.Out, func(b *strings.Builder) { details(b, e) })
}

func details(out *strings.Builder, e *slow.Entry) {
	fmt.Fprintf(out, "%s %s://%s%s\n", e.Method, e.Scheme, e.Host, e.Target)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { _, _ = fmt.Fprintf(w, "  %s\t%s\n", name, value) }
	row("answer", fmt.Sprintf("%d, %s, by %s over the %s road, %s", e.Status, cli.Amount(e.Bytes), e.Job, e.Lane, e.Proto))
	row("route", e.Site+" "+e.Route)
	row("client", strings.TrimSpace(e.Client+"  "+e.Agent))
	row("came", e.Began.Local().Format("2006-01-02 15:04:05.000"))
	took := cli.Brief(e.Took)
	if e.P99 > 0 {
		took += fmt.Sprintf(", %.0f times the p99 of its route (%s)", float64(e.Took)/float64(e.P99), cli.Brief(e.P99))
	}
	row("took", took)
	if e.ID != "" {
		row("id", e.ID)
	}
	if e.Recorded > 0 {
		row("runtime", fmt.Sprintf("%s recorded: millrace slow %d --trace FILE", cli.Amount(int64(e.Recorded)), e.Number))
	}
	_ = w.Flush() // into memory
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range e.Steps {
		step := &e.Steps[i]
		lasted := "not ended"
		if step.Took >= 0 {
			lasted = cli.Brief(step.Took)
		}
		what := strings.Repeat("  ", e.Depth(i)) + slow.About(step.Kind)
		note := strings.TrimSpace(step.Note + "  " + step.Error)
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", cli.Brief(step.Began), bar(step.Began, step.Took, e.Took), lasted, what, note)
	}
	_ = w.Flush() // into memory
	if len(e.Steps) == 0 {
		fmt.Fprintln(out, "  No step is known: the time was spent in this server itself.")
	}
	if e.Lost > 0 {
		fmt.Fprintf(out, "  and %d steps more\n", e.Lost)
	}
}

// bar draws a step's place in the request's time.
func bar(began, took, all time.Duration) string {
	const width = 24
	if took < 0 {
		took = all - began
	}
	at := func(d time.Duration) int {
		return min(width, max(0, int(float64(d)/float64(max(all, 1))*width+0.5)))
	}
	from, to := at(began), at(began+took)
	if from == to && to < width {
		to++
	} else if from == to {
		from--
	}
	return strings.Repeat("·", from) + strings.Repeat("█", to-from) + strings.Repeat("·", width-to)
}

// maxTrace is more than a trace of the recorder has, in bytes.
const maxTrace = 64 << 20

// save writes the recorder's trace to a file.
func (c *Slow) save(ctx context.Context, r *cli.Server, e *slow.Entry, recorder string) error {
	if e.Recorded == 0 {
		hint := "the recorder keeps one trace a minute, and the last two"
		if recorder != "on" {
			hint = "it is " + recorder + ": slow_requests: {recorder: true} in the config switches it on"
		}
		return cli.Failure(fmt.Errorf("the runtime's recorder has nothing of request %d", e.Number), hint)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s%s%d/trace", r.Base, slow.Prefix, e.Number), nil)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	resp, err := r.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server does not have the trace any more: it says %s", resp.Status)
	}
	f, err := os.OpenFile(c.Trace, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("saving the trace: %w", err)
	}
	_, err = io.Copy(f, io.LimitReader(resp.Body, maxTrace))
	if err = errors.Join(err, f.Close()); err != nil {
		if info, e := os.Lstat(c.Trace); e == nil && info.Mode().IsRegular() { // not /dev/stdout
			_ = os.Remove(c.Trace) // half a trace is of no use
		}
		return fmt.Errorf("saving the trace: %w", err)
	}
	return nil
}
