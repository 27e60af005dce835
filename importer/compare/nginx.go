package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/nginx"
	"millrace/importer/plan"
)

// NginxOptions say how it is started.
type NginxOptions struct {
	Binary    string // nginx where it is empty
	Prefix    string // as in nginx -V
	Dir       string // of the config, for relative files
	Cert, Key string // shown instead of the config's own certificates
}

// StartNginx starts nginx by the lines of a config. The caller stops it.
func StartNginx(ctx context.Context, list []*draft.Directive, o NginxOptions) (*Server, error) {
	s, err := folder("nginx")
	if err != nil {
		return nil, err
	}
	r := &rewriter{options: o, dir: s.dir, root: os.Geteuid() == 0}
	text, err := r.config(list)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "nginx.conf"), []byte(text), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.Sites = r.sites
	binary := cmp.Or(o.Binary, "nginx")
	args := []string{"-c", filepath.Join(s.dir, "nginx.conf"), "-e", filepath.Join(s.dir, "error.log")}
	if o.Prefix != "" {
		args = append(args, "-p", o.Prefix)
	}
	if err := s.start(ctx, binary, args, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// rewriter makes a config that touches nothing but its own folder.
type rewriter struct {
	options NginxOptions
	dir     string
	ports   ports
	sites   []Site
	root    bool
	caches  int
}

// config is the whole of it.
func (r *rewriter) config(list []*draft.Directive) (string, error) {
	own := func(name string, args ...string) *draft.Directive { return &draft.Directive{Name: name, Args: args} }
	out := []*draft.Directive{
		own("daemon", "off"), own("worker_processes", "1"),
		own("pid", filepath.Join(r.dir, "nginx.pid")), own("error_log", filepath.Join(r.dir, "error.log"), "error"),
	}
	if r.root {
		out = append(out, own("user", "root"))
	}
	http := own("http")
	http.Opens = true
	http.Block = []*draft.Directive{own("access_log", "off")}
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		http.Block = append(http.Block, own(kind+"_temp_path", filepath.Join(r.dir, kind)))
	}
	var events *draft.Directive
	whole := slices.ContainsFunc(list, func(d *draft.Directive) bool { return d.Name == "http" })
	if !whole {
		http.Block = append(http.Block, r.block(list)...)
	}
	for _, d := range list {
		switch d.Name {
		case "http":
			http.Block = append(http.Block, r.block(d.Block)...)
		case "events":
			events = d
		case "load_module", "env", "pcre_jit", "thread_pool":
			out = append(out, d)
		}
	}
	if events == nil {
		events = own("events")
		events.Opens = true
	}
	r.ports.free()
	if len(r.sites) == 0 {
		return "", errors.New("the config has no server that listens to HTTP")
	}
	return nginx.Write(append(out, events, http)), nil
}

// dropped are directives that write somewhere, or need what is not here.
func dropped() []string {
	return []string{
		"access_log", "error_log", "client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path",
		"ssl_dhparam", "ssl_crl", "ssl_session_ticket_key", "ssl_stapling", "ssl_stapling_verify", "ssl_password_file", "proxy_store",
		"ssl_trusted_certificate", "ssl_verify_client", "http2", "http3", "quic_retry", "ssl_engine",
	}
}

func (r *rewriter) block(list []*draft.Directive) (out []*draft.Directive) {
	for _, d := range list {
		name := d.Name
		if slices.Contains(dropped(), name) {
			continue
		}
		copied := *d
		copied.Args = slices.Clone(d.Args)
		switch {
		case name == "server" && d.Opens:
			copied.Block = r.server(d)
		case d.Opens && (name == "upstream" || name == "map" || name == "types" || name == "geo" || name == "split_clients"):
		case d.Opens:
			copied.Block = r.block(d.Block)
		default:
			r.files(&copied)
		}
		out = append(out, &copied)
	}
	return out
}

// files gives the files of a directive their place.
func (r *rewriter) files(d *draft.Directive) {
	if len(d.Args) == 0 {
		return
	}
	switch d.Name {
	case "ssl_certificate", "ssl_client_certificate":
		d.Args = []string{r.options.Cert}
	case "ssl_certificate_key":
		d.Args = []string{r.options.Key}
	case "proxy_cache_path", "fastcgi_cache_path", "uwsgi_cache_path", "scgi_cache_path":
		r.caches++
		d.Args[0] = filepath.Join(r.dir, fmt.Sprint("cache", r.caches))
	case "auth_basic_user_file", "proxy_ssl_trusted_certificate", "proxy_ssl_certificate", "proxy_ssl_certificate_key":
		if file := d.Args[0]; !filepath.IsAbs(file) && file != "off" {
			d.Args[0] = filepath.Join(r.options.Dir, file)
		}
	}
}

// server gives a block loopback addresses, and lists its sites.
func (r *rewriter) server(d *draft.Directive) []*draft.Directive {
	var out []*draft.Directive
	seen := map[string]bool{}
	listens, secureAll := 0, false
	for _, e := range d.Block {
		secureAll = secureAll || e.Name == "ssl" && e.Arg(0) == "on"
	}
	hosts := serverHosts(d)
	take := func(address string, secure bool, options ...string) {
		to, err := r.address(address, secure)
		if err != nil || seen[to] {
			return
		}
		seen[to] = true
		out = append(out, &draft.Directive{Name: "listen", Args: append([]string{to}, options...)})
		for _, h := range hosts {
			r.sites = append(r.sites, Site{Host: h, TLS: secure, Theirs: to})
		}
	}
	for _, e := range d.Block {
		if e.Name != "listen" {
			continue
		}
		listens++
		texts := e.Words()
		if len(texts) == 0 || slices.Contains(texts, "quic") || strings.HasPrefix(texts[0], "unix:") {
			continue
		}
		var options []string
		for _, o := range texts[1:] {
			if o == "ssl" || o == "default_server" || o == "default" {
				options = append(options, o)
			}
		}
		take(texts[0], secureAll || slices.Contains(texts, "ssl"), options...)
	}
	if listens == 0 {
		take("80", false)
	}
	rest := slices.DeleteFunc(r.block(d.Block), func(e *draft.Directive) bool { return e.Name == "listen" })
	return append(out, rest...)
}

// address is ours for one of the config: the same one for the same.
func (r *rewriter) address(theirs string, secure bool) (string, error) {
	port := theirs
	if _, p, err := net.SplitHostPort(theirs); err == nil {
		port = p
	} else if strings.ContainsAny(theirs, ".:") || !strings.ContainsAny(theirs, "0123456789") {
		port = "80"
	}
	return r.ports.address(fmt.Sprint(port, secure))
}

// serverHosts are hosts that a block answers for: one for each of its names.
func serverHosts(d *draft.Directive) (hosts []string) {
	named := false // by an expression
	for _, e := range d.Block {
		if e.Name != "server_name" {
			continue
		}
		for _, name := range e.Words() {
			if expr, is := strings.CutPrefix(name, "~"); is {
				words, _ := plan.Words(expr)
				hosts = append(hosts, words...)
				named = true
				continue
			}
			name = strings.ToLower(name)
			switch {
			case strings.HasPrefix(name, "*."):
				name = "any" + name[1:]
			case strings.HasSuffix(name, ".*"):
				name = name[:len(name)-1] + "example.org"
			case strings.HasPrefix(name, "."):
				hosts = append(hosts, "any"+name)
				name = name[1:]
			}
			if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && strings.Contains(name, ".") || name == "localhost" {
				hosts = append(hosts, name)
			}
		}
	}
	if len(hosts) == 0 && !named {
		hosts = []string{"localhost"}
	}
	return hosts
}
