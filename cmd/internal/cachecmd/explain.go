package cachecmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"millrace/cache/control"
	"millrace/cmd/internal/cli"
)

// Explain is `millrace cache explain`.
type Explain struct {
	URL    string   `arg:"" help:"What would be asked for. A path alone is one of the server's own address."`
	Method string   `short:"X" default:"GET" placeholder:"METHOD" help:"How it would be asked for. Default GET."`
	Header []string `short:"H" sep:"none" placeholder:"HEADER" help:"A header that the request would have, as in 'Cookie: session=1'. May be repeated."`
	JSON   bool     `name:"json" help:"Print it as JSON."`

	cli.Flags `embed:""`
}

// Run asks the running cache; nothing is fetched for it.
func (c *Explain) Run(s cli.Streams) error {
	header, err := headerOf(c.Header)
	if err != nil {
		return err
	}
	if !isPage(c.URL) && !strings.HasPrefix(c.URL, "/") {
		return cli.Usage(fmt.Sprintf("%q is not a URL", c.URL), "write it as a client asks for it: http://127.0.0.1:8080/path, or /path alone")
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := find(ctx, c.Flags, c.URL)
	if err != nil {
		return err
	}
	at, err := r.Site(ctx)
	if err != nil {
		return err
	}
	e, err := caches(r).Explain(ctx, at.Asked(c.URL), c.Method, header)
	if err != nil {
		return err
	}
	if c.JSON {
		return s.WriteJSON(e)
	}
	return printExplanation(s.Out, e)
}

// printExplanation writes one fact on a line, names in a column.
func printExplanation(w io.Writer, e control.Explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", e.URL, e.Outcome)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name, text)
		}
	}
	row("why", e.Reason)
	row("hint", e.Hint)
	row("route", e.Route)
	row("rule", e.Rule)
	row("key", fmt.Sprintf("%q", e.Key))
	row("where", e.Tier)
	if e.Status != 0 {
		row("answer", fmt.Sprintf("%d, %s", e.Status, cli.Amount(e.Size)))
		row("age", seconds(e.Age))
		left := seconds(e.TTL) + " left"
		if e.TTL <= 0 {
			left = "over since " + seconds(-e.TTL)
		}
		if e.Source != "" {
			left += ", by " + e.Source
		}
		row("ttl", left)
		row("stale", staleness(e))
	}
	row("vary", strings.Join(e.Vary, ", "))
	if e.Variants > 0 {
		row("variants", fmt.Sprint(e.Variants))
	}
	row("tags", strings.Join(e.Tags, " "))
	_, err := io.WriteString(w, b.String())
	return err
}

// staleness says for how long a stale answer may be served.
func staleness(e control.Explanation) string {
	var parts []string
	if e.StaleWhileRevalidate > 0 {
		parts = append(parts, seconds(e.StaleWhileRevalidate)+" while it is refreshed")
	}
	if e.StaleIfError > 0 {
		parts = append(parts, seconds(e.StaleIfError)+" when the upstream fails")
	}
	return strings.Join(parts, ", ")
}

// seconds is a duration as caches count: no finer.
func seconds(d time.Duration) string { return cli.Brief(d.Truncate(time.Second)) }
