package engine

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ops/admin"
	"millrace/internal/process/confine"
	"millrace/internal/server"
	"millrace/internal/upstream/spool"
	"millrace/store/s3"
)

// Reach lists the files that a server with this config needs, for the sandbox: those that
// the config names, the defaults of the jobs, and what every process needs. Folders that
// are missing are to be made. own is the config's file; "" for none.
func Reach(cfg *config.Config, own string) []confine.Rule {
	r := &reach{reads: append(cfg.Files(), trusted(cfg)...)}
	r.reads = append(r.reads, Configs(cfg, own)...)
	r.stores(cfg)
	r.log(cfg)
	r.sockets(cfg)
	for _, dir := range cfg.Sandbox.Write {
		r.add(confine.Rule{Path: dir, Access: confine.Write | confine.Read, For: "sandbox.write"})
	}
	for _, path := range cfg.Sandbox.Read {
		r.add(confine.Rule{Path: path, Access: confine.Read, For: "sandbox.read"})
	}
	written := slices.Clone(r.rules)
	for _, path := range r.reads {
		if !slices.ContainsFunc(written, func(w confine.Rule) bool { return w.Path == absolute(path) }) {
			r.read(path, "the config")
		}
	}
	r.keys(cfg)
	r.programs(cfg)
	r.system()
	return r.rules
}

// reach collects the sandbox's rules.
type reach struct {
	rules []confine.Rule
	reads []string // what the config names, and what it is read from
}

func (r *reach) add(rule confine.Rule) {
	rule.Path = absolute(rule.Path)
	r.rules = append(r.rules, rule)
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// read allows reading a file or folder, also after it was replaced by another.
func (r *reach) read(path, key string) {
	r.add(confine.Rule{Path: path, Access: confine.Read, For: key})
	r.rules = append(r.rules, confine.Parents(absolute(path), confine.Read, key)...)
}

// store allows writing to a folder, which is made where it is missing.
func (r *reach) store(dir, key string) {
	r.add(confine.Rule{Path: dir, Access: confine.Write, For: key, Make: true})
}

// stores are the folders of caches, images and certificates, and that of bodies.
func (r *reach) stores(cfg *config.Config) {
	buffers := cfg.Buffers.Folder
	if buffers == "" {
		buffers = spool.DefaultFolder()
	}
	r.add(confine.Rule{Path: buffers, Access: confine.Write, For: "buffers.folder"})
	if a := cfg.TLS.Auto; a != nil && !a.Shared() {
		if dir, err := server.CertificateFolder(a.Storage); err == nil {
			r.store(dir, "tls.auto.storage")
		}
	}
	for _, s := range cfg.Sites {
		for _, route := range s.Routes {
			r.storesOf(route)
		}
	}
}

func (r *reach) storesOf(route config.Route) {
	if o := route.Cache; o != nil {
		if o.Disk != "" {
			r.store(o.Disk, "cache.disk")
		}
		if o.Shared.URL != "" {
			if dir := outboxOf(o.Shared.Address()); dir != "" {
				r.store(dir, "cache.shared")
			}
		}
	}
	if o := route.Images; o != nil {
		scope := "remote"
		if route.Static != nil {
			scope, _ = route.Static.Scope() // as a path that cannot be found is left as it is
		} else if o.Remote != nil {
			scope = o.Remote.From
		}
		if dir, err := o.Folder(scope); err == nil {
			r.store(dir, "images.store")
		}
	}
}

// log allows writing to the log's folder, so that a new file can follow a rotated one. Where
// the server reads other files of that folder, or it is as broad as /var, it allows
// writing to the log file alone.
func (r *reach) log(cfg *config.Config) {
	file := cfg.Log.File
	if file == "" || file == "-" || cfg.Log.Format == config.Off {
		return
	}
	if dir := filepath.Dir(absolute(file)); !confine.Broad(dir) && !r.holds(dir, absolute(file)) {
		r.add(confine.Rule{Path: dir, Access: confine.Write, For: "log.file"})
		return
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND|nonblock, 0o640)
	if err == nil {
		_ = f.Close() // nothing was written
	}
	r.add(confine.Rule{Path: file, Access: confine.Write, For: "log.file"})
}

// holds reports whether a folder has something in it, but for one file, that the
// process reads and must not change.
func (r *reach) holds(dir, but string) bool {
	for _, path := range r.reads {
		path = absolute(path)
		if path != but && (path == dir || strings.HasPrefix(path, dir+"/")) {
			return true
		}
	}
	return false
}

// sockets allows making and removing listeners' sockets.
func (r *reach) sockets(cfg *config.Config) {
	for _, list := range []struct {
		addresses []string
		key       string
	}{{cfg.Listen, "listen"}, {cfg.TLS.Listen, "tls.listen"}, {[]string{cfg.Admin.Listen}, "admin.listen"}} {
		for _, address := range list.addresses {
			if path, ok := strings.CutPrefix(address, "unix:"); ok {
				r.add(confine.Rule{Path: filepath.Dir(absolute(path)), Access: confine.Socket, For: list.key})
			}
		}
	}
	if cfg.Admin.Listen == "" {
		if dir := admin.RuntimeFolder(); dir != "" {
			r.add(confine.Rule{Path: dir, Access: confine.Socket, For: "admin.listen", Extra: true})
		}
	}
}

// Configs are the file of a config and the folders of the files that it includes; own
// is "" for a config that comes from no file.
func Configs(cfg *config.Config, own string) (all []string) {
	if own == "" {
		return nil
	}
	all = []string{own}
	for _, pattern := range cfg.Include {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(own), pattern)
		}
		dir := filepath.Dir(pattern)
		if strings.ContainsAny(dir, "*?[") {
			found, _ := filepath.Glob(dir) // a pattern that is none was a mistake before
			all = append(all, found...)
		}
		for strings.ContainsAny(dir, "*?[") {
			dir = filepath.Dir(dir)
		}
		all = append(all, dir)
	}
	return all
}

// shared are the URLs of what machines share.
func shared(cfg *config.Config) (urls []string) {
	for _, s := range cfg.Sites {
		for _, route := range s.Routes {
			switch {
			case route.Cache != nil:
				urls = append(urls, route.Cache.Shared.URL)
			case route.Images != nil:
				urls = append(urls, route.Images.Shared)
			}
		}
	}
	if a := cfg.TLS.Auto; a != nil && a.Shared() {
		urls = append(urls, a.Storage)
	}
	return append(urls, cfg.TLS.Tickets.Shared.URL)
}

// trusted are files that are read and that no key names by itself.
func trusted(cfg *config.Config) (all []string) {
	for _, text := range shared(cfg) {
		all = append(all, trustedBy(text)...)
	}
	return all
}

// keys allows reading the files that may hold keys of S3 servers.
func (r *reach) keys(cfg *config.Config) {
	for _, text := range shared(cfg) {
		for _, path := range s3.Files(text) {
			r.extra(confine.Read, "keys for S3", path)
			r.rules = append(r.rules, confine.Parents(absolute(path), confine.Read, "keys for S3")...)
		}
	}
}

// trustedBy is the file of certificates that the URL of a shared store names.
func trustedBy(text string) []string {
	if _, query, ok := strings.Cut(text, "?"); ok {
		if values, err := url.ParseQuery(query); err == nil && values.Get("ca") != "" {
			return []string{values.Get("ca")}
		}
	}
	return nil
}

// programs allows executing the image worker and the operator's program for DNS, with the
// system's folders of programs and libraries.
func (r *reach) programs(cfg *config.Config) {
	if self, err := os.Executable(); err == nil {
		r.extra(confine.Execute, "the program", self)
		if loader := confine.Loader(self); loader != "" {
			r.extra(confine.Execute, "the program", loader)
			r.extra(confine.Read, "the program", append(libraries(), "/etc/ld.so.cache", "/etc/ld.so.preload")...)
		}
	}
	needed := false
	if a := cfg.TLS.Auto; a != nil && a.DNS != "" {
		r.read(a.DNS, "tls.auto.dns")
		r.add(confine.Rule{Path: a.DNS, Access: confine.Execute, For: "tls.auto.dns"})
		needed = true
	}
	for _, s := range cfg.Sites {
		for _, route := range s.Routes {
			needed = needed || route.Images != nil && route.Images.Engine != "embedded"
		}
	}
	if !needed {
		return
	}
	r.extra(confine.Execute, "programs", append(libraries(), "/usr", "/bin", "/sbin")...)
	r.extra(confine.Execute, "programs", filepath.SplitList(os.Getenv("PATH"))...)
	r.extra(confine.Read, "programs", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/alternatives")
}

// libraries are where systems have them.
func libraries() []string {
	return []string{"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store"}
}

func (r *reach) extra(access confine.Access, what string, paths ...string) {
	for _, path := range paths {
		if path != "" {
			r.add(confine.Rule{Path: path, Access: access, For: what, Extra: true})
		}
	}
}

// system is what Go's libraries read: names, certificates that are trusted, time
// zones, what the kernel says about this process and its children.
func (r *reach) system() {
	r.extra(confine.Read, "names", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", "/etc/gai.conf", "/etc/host.conf")
	r.extra(confine.Read, "names", "/etc/resolv.conf")
	r.rules = append(r.rules, confine.Parents("/etc/resolv.conf", confine.Read, "names")...)
	r.extra(confine.Read, "certificates", append([]string{
		"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf", "/etc/pki", "/etc/ca-certificates",
		"/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/usr/local/share/certs", "/etc/openssl/certs", "/var/lib/ca-certificates",
		os.Getenv("SSL_CERT_FILE"),
	}, filepath.SplitList(os.Getenv("SSL_CERT_DIR"))...)...)
	r.extra(confine.Read, "time zones", "/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", os.Getenv("ZONEINFO"))
	r.extra(confine.Read, "the kernel", "/proc", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage", "/sys/devices/system/cpu", "/dev/urandom", "/dev/random")
	r.extra(confine.Write, "the kernel", "/dev/null")
}
