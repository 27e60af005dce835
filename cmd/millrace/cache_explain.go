package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"millrace/cache/control"
)

// cacheExplainCommand is `millrace cache explain`.
type cacheExplainCommand struct {
	URL    string   `arg:"" help:"What would be asked for. A path alone is one of the server's own address."`
	Method string   `short:"X" default:"GET" placeholder:"METHOD" help:"How it would be asked for. Default GET."`
	Header []string `short:"H" sep:"none" placeholder:"HEADER" help:"A header that the request would have, as in 'Cookie: session=1'. May be repeated."`
	JSON   bool     `name:"json" help:"Print it as JSON."`

	remoteFlags `embed:""`
}

// Run asks the running cache; nothing is fetched for it.
func (c *cacheExplainCommand) Run(s streams) error {
	header, err := headerOf(c.Header)
	if err != nil {
		return err
	}
	if !isPage(c.URL) && !strings.HasPrefix(c.URL, "/") {
		return usageError{fmt.Sprintf("%q is no URL", c.URL), "write it as a client asks for it: http://127.0.0.1:8080/path, or /path alone"}
	}
	ctx, stop := untilInterrupted()
	defer stop()
	r, err := c.remote(ctx, hasCaches, c.URL)
	if err != nil {
		return err
	}
	at, err := r.site(ctx)
	if err != nil {
		return err
	}
	e, err := r.caches().Explain(ctx, at.asked(c.URL), c.Method, header)
	if err != nil {
		return err
	}
	if c.JSON {
		out := json.NewEncoder(s.out)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		return out.Encode(e)
	}
	return printExplanation(s.out, e)
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
		row("answer", fmt.Sprintf("%d, %s", e.Status, amount(e.Size)))
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
func seconds(d time.Duration) string { return brief(d.Truncate(time.Second)) }
