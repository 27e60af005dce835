package config

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/ops/admin"
	"millrace/internal/route/site"
	"millrace/internal/wire/netset"
)

// checker checks what depends on more than one value of a config, with the settings from
// flags and environment.
type checker struct {
	cfg *Config
	doc *document
	// reported are the paths that a job's own Check has found something wrong with.
	reported map[string]bool
	all      []route // of all sites; nil: routes has not been called
}

// check adds what is wrong with cfg to the document's findings.
func check(cfg *Config, doc *document) {
	c := &checker{cfg: cfg, doc: doc, reported: map[string]bool{}}
	c.upstreams() // first: these know more to say than the options themselves
	c.websockets()
	c.numbers(reflect.ValueOf(cfg).Elem(), "")
	c.limits()
	c.addresses()
	c.tls()
	c.log()
	c.sandbox()
	c.sites()
	c.disks()
}

// value and key report something about the value, or the key, at a path.
// A value that could not be read has been reported already.
func (c *checker) value(path, message, hint string) {
	if !c.doc.unread[path] {
		c.doc.at(c.doc.value(path), message, hint)
	}
}

// missing is value for a file or folder that is not here, or that this user cannot read.
func (c *checker) missing(path, message, hint string) {
	before := len(c.doc.found)
	c.value(path, message, hint)
	for i := range c.doc.found[before:] {
		c.doc.found[before+i].Missing = true
	}
}

func (c *checker) key(path, message, hint string) {
	if !c.doc.unread[path] {
		c.doc.at(c.doc.key(path), message, hint)
	}
}

// negativeTag marks a field in which negative values have a meaning.
const negativeTag = "negative"

// numbers refuses negative values in all options, and calls the Check of options
// that have one: it returns a map from the key to the reason.
func (c *checker) numbers(v reflect.Value, path string) {
	if o, ok := v.Interface().(interface{ Check() map[string]error }); ok && v.Kind() == reflect.Struct {
		faults := o.Check()
		for _, key := range sortedKeys(faults) {
			c.value(join(path, key), faults[key].Error(), "")
			c.reported[join(path, key)] = true
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.numbers(v.Elem(), path)
		}
	case reflect.Struct:
		for _, f := range c.doc.fieldsOf(v.Type()) {
			if v.Type().FieldByIndex(f.index).Tag.Get(negativeTag) == "" {
				c.numbers(v.FieldByIndex(f.index), join(path, f.name))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.numbers(v.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			c.numbers(it.Value(), path+"["+it.Key().String()+"]")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Int() < 0 && !c.reported[path] {
			c.value(path, fmt.Sprintf("%q must not be negative", lastKey(path)), "leave it out for the default")
		}
	}
}

// limits refuses values that protect nothing or let nobody in.
func (c *checker) limits() {
	l := c.cfg.Limits
	const longest = 24 * time.Hour // a client that needs longer is gone
	for key, d := range map[string]time.Duration{
		"header_timeout": l.HeaderTimeout, "body_timeout": l.BodyTimeout, "write_timeout": l.WriteTimeout,
		"idle_timeout": l.IdleTimeout, "handshake_timeout": l.HandshakeTimeout, "drain_timeout": l.DrainTimeout,
	} {
		if d > longest {
			c.value("limits."+key, fmt.Sprintf("%q of %s protects nobody", key, short(d)), "at most 24h")
		}
	}
	for _, s := range []struct {
		path          string
		size          bytesize.Size
		least, most   bytesize.Size
		tooSmallMeans string
	}{
		{"limits.header_bytes", l.HeaderBytes, 1 << 10, 16 << 20, "browsers would be turned away"},
		{"limits.body_bytes", l.BodyBytes, 0, 1 << 50, ""},
		{"limits.body_rate", l.BodyRate, 0, 1 << 40, ""},
		{"limits.write_rate", l.WriteRate, 0, 1 << 40, ""},
		{"lane.memory", c.cfg.Lane.Memory, 64 << 10, 1 << 40, "nothing would fit"},
	} {
		switch {
		case s.size != 0 && s.size < s.least:
			c.value(s.path, fmt.Sprintf("%q of %s is too little: %s", lastKey(s.path), s.size, s.tooSmallMeans), "at least "+s.least.String())
		case s.size > s.most:
			c.value(s.path, fmt.Sprintf("%q of %s is more than any machine has", lastKey(s.path), s.size), "at most "+s.most.String())
		}
	}
	const most = 10_000_000 // descriptors that Linux allows a process with much tuning
	for key, n := range map[string]int{"connections": l.Connections, "connections_per_address": l.ConnectionsPerAddress, "stalled_streams": l.StalledStreams, "websockets": l.WebSockets, "websockets_per_address": l.WebSocketsPerAddress} {
		if n > most {
			c.value("limits."+key, fmt.Sprintf("%q of %d is more than any machine holds", key, n), "at most "+strconv.Itoa(most))
		}
	}
	if _, err := netset.Parse(l.TrustedProxies); err != nil {
		c.value("limits.trusted_proxies", err.Error(), "")
	}
	if _, err := netset.Parse(c.cfg.ProxyProtocol.From); err != nil {
		c.value("proxy_protocol.from", err.Error(), "")
	}
	if l.ClientHeader != "" && !netset.ValidHeader(l.ClientHeader) {
		c.value("limits.client_header", fmt.Sprintf("%q is not the name of a header field", l.ClientHeader), "for example X-Forwarded-For")
	}
}

// short is a duration without its zero parts: 100h.
func short(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// listener is one address of the config, to find conflicting ones.
type listener struct {
	Address
	path string // in the config
}

// addresses checks the form of every address and that no two are the same.
func (c *checker) addresses() {
	var all []listener
	add := func(path, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			c.value(path, err.Error(), addressHint(text))
			return
		}
		all = append(all, listener{a, path})
	}
	for i, s := range c.cfg.Listen {
		add(fmt.Sprintf("listen[%d]", i), s)
	}
	for i, s := range c.cfg.TLS.Listen {
		add(fmt.Sprintf("tls.listen[%d]", i), s)
	}
	if a := c.cfg.Admin.Listen; a != "" && a != Off {
		add("admin.listen", a)
	}
	if t := c.cfg.Admin.Token; t != "" && len(t) < admin.LeastToken {
		c.value("admin.token", fmt.Sprintf("the token has %d bytes: it needs at least %d", len(t), admin.LeastToken), "one that nobody guesses: `openssl rand -hex 16`")
	}
	if len(c.cfg.Listen)+len(c.cfg.TLS.Listen) == 0 && !c.cfg.program {
		c.key("listen", "no address to serve at: \"listen\" is empty", "for example listen: "+DefaultListen)
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.overlaps(b.Address) {
				c.value(a.path, fmt.Sprintf("%s is used twice", a.Address), c.elsewhere(a, b))
				break
			}
		}
	}
}

// elsewhere names the line of the other of two conflicting addresses.
func (c *checker) elsewhere(a, b listener) string {
	p := c.doc.value(b.path)
	name := strings.TrimSuffix(b.path, "]")
	name, _, _ = strings.Cut(name, "[")
	_, isRead := c.doc.values[b.path]
	switch {
	case p.from != "":
		return fmt.Sprintf("%s has %s", p.from, b.Address)
	case !isRead && b.path == "listen[0]":
		return fmt.Sprintf("%s is where plain HTTP is served by default; move that with \"listen\"", b.Address)
	case p.line > 0:
		return fmt.Sprintf("%s has %s %s", name, b.Address, c.doc.line(p))
	}
	return fmt.Sprintf("%s has %s", name, b.Address)
}

// readable reports a file that cannot be read.
func (c *checker) readable(path, file string) bool {
	const most = 1 << 20 // a certificate with its chain has a few KiB
	info, err := os.Stat(file)
	switch {
	case err != nil:
		c.missing(path, "cannot read "+reason(err), nearHint(file))
		return false
	case !info.Mode().IsRegular():
		c.value(path, fmt.Sprintf("%s is not a file", file), "")
		return false
	case info.Size() > most:
		c.value(path, fmt.Sprintf("%s is too large for a PEM file", file), "")
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		c.missing(path, "cannot read "+reason(err), "")
		return false
	}
	defer f.Close()
	return true
}

// LogFormats are the formats of the access log.
func LogFormats() []string { return []string{"combined", "common", "json", Off} }

// sandbox refuses one for a program that has this server as a library: the program's own
// files would be out of reach.
func (c *checker) sandbox() {
	if c.cfg.program && c.cfg.Sandbox.On() {
		c.key("sandbox", "the sandbox is of the command millrace, whose files the config names", "leave it out: what else this program opens is not known here")
	}
}

func (c *checker) log() {
	l := c.cfg.Log
	if l.Format != "" && !slices.Contains(LogFormats(), l.Format) {
		hint := meant(l.Format, LogFormats())
		if hint == "" {
			hint = "one of " + strings.Join(LogFormats(), ", ")
		}
		c.value("log.format", fmt.Sprintf("%q is not a log format", l.Format), hint)
	}
	if l.File == "" || l.File == "-" {
		return
	}
	if info, err := os.Stat(l.File); err == nil && info.IsDir() {
		c.value("log.file", l.File+" is a folder", "name a file in it: "+filepath.Join(l.File, "access.log"))
		return
	}
	dir := filepath.Dir(l.File)
	if err := CheckDir(dir); err != nil {
		c.missing("log.file", "the log's folder: "+err.Error(), "`mkdir -p "+dir+"` makes it")
	}
}

func (c *checker) sites() {
	if len(c.cfg.Sites) == 0 {
		c.key("sites", "no sites: nothing would be served", "`millrace init -` prints a config to start from")
	}
	hosts := map[string]string{} // to the place it was first
	for i, s := range c.cfg.Sites {
		path := fmt.Sprintf("sites[%d]", i)
		if c.doc.unread[path] || c.doc.unread[path+unknownKey] {
			continue
		}
		if len(s.Hosts) == 0 && !c.doc.unread[path+".hosts"] {
			c.host(hosts, "", path)
		}
		for j, h := range s.Hosts {
			at := fmt.Sprintf("%s.hosts[%d]", path, j)
			if why, hint := badHost(h); why != "" {
				c.value(at, why, hint)
				continue
			}
			c.host(hosts, strings.ToLower(h), at)
		}
		if len(s.Routes) == 0 {
			c.value(path+".routes", "a site without routes serves nothing", "for example routes: {/: {static: {root: ./public}}}")
		}
		for _, r := range sortedKeys(s.Routes) {
			c.route(path+".routes["+r+"]", r, s.Routes[r])
		}
		c.rules(path, s)
		c.plugins(path, s.Plugins)
		c.archives(path, s)
		c.headers(path, s)
	}
}

// host reports a host that two sites want.
func (c *checker) host(seen map[string]string, host, path string) {
	before, twice := seen[host]
	if !twice {
		seen[host] = path
		return
	}
	first := c.doc.line(c.doc.value(before))
	if host == "" {
		c.value(path, "a second site for every host", fmt.Sprintf("the one %s has no hosts either; give one of them hosts", first))
		return
	}
	c.value(path, fmt.Sprintf("%s belongs to a site already", host), first)
}

// badHost says what is wrong with a site's host.
func badHost(h string) (why, hint string) {
	name := strings.TrimSuffix(strings.TrimPrefix(h, "*."), ".*")
	if _, err := netip.ParseAddr(h); err == nil {
		return "", ""
	}
	switch {
	case h == "":
		return "an empty host", "leave \"hosts\" out to serve every host"
	case h == "*":
		return "\"*\" is not a host", "leave \"hosts\" out to serve every host"
	case strings.Contains(h, "://") || strings.Contains(h, "/"):
		return fmt.Sprintf("%q is an address, not a host", h), "only the name, like example.org"
	case strings.Contains(h, ":"):
		return fmt.Sprintf("%q has a port: a site's hosts have none", h), "ports belong into \"listen\""
	case strings.Contains(name, "*") || strings.HasPrefix(h, "*.") && strings.HasSuffix(h, ".*"):
		return fmt.Sprintf("%q: one * stands alone before the first dot, or behind the last", h), "like *.example.org, or app.*"
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || len(name) > 253 { // RFC 1035, 2.3.4
			return fmt.Sprintf("%q is not a host name", h), ""
		}
		for _, r := range label {
			if r >= 0x80 {
				return fmt.Sprintf("%q: clients send international names in their ASCII form", h), "the one that begins with xn--"
			}
			if (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return fmt.Sprintf("%q cannot be in a host name: %q", r, h), ""
			}
		}
	}
	return "", ""
}

// route checks a path and that it has exactly one job.
func (c *checker) route(path, route string, r Route) {
	clean := strings.TrimSuffix(route, "/")
	switch {
	case strings.HasPrefix(route, "~") || strings.HasPrefix(route, "^~") || strings.HasPrefix(route, "= /"):
		c.key(path, fmt.Sprintf("a route is a path: %q is a location of nginx", route), "\"/img/\" covers everything below it, \"/a.html\" only itself; the longest match wins")
	case site.IsName(route) && len(route) > 1:
	case !strings.HasPrefix(route, "/"):
		c.key(path, fmt.Sprintf("a route begins with \"/\", %q does not", route), fmt.Sprintf("did you mean %q?", "/"+route))
	case strings.ContainsAny(route, "?#"):
		c.key(path, "a route is a path: without \"?\" and \"#\"", "")
	case strings.HasSuffix(route, "/*") || strings.HasSuffix(route, "/**"):
		c.key(path, "a route needs no \"*\" at its end", fmt.Sprintf("%q covers everything below it", strings.TrimRight(route, "*")))
	case clean != "" && filepath.ToSlash(filepath.Clean(clean)) != clean:
		c.key(path, fmt.Sprintf("no request's path is ever %q", route), fmt.Sprintf("it arrives as %q", filepath.ToSlash(filepath.Clean(clean))))
	}
	var jobs []string
	v := reflect.ValueOf(r)
	for _, f := range c.doc.fieldsOf(v.Type()) {
		if slices.Contains(nonJobKeys, f.name) {
			continue
		}
		if !v.FieldByIndex(f.index).IsNil() || c.doc.unread[join(path, f.name)] {
			jobs = append(jobs, f.name)
		}
	}
	if r.Handler != nil {
		jobs = append(jobs, "handler")
	}
	if slices.Contains(jobs, "static") { // a folder and what is made of its files are one job
		jobs = slices.DeleteFunc(jobs, func(job string) bool { return job == "images" || job == "php" })
	}
	slices.SortFunc(jobs, func(a, b string) int {
		p, q := c.doc.key(join(path, a)), c.doc.key(join(path, b))
		return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
	})
	switch {
	case len(jobs) == 0 && !c.doc.unread[path] && !c.doc.unread[path+unknownKey]:
		c.key(path, fmt.Sprintf("the route %s has no job", route), "one of "+strings.Join(jobNames(), ", "))
	case len(jobs) > 1:
		c.key(join(path, jobs[1]), fmt.Sprintf("the route %s has %d jobs: %s", route, len(jobs), strings.Join(jobs, " and ")), "keep one")
	}
	if r.Static != nil && r.Files == nil {
		c.root(join(path, "static.root"), r.Static.Root)
		for i, dir := range r.Static.Fallback {
			if dir != "" { // else static says so
				c.root(join(path, "static.fallback")+"["+strconv.Itoa(i)+"]", dir)
			}
		}
	}
	if r.Images != nil {
		c.images(path, r)
	}
	if r.PHP != nil {
		c.php(path, r)
	}
	c.nonJobOptions(path, route, r)
}

func jobNames() (names []string) {
	for _, f := range fieldsOf(reflect.TypeFor[Route]()) {
		if !slices.Contains(nonJobKeys, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

func (c *checker) root(path, root string) {
	if root == "" {
		c.value(path, "static needs \"root\": the folder with the files", "for example {root: ./public}")
		return
	}
	if c.cfg.packed != nil && c.cfg.packed(root) {
		return
	}
	if err := CheckDir(root); err != nil {
		c.missing(path, err.Error(), nearHint(root))
	}
}

// CheckDir says in one line why the files of a folder cannot be served.
func CheckDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("there is no folder %s", dir)
	case err != nil:
		return fmt.Errorf("cannot read %s", reason(err))
	case !info.IsDir():
		return fmt.Errorf("%s is a file, not a folder", dir)
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot read the folder %s", reason(err))
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); err != nil && err != io.EOF {
		return fmt.Errorf("cannot read the folder %s", reason(err))
	}
	return nil
}

// reason is a file's error in plain words.
func reason(err error) string {
	if p, ok := err.(*os.PathError); ok { //nolint:errorlint // straight from package os
		switch {
		case os.IsNotExist(err):
			return p.Path + ": there is no such file"
		case os.IsPermission(err):
			return p.Path + ": this user has no permission"
		}
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}

// Near is the path of a file beside this one with nearly its name, or "".
func Near(file string) string {
	const most = 1000 // names looked at in a large folder
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return ""
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(most) // a hint can do without
	slices.Sort(names)
	if n := Nearest(filepath.Base(file), names); n != "" && n != filepath.Base(file) {
		return filepath.Join(filepath.Dir(file), n)
	}
	return ""
}

// nearHint is Near as a hint.
func nearHint(file string) string {
	if n := Near(file); n != "" {
		return fmt.Sprintf("did you mean %s?", n)
	}
	return ""
}
