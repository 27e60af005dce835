package cachecmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/cache/control"
	"millrace/cache/purge"
	"millrace/cmd/internal/cli"
)

// Purge is `millrace cache purge`.
type Purge struct {
	URL    []string `arg:"" optional:"" help:"Forget all variants of this URL, its query included. A path alone is one of the server's own address."`
	Tag    []string `placeholder:"TAG" sep:"none" help:"Forget what the upstream has tagged so (Surrogate-Key, Cache-Tag). May be repeated."`
	Prefix []string `placeholder:"URL" sep:"none" help:"Forget every URL that begins so. May be repeated."`
	Host   []string `placeholder:"HOST" sep:"none" help:"Forget all of a host. May be repeated."`
	Glob   []string `placeholder:"PATTERN" sep:"none" help:"Forget every URL that the pattern matches: * is any run of characters, ? any one. May be repeated."`
	All    bool     `help:"Forget everything."`
	Route  string   `placeholder:"PATTERN" help:"Only in the cache of this route. Default: in all of them."`
	Hard   bool     `help:"Remove it. Otherwise it is stale: a changed answer is fetched, but what the upstream confirms, or cannot answer for, is served again."`

	Wait    bool          `help:"Return when all machines with the same shared store have purged it, or else name those that have not."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"How long --wait waits, at most 50s. Default: 10s."`

	cli.Flags `embed:""`
}

// Run purges, one selector after the other; each has taken effect when it
// returns.
func (c *Purge) Run(s cli.Streams) error {
	if len(c.selectors(cli.Site{})) == 0 {
		return cli.Usage("what to purge is missing", "name a URL, or --tag, --prefix, --host, --glob or --all; `millrace cache purge --help` has examples")
	}
	for _, text := range c.URL {
		if !strings.Contains(text, "/") {
			return cli.Usage(fmt.Sprintf("%q is not a URL", text), fmt.Sprintf("a URL is like http://127.0.0.1:8080/path, or /path alone; or is it --tag %s or --host %s?", text, text))
		}
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	r, err := find(ctx, c.Flags, slices.Concat(c.URL, c.Prefix, c.Glob)...)
	if err != nil {
		return err
	}
	at, err := r.Site(ctx)
	if err != nil {
		return err
	}
	for _, one := range c.selectors(at) {
		if err := one.Check(); err != nil {
			return cli.Usage(err.Error(), "`millrace cache purge --help` has examples")
		}
	}
	var problems []error // it holds here, but other machines may not know
	for i, one := range c.selectors(at) {
		unknown := i < len(c.URL) && c.unknown(ctx, caches(r), at.Asked(c.URL[i]))
		ask := control.Purge{Selector: one, Route: c.Route}
		if c.Wait {
			ask.Wait = c.Timeout.String()
		}
		_, err := caches(r).Purge(ctx, ask)
		if err != nil && !control.Unannounced(err) {
			return err
		}
		problems = append(problems, err)
		where := ""
		if c.Wait && err == nil {
			where = ", on all machines"
		}
		if _, err := fmt.Fprintf(s.Out, "purged %s%s\n", purged(one, unknown), where); err != nil {
			return err
		}
	}
	return errors.Join(problems...)
}

// selectors are what the command line names.
func (c *Purge) selectors(at cli.Site) (all []purge.Selector) {
	for _, text := range c.URL {
		all = append(all, purge.Selector{URL: at.Purged(text), Hard: c.Hard})
	}
	for _, text := range c.Prefix {
		all = append(all, purge.Selector{Prefix: at.Purged(text), Hard: c.Hard})
	}
	for _, text := range c.Tag {
		all = append(all, purge.Selector{Tag: text, Hard: c.Hard})
	}
	for _, text := range c.Host {
		all = append(all, purge.Selector{Host: text, Hard: c.Hard})
	}
	for _, text := range c.Glob {
		all = append(all, purge.Selector{Glob: text, Hard: c.Hard})
	}
	if c.All {
		all = append(all, purge.Selector{All: true, Hard: c.Hard})
	}
	return all
}

// unknown reports whether nothing is stored for a URL that a plain GET would find.
func (*Purge) unknown(ctx context.Context, at *control.Client, target string) bool {
	e, err := at.Explain(ctx, target, "", nil)
	return err == nil && e.Outcome == "miss" && e.Status == 0 && e.Variants == 0
}

// purged says what a selector covers. unknown: nothing of it was found.
func purged(s purge.Selector, unknown bool) string {
	how := ", softly: it is stale"
	switch {
	case unknown:
		how = ": nothing was stored for it"
	case s.Hard:
		how = ": it is gone"
	}
	switch {
	case s.All:
		return "everything" + how
	case s.Tag != "":
		return "the tag " + s.Tag + how
	case s.Prefix != "":
		return "all that begins with " + s.Prefix + how
	case s.Host != "":
		return "the host " + s.Host + how
	case s.Glob != "":
		return "all that matches " + s.Glob + how
	}
	return s.URL + how
}
