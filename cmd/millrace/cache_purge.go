package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"millrace/cache/purge"
)

// cachePurgeCommand is `millrace cache purge`.
type cachePurgeCommand struct {
	URL    []string `arg:"" optional:"" help:"Forget all variants of this URL, its query included. A path alone is one of the server's own address."`
	Tag    []string `placeholder:"TAG" sep:"none" help:"Forget what the upstream has tagged so (Surrogate-Key, Cache-Tag). May be repeated."`
	Prefix []string `placeholder:"URL" sep:"none" help:"Forget every URL that begins so. May be repeated."`
	Host   []string `placeholder:"HOST" sep:"none" help:"Forget all of a host. May be repeated."`
	Glob   []string `placeholder:"PATTERN" sep:"none" help:"Forget every URL that the pattern matches: * is any run of characters, ? any one. May be repeated."`
	All    bool     `help:"Forget everything."`
	Hard   bool     `help:"Remove it. Otherwise it is stale: a changed answer is fetched, but what the upstream confirms, or cannot answer for, is served again."`

	remoteFlags `embed:""`
}

// Run purges, one selector after the other; each has taken effect when it
// returns.
func (c *cachePurgeCommand) Run(s streams) error {
	if len(c.selectors("")) == 0 {
		return usageError{"what to purge is missing", "name a URL, or --tag, --prefix, --host, --glob or --all; `millrace cache purge --help` has examples"}
	}
	ctx, stop := untilInterrupted()
	defer stop()
	r, err := c.remote()
	if err != nil {
		return err
	}
	home := ""
	for _, text := range append(c.URL, c.Prefix...) {
		if strings.HasPrefix(text, "/") {
			if home, err = r.home(ctx); err != nil {
				return err
			}
			break
		}
	}
	for _, one := range c.selectors(home) {
		if err := one.Check(); err != nil {
			return usageError{err.Error(), "`millrace cache purge --help` has examples"}
		}
	}
	for _, one := range c.selectors(home) {
		if err := r.call(ctx, http.MethodPost, "/cache/purge", one, nil); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.out, "purged %s\n", purged(one)); err != nil {
			return err
		}
	}
	return nil
}

// selectors are what the command line names; home is before a path alone.
func (c *cachePurgeCommand) selectors(home string) (all []purge.Selector) {
	for _, text := range c.URL {
		all = append(all, purge.Selector{URL: absoluteURL(text, home), Hard: c.Hard})
	}
	for _, text := range c.Prefix {
		all = append(all, purge.Selector{Prefix: absoluteURL(text, home), Hard: c.Hard})
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

// purged says what a selector covers.
func purged(s purge.Selector) string {
	how := ", softly: it is stale"
	if s.Hard {
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

// absoluteURL puts the server's own address before a path alone.
func absoluteURL(text, home string) string {
	if strings.HasPrefix(text, "/") {
		return home + text
	}
	return text
}

// home is the server's own address, without a slash at its end.
func (r *remote) home(ctx context.Context) (string, error) {
	addrs, err := r.addrs(ctx)
	if err != nil {
		return "", err
	}
	f, err := newFront(addrs)
	if err != nil {
		return "", err
	}
	return f.home, nil
}
