// Package cachecmd has the verbs about the cache: the one that serves, and those
// that talk to a running server's.
package cachecmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/cache"
	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/servecmd"
	"millrace/internal/config"
	"millrace/store/disk"
)

// Command is `millrace cache`: the verb itself, which serves, and the verbs
// that talk to a running server.
type Command struct {
	Serve   Serve   `cmd:"" default:"withargs" help:"Put a cache in front of a slow API."`
	Purge   Purge   `cmd:"" help:"Make the running cache forget answers: they are stale, or gone with --hard."`
	Explain Explain `cmd:"" help:"Say what the running cache would answer to a request, and why."`
	Warm    Warm    `cmd:"" help:"Ask the running server for many URLs, so that visitors find them in the cache."`
	Log     Log     `cmd:"" help:"Print the running cache's latest decisions, youngest last."`
}

// Serve is `millrace cache UPSTREAM`. The keys that begin with a
// job are those of its one route.
type Serve struct {
	Upstream []string `arg:"" optional:"" env:"MILLRACE_CACHE_UPSTREAM" help:"What to put the cache in front of: http://host:port, https://host, h2c://host:port or unix:/path. host:port and :port are taken as http://. Several share the load."`

	TTL          cli.Lifetime `name:"ttl" placeholder:"TIME" key:"cache.ttl" env:"MILLRACE_CACHE_TTL" help:"How long to keep answers that do not say so themselves. Without it they are asked for once at a time, but not kept."`
	StaleIfError cli.Lifetime `placeholder:"TIME" key:"cache.stale_if_error" env:"MILLRACE_CACHE_STALE_IF_ERROR" help:"How long to serve a stale answer when the upstream fails. Default 1h, with other presets 24h or not at all."`
	CORS         []string     `name:"cors" placeholder:"ORIGIN" key:"cache.cors.origins" env:"MILLRACE_CACHE_CORS" help:"Let pages of this origin read the answers: https://blog.example, https://*.example.org, or * for any. May be repeated."`
	Preset       Preset       `placeholder:"NAME" values:"api,rfc9111,assets" key:"cache.preset" env:"MILLRACE_CACHE_PRESET" help:"Which habits to start from: api, rfc9111 or assets. Default api."`
	Memory       cli.Size     `placeholder:"SIZE" key:"cache.memory" env:"MILLRACE_CACHE_MEMORY" help:"How much memory answers may take. Default 256MiB."`
	Disk         string       `placeholder:"DIR" complete:"dir" key:"cache.disk" env:"MILLRACE_CACHE_DISK" help:"Keep answers in this folder, too: they outlive memory and a restart."`
	DiskSize     cli.Size     `placeholder:"SIZE" key:"cache.disk_size" env:"MILLRACE_CACHE_DISK_SIZE" help:"How much of the disk they may take. Default 10GiB."`
	Shared       string       `placeholder:"URL" key:"cache.shared" env:"MILLRACE_CACHE_SHARED" help:"Share answers and purges with other machines through this Redis or Valkey: redis://host:6379. With ?prefix=NAME it is for one of several sites."`
	DropTracking bool         `key:"cache.key.drop_tracking" env:"MILLRACE_CACHE_DROP_TRACKING" help:"Requests that differ only in utm_source, gclid, fbclid and the like get the same answer."`
	SortQuery    bool         `key:"cache.key.sort_query" env:"MILLRACE_CACHE_SORT_QUERY" help:"Requests that differ only in the order of their query get the same answer."`
	ConfigJSON   string       `name:"config-json" placeholder:"FILE" complete:"file" env:"MILLRACE_CACHE_CONFIG_JSON" help:"Do what this config of the published comment cache says (HostPort, Stacosys, CorsOrigin)."`

	servecmd.Flags `embed:""`
}

// Preset is one of the cache's presets.
type Preset string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Preset) UnmarshalText(text []byte) error {
	*p = Preset(text)
	if presets := []string{"api", "rfc9111", "assets"}; !slices.Contains(presets, string(text)) {
		return fmt.Errorf("%q is not a preset: use %s", text, strings.Join(presets, ", "))
	}
	return nil
}

// Run serves until a signal ends it.
func (c *Serve) Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals) error {
	what, err := c.source(cli.Selected(ctx).Parent)
	if err != nil {
		return err
	}
	return what.Serve(cli.Settings(ctx), s, taken)
}

// source decides what the cache is in front of. group has the other verbs.
func (c *Serve) source(group *kong.Node) (servecmd.Source, error) {
	switch {
	case len(c.Upstream) > 0 && c.ConfigJSON != "":
		return servecmd.Source{}, cli.Usage(
			"an upstream and a config: only one of them can say what to put the cache in front of",
			fmt.Sprintf("`millrace cache %s` or `millrace cache --config-json %s`", strings.Join(c.Upstream, " "), c.ConfigJSON),
		)
	case c.ConfigJSON != "":
		return published(c.ConfigJSON), nil
	case len(c.Upstream) == 0:
		return servecmd.Source{}, cli.Usage("what to put the cache in front of is missing", "for example `millrace cache http://127.0.0.1:5000`; `millrace cache --help` lists what there is")
	}
	var all cli.Upstreams
	for _, text := range c.Upstream {
		url, err := config.Upstream(text)
		if err != nil {
			return servecmd.Source{}, notAnUpstream(text, err, group)
		}
		all = append(all, cli.Upstream{URL: url, Typed: text})
	}
	return servecmd.Source{
		Load: func(flags []config.Setting) (*config.Config, error) {
			cfg := config.ForCache()
			return cfg, cfg.Check(append(flags, all.Setting("cache.to"))...)
		},
		Subject: func(*config.Config) string { return "is a cache in front of " + all.String() },
		Rows:    rows,
	}, nil
}

// published is what a config of the published comment cache says.
func published(file string) servecmd.Source {
	return servecmd.Source{
		File: file,
		Load: func(flags []config.Setting) (*config.Config, error) { return config.Published(file, flags...) },
		Subject: func(cfg *config.Config) string {
			return fmt.Sprintf("is a cache in front of %s, as %s says", cfg.Sites[0].Routes["/"].Cache.To[0], file)
		},
		Rows: rows,
	}
}

// notAnUpstream says what was meant by a word that is not an upstream: perhaps
// another verb.
func notAnUpstream(text string, err error, group *kong.Node) error {
	if other := cli.OtherVerb(text, group); other != nil {
		return other
	}
	message, hint, _ := strings.Cut(err.Error(), "; ")
	return cli.Usage(message, hint)
}

// rows say what the one cache of `millrace cache` does, and what to type to
// work with it.
func rows(up servecmd.Up) [][2]string {
	o := up.Config.Sites[0].Routes["/"].Cache
	preset := cmp.Or(o.Preset, "api")
	ttl := cli.Brief(o.TTL) + ", for answers that give none themselves"
	if o.TTL == 0 {
		ttl = "none: answers that give none themselves are joined, but not kept; --ttl 5m keeps them"
	}
	memory := cmp.Or(o.Memory, cache.DefaultMemory).String() + " of memory"
	if o.Disk != "" {
		memory += fmt.Sprintf(", %s in %s", cmp.Or(o.DiskSize, disk.DefaultLimit), o.Disk)
	}
	if o.Shared.URL != "" {
		memory += ", shared with other machines"
	}
	out := [][2]string{{"preset", preset}, {"ttl", ttl}, {"keeps", memory}}
	if len(o.CORS.Origins) > 0 {
		out = append(out, [2]string{"cors", strings.Join(o.CORS.Origins, " ")})
	}
	if up.Admin == "" {
		return append(out, [2]string{"purge", "not possible without the admin listener"})
	}
	url, option := strings.TrimSuffix(up.URLs[0], "/")+"/", ""
	if strings.HasPrefix(url, "unix:") {
		url = "http://localhost/"
	}
	if !cli.Alone() {
		option = " --admin " + up.Admin // which of them is meant has to be said
	}
	return append(out,
		[2]string{"purge", "millrace cache purge --all" + option},
		[2]string{"why", "millrace cache explain " + url + option})
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	return cli.Examples{
		"cache": {
			"millrace cache http://127.0.0.1:5000 --ttl 5m         # http://127.0.0.1:8080",
			"millrace cache :5000 --ttl 30s -l :80                 # to everyone, port 80",
			"millrace cache :5000 --cors https://blog.example      # for a page of another site",
			"millrace cache unix:/run/app.sock --disk /var/cache/millrace",
			"millrace cache purge --all                            # while it runs",
		},
		"cache purge": {
			"millrace cache purge https://example.org/api/posts/7",
			"millrace cache purge --tag post-7",
			"millrace cache purge --prefix https://example.org/api/",
			"millrace cache purge --all --hard --wait",
		},
		"cache explain": {
			"millrace cache explain http://127.0.0.1:8080/posts",
			"millrace cache explain http://127.0.0.1:8080/posts -H 'Cookie: session=1'",
		},
		"cache warm": {
			"millrace cache warm https://example.org/sitemap.xml",
			"millrace cache warm urls.txt -j 8 --rate 50",
		},
		"cache log": {"millrace cache log miss -n 20", "millrace cache log -f"},
	}
}
