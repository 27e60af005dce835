package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// cacheCommand is `millrace cache`: the verb itself, which serves, and the verbs
// that talk to a running server.
type cacheCommand struct {
	Serve   cacheServeCommand   `cmd:"" default:"withargs" help:"Put a cache in front of a slow API."`
	Purge   cachePurgeCommand   `cmd:"" help:"Make the running cache forget answers: they are stale, or gone with --hard."`
	Explain cacheExplainCommand `cmd:"" help:"Say what the running cache would answer to a request, and why."`
	Warm    cacheWarmCommand    `cmd:"" help:"Ask the running server for many URLs, so that visitors find them in the cache."`
	Log     cacheLogCommand     `cmd:"" help:"Print the running cache's latest decisions, youngest last."`
}

// cacheServeCommand is `millrace cache UPSTREAM`. The keys that begin with a
// job are those of its one route.
type cacheServeCommand struct {
	Upstream []string `arg:"" optional:"" env:"MILLRACE_CACHE_UPSTREAM" help:"What to put the cache in front of: http://host:port, https://host, h2c://host:port or unix:/path. host:port and :port are taken as http://. Several share the load."`

	TTL          lifetime    `name:"ttl" placeholder:"TIME" key:"cache.ttl" env:"MILLRACE_CACHE_TTL" help:"How long to keep answers that do not say so themselves. Without it they are asked for once at a time, but not kept."`
	StaleIfError lifetime    `placeholder:"TIME" key:"cache.stale_if_error" env:"MILLRACE_CACHE_STALE_IF_ERROR" help:"How long to serve a stale answer when the upstream fails. Default 1h, with other presets 24h or not at all."`
	CORS         []string    `name:"cors" placeholder:"ORIGIN" key:"cache.cors.origins" env:"MILLRACE_CACHE_CORS" help:"Let pages of this origin read the answers: https://blog.example, https://*.example.org, or * for any. May be repeated."`
	Preset       cachePreset `placeholder:"NAME" values:"api,rfc9111,assets" key:"cache.preset" env:"MILLRACE_CACHE_PRESET" help:"Which habits to start from: api, rfc9111 or assets. Default api."`
	Memory       size        `placeholder:"SIZE" key:"cache.memory" env:"MILLRACE_CACHE_MEMORY" help:"How much memory answers may take. Default 256MiB."`
	Disk         string      `placeholder:"DIR" complete:"dir" key:"cache.disk" env:"MILLRACE_CACHE_DISK" help:"Keep answers in this folder, too: they outlive memory and a restart."`
	DiskSize     size        `placeholder:"SIZE" key:"cache.disk_size" env:"MILLRACE_CACHE_DISK_SIZE" help:"How much of the disk they may take. Default 10GiB."`
	Shared       string      `placeholder:"URL" key:"cache.shared" env:"MILLRACE_CACHE_SHARED" help:"Share answers and purges with other machines through this Redis or Valkey: redis://host:6379."`
	DropTracking bool        `key:"cache.key.drop_tracking" env:"MILLRACE_CACHE_DROP_TRACKING" help:"Requests that differ only in utm_source, gclid, fbclid and the like get the same answer."`
	SortQuery    bool        `key:"cache.key.sort_query" env:"MILLRACE_CACHE_SORT_QUERY" help:"Requests that differ only in the order of their query get the same answer."`
	ConfigJSON   string      `name:"config-json" placeholder:"FILE" complete:"file" env:"MILLRACE_CACHE_CONFIG_JSON" help:"Do what this config of the published comment cache says (HostPort, Stacosys, CorsOrigin)."`

	servingFlags `embed:""`
}

// Run serves until a signal ends it: see the package comment.
func (c *cacheServeCommand) Run(ctx *kong.Context, s streams, taken *signals) error {
	what, err := c.source(ctx.Selected().Parent)
	if err != nil {
		return err
	}
	return what.serve(ctx, s, taken)
}

// source decides what the cache is in front of. group has the other verbs.
func (c *cacheServeCommand) source(group *kong.Node) (source, error) {
	switch {
	case len(c.Upstream) > 0 && c.ConfigJSON != "":
		return source{}, usageError{
			"an upstream and a config: only one of them can say what to put the cache in front of",
			fmt.Sprintf("`millrace cache %s` or `millrace cache --config-json %s`", strings.Join(c.Upstream, " "), c.ConfigJSON),
		}
	case c.ConfigJSON != "":
		return source{file: c.ConfigJSON, published: true}, nil
	case len(c.Upstream) == 0:
		return source{}, usageError{"what to put the cache in front of is missing", "for example `millrace cache http://127.0.0.1:5000`; `millrace cache --help` lists what there is"}
	}
	var out source
	for _, text := range c.Upstream {
		url, err := config.Upstream(text)
		if err != nil {
			return source{}, notAnUpstream(text, err, group)
		}
		out.cache = append(out.cache, upstream{url, text})
	}
	return out, nil
}

// notAnUpstream says what was meant by a word that is no upstream: perhaps
// another verb.
func notAnUpstream(text string, err error, group *kong.Node) error {
	if other := otherVerb(text, group); other != nil {
		return other
	}
	message, hint, _ := strings.Cut(err.Error(), "; ")
	return usageError{message, hint}
}

// otherVerb is an error that names the verb of a group which was probably meant
// by a word, nil if there is none.
func otherVerb(text string, group *kong.Node) error {
	var names []string
	for _, n := range group.Children {
		if n != defaultOf(group) {
			names = append(names, n.Name)
		}
	}
	near := config.Nearest(text, names)
	if near == "" {
		return nil
	}
	return usageError{
		fmt.Sprintf("there is no command %q, did you mean %q?", group.Name+" "+text, group.Name+" "+near),
		fmt.Sprintf("`millrace %s --help` lists what there is", group.Name),
	}
}

// upstream is one address that a cache is in front of.
type upstream struct {
	url   string
	typed string
}

// upstreamSetting puts the upstreams into the config as if a flag had said so.
func upstreamSetting(key string, all []upstream) config.Setting {
	s := config.Setting{Key: key, From: "UPSTREAM"}
	for _, u := range all {
		s.Values = append(s.Values, u.url)
	}
	return s
}

// String is the address, and what it was made from.
func (u upstream) String() string {
	if u.url == u.typed {
		return u.url
	}
	return fmt.Sprintf("%s (that is what %q is taken for)", u.url, u.typed)
}

// cacheExamples end the help of the verbs.
func cacheExamples(verb string) []string {
	switch verb {
	case "cache":
		return []string{
			"millrace cache http://127.0.0.1:5000 --ttl 5m         # http://127.0.0.1:8080",
			"millrace cache :5000 --ttl 30s -l :80                 # to everyone, port 80",
			"millrace cache :5000 --cors https://blog.example      # for a page of another site",
			"millrace cache unix:/run/app.sock --disk /var/cache/millrace",
			"millrace cache purge --all                            # while it runs",
		}
	case "cache purge":
		return []string{
			"millrace cache purge https://example.org/api/posts/7",
			"millrace cache purge --tag post-7",
			"millrace cache purge --prefix https://example.org/api/",
			"millrace cache purge --all --hard",
		}
	case "cache explain":
		return []string{
			"millrace cache explain http://127.0.0.1:8080/posts",
			"millrace cache explain http://127.0.0.1:8080/posts -H 'Cookie: session=1'",
		}
	case "cache warm":
		return []string{
			"millrace cache warm https://example.org/sitemap.xml",
			"millrace cache warm urls.txt -j 8 --rate 50",
		}
	case "cache log":
		return []string{"millrace cache log miss -n 20", "millrace cache log -f"}
	}
	return nil
}

// defaultOf is the verb that runs when a group is named alone, or nil.
func defaultOf(n *kong.Node) *kong.Node {
	if i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Tag != nil && c.Tag.Default != "" }); i >= 0 {
		return n.Children[i]
	}
	return nil
}
