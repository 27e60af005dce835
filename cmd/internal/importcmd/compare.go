package importcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/importer/apache"
	"millrace/importer/caddy"
	"millrace/importer/compare"
	"millrace/importer/draft"
	"millrace/importer/nginx"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/store"
)

// Compare is `millrace compare-config`.
type Compare struct {
	Nginx  string   `placeholder:"FILE" complete:"file" help:"The config of nginx to compare with."`
	Caddy  string   `placeholder:"FILE" complete:"file" help:"The Caddyfile to compare with."`
	Apache string   `placeholder:"FILE" complete:"file" help:"The config of Apache, or the .htaccess, to compare with."`
	Config string   `short:"c" placeholder:"FILE" complete:"file" help:"The config of Millrace. Default: what millrace import would write."`
	Log    string   `placeholder:"FILE" complete:"file" help:"An access log: its GET and HEAD requests are asked for as well, on every site."`
	Host   []string `placeholder:"NAME" help:"Ask for this host alone. May be repeated."`
	Limit  int      `default:"1000" placeholder:"N" help:"How many paths of each site are asked for at most. Default 1000."`
	Strict bool     `help:"Show harmless differences, too."`
	Binary string   `placeholder:"FILE" complete:"file" help:"The nginx, Caddy or Apache to run. Default nginx, caddy or apache2."`
	Prefix string   `default:"/usr/share/nginx" placeholder:"DIR" complete:"dir" help:"The folder that nginx's relative paths are in, as nginx -V says (--prefix). Default /usr/share/nginx."`

	ApacheOptions `embed:""`
}

// comparison is one run.
type comparison struct {
	Compare
	streams cli.Streams
	dir     string // temporary
	theirs  *compare.Server
	config  *config.Config
	plain   string // our addresses
	secure  string
	asked   int
	found   [compare.Default][]found // answers that differ, by their rank
	known   map[string]int           // answers that differ by a default
}

// found is an answer that differs.
type found struct {
	url         string
	differences []compare.Difference
}

// Run starts both servers on loopback ports, asks them the same, and shows each
// difference.
func (c *Compare) Run(s cli.Streams) (err error) {
	if err := c.oneModel(); err != nil {
		return err
	}
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	dir, err := os.MkdirTemp("", "millrace-compare-")
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &comparison{Compare: *c, streams: s, dir: dir, known: map[string]int{}}
	cert, key, err := compare.SelfSigned(dir, []string{"localhost"})
	if err != nil {
		return err //nolint:wrapcheck // says what it was doing
	}
	if r.theirs, err = r.model(ctx, cert, key); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.theirs.Stop()) }()
	return r.run(ctx)
}

// oneModel checks that one server to compare with is named.
func (c *Compare) oneModel() error {
	named := slices.DeleteFunc([]string{c.Nginx, c.Caddy, c.Apache}, func(file string) bool { return file == "" })
	if len(named) != 1 {
		return cli.Usage("a config to compare with is needed, and one only", "--nginx=FILE, --caddy=FILE or --apache=FILE")
	}
	return nil
}

// model starts the server to compare with, and prepares ours.
func (r *comparison) model(ctx context.Context, cert, key string) (*compare.Server, error) {
	switch {
	case r.Caddy != "":
		return r.caddy(ctx, cert, key)
	case r.Apache != "":
		return r.apache(ctx, cert, key)
	}
	name, err := filepath.Abs(r.Nginx)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	list, err := nginx.Parse(name, draft.Files{Read: os.ReadFile, Glob: filepath.Glob})
	if err != nil {
		return nil, cli.Failure(err, "does nginx take it? nginx -t -c "+r.Nginx)
	}
	node, report := nginx.Translate(list, nginx.Options{Dir: filepath.Dir(name), Prefix: r.Prefix})
	if err := r.ours(node, report, name, cert, key); err != nil {
		return nil, err
	}
	theirs, err := compare.StartNginx(ctx, list, compare.NginxOptions{Binary: r.Binary, Prefix: r.Prefix, Dir: filepath.Dir(name), Cert: cert, Key: key})
	if err != nil {
		return nil, cli.Failure(err, "nginx runs with this config, but other ports: does nginx -t -c "+r.Nginx+" take it?")
	}
	return theirs, nil
}

func (r *comparison) caddy(ctx context.Context, cert, key string) (*compare.Server, error) {
	name, err := filepath.Abs(r.Caddy)
	if err != nil {
		return nil, fmt.Errorf("reading the Caddyfile: %w", err)
	}
	list, err := caddy.Parse(name, draft.Files{Read: os.ReadFile, Glob: filepath.Glob, Env: os.Getenv})
	if err != nil {
		return nil, cli.Failure(err, "does Caddy take it? caddy validate --config "+r.Caddy)
	}
	addresses := caddy.Addresses(list)
	node, report := caddy.Translate(list, caddy.Options{Dir: filepath.Dir(name)})
	if err := r.ours(node, report, name, cert, key); err != nil {
		return nil, err
	}
	theirs, err := compare.StartCaddy(ctx, compare.CaddyOptions{Binary: r.Binary, File: name, Addresses: addresses, Cert: cert, Key: key})
	if err != nil {
		return nil, cli.Failure(err, "Caddy runs with this Caddyfile, but other ports: does caddy validate --config "+r.Caddy+" take it?")
	}
	return theirs, nil
}

func (r *comparison) apache(ctx context.Context, cert, key string) (*compare.Server, error) {
	list, o, err := ReadApache(r.Apache, r.ApacheOptions)
	if err != nil {
		return nil, cli.Failure(err, "does Apache take it? apachectl configtest")
	}
	name, err := filepath.Abs(r.Apache)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	node, report := apache.Translate(list, o)
	if err := r.ours(node, report, name, cert, key); err != nil {
		return nil, err
	}
	options := compare.ApacheOptions{Binary: r.Binary, Root: o.Root, Hosts: o.Hosts, Cert: cert, Key: key}
	if o.Root != "" && node.Get("sites") != nil && strings.Contains(node.String(), "php:") {
		options.PHP = o.PHP
	}
	theirs, err := compare.StartApache(ctx, list, options)
	if err != nil {
		return nil, cli.Failure(err, "Apache runs with this config, but other ports: does apachectl configtest take it?")
	}
	return theirs, nil
}

// ours reads or makes the config of Millrace, and puts it on loopback ports.
func (r *comparison) ours(node *draft.Node, report *draft.Report, name, cert, key string) error {
	cfg, err := r.read(node, report, name, cert, key)
	if err != nil {
		return err
	}
	if r.plain, err = freePort(); err != nil {
		return err
	}
	if r.secure, err = freePort(); err != nil {
		return err
	}
	cfg.Listen, cfg.TLS.Listen = []string{r.plain}, []string{r.secure}
	cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.Certificates, cfg.TLS.Auto, cfg.TLS.HTTP3 = cert, key, nil, nil, false
	cfg.TLS.Tickets.Shared, cfg.TLS.ClientCA, cfg.TLS.ClientAuth = store.Shared{}, "", "" // we have no certificate to show
	cfg.Log.Format, cfg.Log.File, cfg.Admin.Listen = config.Off, "", config.Off
	for _, site := range cfg.Sites {
		for key, route := range site.Routes {
			if route.Cache != nil { // the one that serves has its own
				route.Cache.Disk, route.Cache.DiskSize, route.Cache.Shared = "", 0, store.Shared{}
			}
			if route.Images != nil {
				route.Images.Store, route.Images.Shared = filepath.Join(r.dir, "images"), ""
			}
			site.Routes[key] = route
		}
	}
	r.config = cfg
	return nil
}

func (r *comparison) read(node *draft.Node, report *draft.Report, name, cert, key string) (*config.Config, error) {
	if r.Config != "" {
		cfg, err := config.Load(r.Config)
		if err != nil {
			return nil, cli.BadConfig(r.Config, err)
		}
		return cfg, nil
	}
	// A certificate that is for none of the sites is a mistake in a config.
	if _, _, err := compare.SelfSigned(r.dir, hostsOf(node)); err != nil {
		return nil, err //nolint:wrapcheck // says what it was doing
	}
	if tls := node.Get("tls"); tls != nil { // the model's own may not be readable for who compares
		tls.Remove("certificates")
		tls.Remove("auto")
		tls.Set("cert", draft.Text(cert)).Set("key", draft.Text(key))
	}
	node.Remove("log")
	cfg, err := config.Parse(filepath.Join(filepath.Dir(name), config.FileName), []byte(node.String()))
	if err != nil {
		return nil, cli.BadConfig("what millrace import writes", err)
	}
	if n := report.Count(draft.Untranslated); n > 0 {
		r.streams.Print("%s not carried over: millrace import %s %s lists them\n", cli.Count(n, "line"), strings.ToLower(r.theirName()), name)
	}
	return cfg, nil
}

// theirName is the server to compare with.
func (r *comparison) theirName() string {
	switch {
	case r.Caddy != "":
		return "Caddy"
	case r.Apache != "":
		return "Apache"
	}
	return "nginx"
}

// hostsOf are the names of a config's sites.
func hostsOf(node *draft.Node) []string {
	hosts := []string{"localhost"}
	node.Get("sites").Each(func(site *draft.Node, _ []string) {
		if list := site.Get("hosts"); list != nil {
			list.Each(func(h *draft.Node, _ []string) { hosts = append(hosts, h.Plain()) })
		}
	})
	return hosts
}

// freePort is an address that nobody listens at.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// run serves, asks, and sums up.
func (r *comparison) run(ctx context.Context) error {
	srv, err := engine.New(r.config, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("starting Millrace: %w", err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(serving) }() // waited for below
	client := compare.NewClient(r.Strict)
	sites := 0
	for _, s := range r.sites() {
		sites++
		if err = r.site(ctx, client, s); err != nil {
			break
		}
	}
	client.Close()
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	other, err := r.show()
	if err != nil {
		return err
	}
	r.streams.Print("%s of %s asked for: ", cli.Count(r.asked, "path"), cli.Count(sites, "site"))
	if !r.Strict {
		defer r.streams.Print("  ignored: %s; --strict shows them\n", compare.Ignored())
	}
	for _, why := range slices.Sorted(maps.Keys(r.known)) {
		defer r.streams.Print("  by a default of Millrace, %s: %s\n", cli.Count(r.known[why], "answer"), why)
	}
	switch opened := len(r.found[compare.Opened]); {
	case opened > 0:
		r.streams.Print("%d differ\n", other)
		return cli.Failure(fmt.Errorf("%d of %d answers are open here and closed in %s", opened, r.asked, r.theirs.Name), "close them before this config goes live: they are first in the list")
	case other > 0:
		r.streams.Print("%d differ\n", other)
		return fmt.Errorf("%d of %d answers differ", other, r.asked)
	}
	r.streams.Print("all answers are the same\n")
	return nil
}

// sites are those of the model, with our address beside.
func (r *comparison) sites() (list []compare.Site) {
	for _, s := range r.theirs.Sites {
		s.Ours = r.plain
		if s.TLS {
			s.Ours = r.secure
		}
		if len(r.Host) > 0 && !slices.Contains(r.Host, s.Host) || slices.Contains(list, s) {
			continue
		}
		if slices.ContainsFunc(list, func(o compare.Site) bool { return o.Host == s.Host && o.TLS == s.TLS }) {
			continue // the same on another port
		}
		list = append(list, s)
	}
	return list
}

// site asks for all paths of one.
func (r *comparison) site(ctx context.Context, client *compare.Client, s compare.Site) error {
	queue := compare.NewQueue(r.Limit)
	queue.Add("/")
	r.fromConfig(queue, s.Host)
	if r.Log != "" {
		f, err := os.Open(r.Log)
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}
		err = errors.Join(queue.Log(f), f.Close())
		if err != nil {
			return fmt.Errorf("reading the log %s: %w", r.Log, err)
		}
	}
	for {
		target, ok := queue.Next()
		if !ok {
			return nil
		}
		verdict, answer, err := client.Ask(ctx, s, target)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err() //nolint:wrapcheck // interrupted
			}
			verdict = compare.Verdict{Rank: compare.Statuses, Differences: []compare.Difference{{What: "answer", Theirs: fmt.Sprint(answer.Status), Ours: err.Error()}}}
		}
		r.asked++
		queue.Links(s, target, answer)
		switch verdict.Rank {
		case compare.None:
		case compare.Default:
			r.known[verdict.Known]++
		default:
			r.found[verdict.Rank] = append(r.found[verdict.Rank], found{s.URL(target), verdict.Differences})
		}
	}
}

// show prints the answers that differ, the worst first, and returns how many there are.
func (r *comparison) show() (other int, err error) {
	var b strings.Builder
	for rank, list := range r.found {
		if len(list) == 0 {
			continue
		}
		other += len(list)
		fmt.Fprintf(&b, "%s: %s\n", strings.ReplaceAll(compare.Rank(rank).String(), "%s", strings.ToUpper(r.theirs.Name)), cli.Count(len(list), "answer"))
		for _, f := range list {
			b.WriteString(f.url + "\n")
			for _, d := range f.differences {
				fmt.Fprintf(&b, "  %s: %s %s, Millrace %s\n", d.What, r.theirs.Name, cmp.Or(d.Theirs, "none"), cmp.Or(d.Ours, "none"))
			}
		}
	}
	if _, err := r.streams.Out.Write([]byte(b.String())); err != nil {
		return other, fmt.Errorf("writing: %w", err)
	}
	return other, nil
}

// fromConfig adds the paths that the config names, and the files of its folders.
func (r *comparison) fromConfig(queue *compare.Queue, host string) {
	for _, site := range r.config.Sites {
		named := slices.ContainsFunc(site.Hosts, func(h string) bool {
			return h == host || strings.HasPrefix(h, "*.") && strings.HasSuffix(host, h[1:]) || strings.HasSuffix(h, ".*") && strings.HasPrefix(host, h[:len(h)-1])
		})
		if !named && len(site.Hosts) > 0 {
			continue
		}
		for _, rule := range site.Rules {
			queue.Add(strings.TrimRight(rule.Path, "*"))
		}
		for _, page := range slices.Sorted(maps.Values(site.Errors)) {
			queue.Add(page)
		}
		keys := slices.Sorted(maps.Keys(site.Routes))
		for _, key := range keys {
			if path := strings.TrimRight(key, "*"); !strings.Contains(path, "*") {
				queue.Add(path)
				queue.Add(path + "x-no-such-path")
			}
		}
		for _, key := range keys {
			static := site.Routes[key].Static
			if static == nil {
				continue
			}
			below := "/"
			if strings.HasSuffix(key, "/") {
				below = key
			}
			for _, dir := range static.Folders() {
				queue.Files(dir, below)
			}
		}
	}
}
