package compare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/importer/apache"
	"millrace/importer/draft"
)

// ApacheOptions say how it is started.
type ApacheOptions struct {
	Binary    string   // apache2 or httpd where it is empty
	Root      string   // the folder of a .htaccess, which is served; "" for a config
	Hosts     []string // the site's names, for a .htaccess
	PHP       string   // php-fpm's socket, for a .htaccess; "" for none
	Cert, Key string   // shown instead of the config's own certificates
}

// StartApache starts Apache by the lines of a config, or for the folder of a
// .htaccess. The caller stops it.
func StartApache(ctx context.Context, list []*draft.Directive, o ApacheOptions) (*Server, error) {
	binary := o.Binary
	if binary == "" {
		binary = "apache2"
		if _, err := exec.LookPath(binary); err != nil {
			binary = "httpd"
		}
	}
	s, err := folder("Apache")
	if err != nil {
		return nil, err
	}
	a := &apacheRewriter{options: o, dir: s.dir, root: os.Geteuid() == 0}
	text, err := a.config(list)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "apache.conf"), []byte(text), 0o600)
	}
	if err == nil && a.root { // its workers are not root
		err = os.Chmod(s.dir, 0o755) //nolint:gosec // there is nothing secret in it that is not 0600
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.Sites = a.sites
	args := []string{"-d", s.dir, "-f", filepath.Join(s.dir, "apache.conf"), "-E", filepath.Join(s.dir, "error.log"), "-DFOREGROUND"}
	if err := s.start(ctx, binary, args, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// apacheRewriter makes a config that touches nothing but its own folder.
type apacheRewriter struct {
	options ApacheOptions
	dir     string
	ports   ports
	sites   []Site
	root    bool
	listens []string
	mixed   map[string]bool // ports of virtual hosts that speak TLS
}

// modules that are loaded where they are there.
func modules() []string {
	return strings.Fields(`mpm_event unixd log_config logio version authn_core authn_file authz_core authz_host authz_user authz_groupfile
		access_compat auth_basic alias dir mime rewrite headers expires filter deflate setenvif env proxy proxy_http proxy_fcgi proxy_wstunnel
		slotmem_shm proxy_balancer lbmethod_byrequests lbmethod_bybusyness autoindex negotiation socache_shmcb ssl remoteip`)
}

// moduleFolder is where a distribution has them.
func moduleFolder() (string, error) {
	for _, dir := range []string{"/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules", "/etc/httpd/modules", "/usr/local/apache2/modules", "/usr/local/libexec/apache24", "/usr/libexec/apache2"} {
		if _, err := os.Stat(filepath.Join(dir, "mod_rewrite.so")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the modules of Apache are not to be found (Debian: apache2)")
}

// config is the whole of it.
func (a *apacheRewriter) config(list []*draft.Directive) (string, error) {
	folder, err := moduleFolder()
	if err != nil {
		return "", err
	}
	own := func(name string, args ...string) *draft.Directive { return &draft.Directive{Name: name, Args: args} }
	tag := func(name, arg string, block ...*draft.Directive) *draft.Directive {
		return &draft.Directive{Name: name, Args: []string{arg}, Block: block, Opens: true, Tag: true}
	}
	var out []*draft.Directive
	for _, m := range modules() {
		if file := filepath.Join(folder, "mod_"+m+".so"); fileIsThere(file) {
			out = append(out, own("LoadModule", m+"_module", file))
		}
	}
	out = append(out, own("PidFile", filepath.Join(a.dir, "pid")), own("DefaultRuntimeDir", a.dir), own("ErrorLog", filepath.Join(a.dir, "error.log")), own("LogLevel", "crit"), own("ServerName", "localhost"),
		own("StartServers", "1"), own("ThreadsPerChild", "25"), own("MaxRequestWorkers", "25"), own("ServerLimit", "1"))
	if a.root {
		out = append(out, own("User", "www-data"), own("Group", "www-data"))
	}
	if fileIsThere("/etc/mime.types") {
		out = append(out, own("TypesConfig", "/etc/mime.types"))
	}
	out = append(out, tag("FilesMatch", `^\.ht`, own("Require", "all", "denied")))
	if a.options.Root != "" {
		out = append(out, a.alone(own, tag)...)
	} else {
		a.secure(list)
		rewritten := a.block(list)
		if len(a.sites) == 0 {
			a.main(list)
		}
		for _, at := range a.listens {
			out = append(out, own("Listen", at))
		}
		out = append(out, rewritten...)
	}
	a.ports.free()
	if len(a.sites) == 0 {
		return "", errors.New("the config has no virtual host")
	}
	return apache.Write(out), nil
}

// main lists the server itself, where a config has no virtual host.
func (a *apacheRewriter) main(list []*draft.Directive) {
	at, err := a.ports.address("80")
	if err != nil {
		return
	}
	host := "localhost"
	for _, d := range flat(list) {
		if strings.EqualFold(d.Name, "ServerName") {
			host, _, _ = strings.Cut(strings.ToLower(d.Arg(0)), ":")
		}
	}
	a.listens, a.sites = append(a.listens, at), append(a.sites, Site{Host: host, Theirs: at})
}

func fileIsThere(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// alone are the lines around a .htaccess.
func (a *apacheRewriter) alone(own func(string, ...string) *draft.Directive, tag func(string, string, ...*draft.Directive) *draft.Directive) []*draft.Directive {
	at, err := a.ports.address("80")
	if err != nil {
		return nil
	}
	hosts := a.options.Hosts
	if len(hosts) == 0 {
		hosts = []string{"localhost"}
	}
	for _, h := range hosts {
		a.sites = append(a.sites, Site{Host: h, Theirs: at})
	}
	out := []*draft.Directive{
		own("Listen", at), own("DocumentRoot", a.options.Root), own("DirectoryIndex", "index.php", "index.html"),
		tag("Directory", a.options.Root, own("AllowOverride", "All", "Nonfatal=Unknown"), own("Require", "all", "granted"), own("Options", "FollowSymLinks")),
	}
	if a.options.PHP != "" {
		out = append(out, tag("FilesMatch", `.+\.php$`, own("SetHandler", "proxy:unix:"+a.options.PHP+"|fcgi://localhost")))
	}
	return out
}

// droppedFromApache are directives that write somewhere, need what is not here,
// or belong to the process.
func droppedFromApache() []string {
	return []string{
		"loadmodule", "loadfile", "user", "group", "pidfile", "mutex", "errorlog", "customlog", "transferlog", "globallog", "loglevel", "serverroot", "defaultruntimedir", "listen", "typesconfig",
		"sslcertificatechainfile", "sslcacertificatefile", "sslcacertificatepath", "sslverifyclient", "sslverifydepth", "sslstaplingcache", "sslusestapling", "sslsessioncache", "sslpassphrasedialog", "sslopensslconfcmd", "sslciphersuite",
		"startservers", "minsparethreads", "maxsparethreads", "threadlimit", "threadsperchild", "maxrequestworkers", "maxconnectionsperchild", "serverlimit", "protocols", "suexecusergroup", "define", "undefine", "servertokens", "serversignature", "include",
	}
}

// secure finds the ports of virtual hosts that speak TLS.
func (a *apacheRewriter) secure(list []*draft.Directive) {
	a.mixed = map[string]bool{}
	for _, d := range flat(list) {
		if !strings.EqualFold(d.Name, "VirtualHost") {
			continue
		}
		for _, e := range flat(d.Block) {
			if strings.EqualFold(e.Name, "SSLEngine") && strings.EqualFold(e.Arg(0), "on") {
				for _, at := range d.Args {
					a.mixed[portOf(at)] = true
				}
			}
		}
	}
}

// flat are lines without the conditions around them.
func flat(list []*draft.Directive) (out []*draft.Directive) {
	for _, d := range list {
		if d.Opens && strings.HasPrefix(strings.ToLower(d.Name), "if") && !strings.EqualFold(d.Name, "if") {
			out = append(out, flat(d.Block)...)
			continue
		}
		out = append(out, d)
	}
	return out
}

func portOf(address string) string {
	if _, port, err := net.SplitHostPort(address); err == nil && port != "*" {
		return port
	}
	if regexp.MustCompile(`^\d+$`).MatchString(address) {
		return address
	}
	return "80"
}

func (a *apacheRewriter) block(list []*draft.Directive) (out []*draft.Directive) {
	for _, d := range list {
		name := strings.ToLower(d.Name)
		if slices.Contains(droppedFromApache(), name) || strings.HasPrefix(name, "php_") {
			continue
		}
		copied := *d
		copied.Args = slices.Clone(d.Args)
		switch {
		case name == "virtualhost":
			if !a.host(&copied) {
				continue
			}
		case d.Opens:
			copied.Block = a.block(d.Block)
		case name == "sslcertificatefile":
			copied.Args = []string{a.options.Cert}
		case name == "sslcertificatekeyfile":
			copied.Args = []string{a.options.Key}
		case name == "allowoverride" && !strings.EqualFold(d.Arg(0), "none"):
			copied.Args = append(copied.Args, "Nonfatal=Unknown")
		}
		out = append(out, &copied)
	}
	return out
}

// host gives a virtual host loopback addresses, and lists its sites.
func (a *apacheRewriter) host(d *draft.Directive) bool {
	secure := false
	var hosts []string
	for _, e := range flat(d.Block) {
		switch strings.ToLower(e.Name) {
		case "sslengine":
			secure = strings.EqualFold(e.Arg(0), "on")
		case "servername", "serveralias":
			for _, name := range e.Args {
				if _, rest, ok := strings.Cut(name, "://"); ok {
					name = rest
				}
				name, _, _ = strings.Cut(strings.ToLower(name), ":")
				if wild, is := strings.CutPrefix(name, "*."); is {
					name = "any." + wild
				}
				if name != "" && !strings.ContainsAny(name, "*?") {
					hosts = append(hosts, name)
				}
			}
		}
	}
	if len(hosts) == 0 {
		hosts = []string{"localhost"}
	}
	var addresses []string
	for _, text := range d.Args {
		at, err := a.ports.address(fmt.Sprint(portOf(text), a.mixed[portOf(text)]))
		if err != nil || slices.Contains(addresses, at) {
			continue
		}
		addresses = append(addresses, at)
		a.listens = draft.AppendNew(a.listens, at)
		for _, h := range hosts {
			a.sites = append(a.sites, Site{Host: h, TLS: secure, Theirs: at})
		}
	}
	d.Args, d.Block = addresses, a.block(d.Block)
	return len(addresses) > 0
}
