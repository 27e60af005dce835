package config

import (
	"cmp"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"millrace/cache"
	"millrace/proxy"
)

// Upstream is the address of an upstream as a config has it, from what a
// person types: host:port and :port (this machine) are taken as http://. The
// error's text ends in what to write instead.
func Upstream(text string) (string, error) { return upstreamFor("http", text) }

// WebSocketUpstream is Upstream for WebSockets: host:port and :port are taken
// as ws://.
func WebSocketUpstream(text string) (string, error) { return upstreamFor("ws", text) }

func upstreamFor(scheme, text string) (string, error) {
	if full, ok := understood(scheme, text); ok {
		return full, nil
	}
	return "", fmt.Errorf("%q is not the address of an upstream; %s", text, upstreamHint(scheme, text))
}

func understood(scheme, text string) (full string, ok bool) {
	if hasScheme(text) {
		return text, true
	}
	host, path, slash := strings.Cut(text, "/")
	if slash {
		path = "/" + path
	}
	a, err := ParseAddress(host)
	if err != nil || a.Port == 0 {
		return "", false
	}
	a.Host = cmp.Or(a.Host, "127.0.0.1")
	return scheme + "://" + a.String() + path, true
}

// hasScheme reports whether an upstream's address has a scheme.
func hasScheme(text string) bool {
	return strings.Contains(text, "://") || strings.HasPrefix(text, unixPrefix)
}

// exampleUpstream is what hints name, for a scheme.
func exampleUpstream(scheme string) string {
	if scheme == "ws" {
		return "ws://127.0.0.1:9000"
	}
	return scheme + "://127.0.0.1:5000"
}

// upstreamHint says what to write for an upstream without the scheme that it
// most likely needs.
func upstreamHint(scheme, text string) string {
	_, portOnly := strconv.ParseUint(text, 10, 16)
	ip, notIP := netip.ParseAddr(text)
	switch {
	case text == "":
		return "for example " + exampleUpstream(scheme)
	case strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./"):
		return "write unix:" + text
	case portOnly == nil:
		return "write " + scheme + "://127.0.0.1:" + text
	case notIP == nil && ip.Is6():
		return fmt.Sprintf("write %s://[%s]", scheme, text)
	}
	if full, ok := understood(scheme, text); ok {
		return "write " + full
	}
	if fixed := withSlashes(text); fixed != "" {
		return "write " + fixed
	}
	if strings.ContainsAny(text, " \t\r\n") {
		return "for example " + exampleUpstream(scheme)
	}
	return "write " + scheme + "://" + text
}

// withSlashes repairs an address whose scheme lacks a colon or a slash: http//x, http:/x.
// It is "" for others.
func withSlashes(text string) string {
	for _, scheme := range []string{"http", "https", "h2c"} {
		rest, ok := strings.CutPrefix(text, scheme)
		if host := strings.TrimLeft(rest, ":/"); ok && host != "" && strings.HasPrefix(rest, "/") || ok && strings.HasPrefix(rest, ":/") {
			return scheme + "://" + host
		}
	}
	return ""
}

// route is one route of the config, with what it is called.
type route struct {
	Route
	pattern, path string
}

// routes lists the routes of all sites in a fixed order.
func (c *checker) routes() []route {
	if c.all != nil {
		return c.all
	}
	for i, s := range c.cfg.Sites {
		for _, pattern := range sortedKeys(s.Routes) {
			c.all = append(c.all, route{s.Routes[pattern], pattern, fmt.Sprintf("sites[%d].routes[%s]", i, pattern)})
		}
	}
	return c.all
}

// upstreams checks what a pool cannot know: that no upstream is this server itself. What it
// reports, the pool's own Check does not report again.
func (c *checker) upstreams() {
	var own []listener
	for i, text := range c.cfg.Listen {
		own = c.own(own, fmt.Sprintf("listen[%d]", i), text)
	}
	for i, text := range c.cfg.TLS.Listen {
		own = c.own(own, fmt.Sprintf("tls.listen[%d]", i), text)
	}
	own = c.own(own, "admin.listen", c.cfg.Admin.Listen)
	sticky := map[string]string{} // servers, by the site and the cookie
	for _, r := range c.routes() {
		if r.Proxy != nil && r.Proxy.Sticky.Cookie != "" {
			host, _, _ := strings.Cut(r.path, ".routes[")
			name, to := host+" "+r.Proxy.Sticky.Cookie, strings.Join(r.Proxy.To, " ")
			if other, taken := sticky[name]; taken && other != to {
				c.key(join(r.path, "proxy.sticky"), "another route of this site has the same cookie for other servers: each would undo the other's", "choose another name")
			}
			sticky[name] = to
		}
		if r.Cache != nil {
			if r.Cache.Varies() {
				c.key(join(r.path, "cache.request_headers"), "a cache's answers are for everyone: these variables would tell the upstream who asked first", "leave the variables out, or use a proxy route")
			}
			if r.Cache.Sticky.Cookie != "" {
				c.key(join(r.path, "cache.sticky"), "a cache's answers are for everyone: a cookie in them would keep them out of it", "use hash_by: client, or a proxy route")
			}
			if len(r.Cache.Canary.To) > 0 || len(r.Cache.Mirror.To) > 0 {
				c.key(join(r.path, "cache"), "a cache's answers are for everyone, and it asks for each of them once: it has no canary and no mirror", "leave them out, or use a proxy route")
			}
			if r.Cache.ProxyProtocol != "" {
				c.key(join(r.path, "cache.proxy_protocol"), "a cache asks for everyone: its requests are no single client's", "leave it out, or use a proxy route")
			}
			c.upstreamsOf(join(r.path, "cache"), "http", r.pattern, r.Cache.Options, own)
		}
		if r.Proxy != nil {
			c.upstreamsOf(join(r.path, "proxy"), "http", r.pattern, *r.Proxy, own)
			if len(r.Proxy.Canary.To) > 0 {
				c.upstreamsOf(join(r.path, "proxy.canary"), "http", r.pattern, r.Proxy.OfCanary(), own)
			}
			if len(r.Proxy.Mirror.To) > 0 {
				c.upstreamsOf(join(r.path, "proxy.mirror"), "http", r.pattern, proxy.Options{Options: r.Proxy.OfMirror()}, own)
			}
		}
		if r.WebSocket != nil && r.WebSocket.Proxy != nil {
			c.upstreamsOf(join(r.path, "websocket.proxy"), "ws", r.pattern, *r.WebSocket.Proxy, own)
		}
	}
}

func (c *checker) own(all []listener, path, text string) []listener {
	if a, err := ParseAddress(text); err == nil { // what is wrong with it is said elsewhere
		all = append(all, listener{a, path})
	}
	return all
}

// upstreamsOf checks one job's. scheme is the one that its addresses mostly have.
func (c *checker) upstreamsOf(path, scheme, pattern string, o proxy.Options, own []listener) {
	if err := o.CheckPrefix(pattern); err != nil {
		c.value(join(path, "strip_prefix"), err.Error(), "")
	}
	to := join(path, "to")
	if c.doc.unread[path] || c.doc.unread[path+unknownKey] {
		c.doc.unread[to] = true
	}
	if len(o.To) == 0 && !c.doc.unread[to] {
		c.value(to, lastKey(path)+" needs \"to\": the upstream's address", "for example "+lastKey(path)+": "+exampleUpstream(scheme))
		c.doc.unread[to] = true
	}
	for i, text := range o.To {
		at := fmt.Sprintf("%s[%d]", to, i)
		switch l, self := reached(text, own); {
		case !hasScheme(text):
			c.value(at, fmt.Sprintf("%q does not say how to talk to the upstream", text), upstreamHint(scheme, text))
		case self && l.path == "admin.listen":
			c.value(at, text+" is the admin listener of this server, which must never be public", "name the upstream's address")
		case self:
			c.value(at, text+" is this server itself: requests would go round in circles", c.elsewhere(l, l))
		default:
			continue
		}
		c.doc.unread[to], c.doc.unread[at] = true, true
	}
}

// reached is the listener of this server that an upstream's address leads to, if any.
func reached(upstream string, own []listener) (listener, bool) {
	if path, ok := strings.CutPrefix(upstream, unixPrefix); ok {
		for _, l := range own {
			if l.Unix != "" && absolute(l.Unix) == absolute(path) {
				return l, true
			}
		}
		return listener{}, false
	}
	u, err := url.Parse(upstream)
	if err != nil {
		return listener{}, false
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "h2c": 80, "ws": 80, "https": 443, "wss": 443}[u.Scheme]
	}
	for _, l := range own {
		if l.Unix == "" && l.Port == port && port != 0 && l.answersTo(u.Hostname()) {
			return l, true
		}
	}
	return listener{}, false
}

// answersTo reports whether connections to a host of this name arrive at a
// listener of that host; names other than localhost are not looked up.
func (a Address) answersTo(host string) bool {
	if a.Host != "" && strings.EqualFold(a.Host, host) {
		return true
	}
	for _, ip := range addressesOf(host) {
		switch family := a.family(); {
		case family == every, family == every4 && ip.Is4(), family == every6 && ip.Is6():
			if ip.IsLoopback() || ofThisMachine(ip) {
				return true
			}
		case family == name && strings.EqualFold(a.Host, "localhost") && ip.IsLoopback():
			return true
		case family == one4 || family == one6:
			if own, err := netip.ParseAddr(a.Host); err == nil && own.Unmap() == ip {
				return true
			}
		}
	}
	return false
}

// addressesOf are the addresses that connecting to a host tries.
func addressesOf(host string) []netip.Addr {
	loopback4, loopback6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	ip, err := netip.ParseAddr(host)
	switch {
	case strings.EqualFold(host, "localhost"):
		return []netip.Addr{loopback4, loopback6}
	case err != nil:
		return nil
	case ip.IsUnspecified(): // leads to this machine
		return []netip.Addr{loopback4, loopback6}
	}
	return []netip.Addr{ip.Unmap()}
}

// ofThisMachine reports whether an interface has the address.
func ofThisMachine(ip netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false // then it is not known, and this check only helps
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip {
			return true
		}
	}
	return false
}

// keptAnswers is a cache that keeps answers in a folder.
type keptAnswers struct {
	*cache.Options
	path, dir string // of cache.disk in the config; the folder
}

// disks checks that every cache has a folder of its own, which nobody serves.
func (c *checker) disks() {
	var caches []keptAnswers
	for _, r := range c.routes() {
		if r.Cache == nil || r.Cache.Disk == "" {
			continue
		}
		one := keptAnswers{r.Cache, join(r.path, "cache.disk"), absolute(r.Cache.Disk)}
		if info, err := os.Stat(one.dir); err == nil && !info.IsDir() {
			c.value(one.path, r.Cache.Disk+" is a file, not a folder", "")
			continue
		}
		caches = append(caches, one)
	}
	if len(caches) == 0 {
		return
	}
	c.apart(caches)
	type folder struct{ written, pattern string }
	served := map[string]folder{}
	for _, r := range c.routes() {
		if r.Static == nil {
			continue
		}
		for _, dir := range r.Static.Folders() {
			if dir == "" {
				continue
			}
			if at := absolute(dir); served[at] == (folder{}) {
				served[at] = folder{dir, r.pattern}
			}
		}
	}
	for _, one := range caches {
		for dir := range upwards(one.dir) {
			if by, ok := served[dir]; ok {
				c.value(one.path, fmt.Sprintf("%s is within %s, which the route %s serves: anyone could read what is kept there",
					one.Disk, by.written, by.pattern), "keep it elsewhere, for example in /var/cache/millrace")
				break
			}
		}
	}
}

// apart checks that no cache's folder is another one's, or within it. Routes with the
// same options have one cache.
func (c *checker) apart(caches []keptAnswers) {
	at := map[string]keptAnswers{}     // the first one in each folder
	inside := map[string]keptAnswers{} // the first one in or below each folder
	for _, one := range caches {
		other, found := inside[one.dir]
		for dir := range upwards(one.dir) {
			if !found {
				other, found = at[dir]
			}
		}
		if found && !reflect.DeepEqual(*one.Options, *other.Options) {
			c.value(one.path, fmt.Sprintf("the folder %s belongs to another cache already", one.Disk), c.kept(other.path))
		}
		if _, taken := at[one.dir]; !taken {
			at[one.dir] = one
		}
		for dir := range upwards(one.dir) {
			if _, taken := inside[dir]; !taken {
				inside[dir] = one
			}
		}
	}
}

// upwards yields a folder and those that it is in, the root last.
func upwards(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(dir) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
		}
	}
}

// kept names the place in the config of another cache's folder.
func (c *checker) kept(path string) string {
	const each = "give each cache a folder of its own, or all of them the same options"
	if p := c.doc.value(path); p.line > 0 {
		return c.doc.line(p) + "; " + each
	}
	return each
}

// absolute is a path without links as far as it exists.
func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return filepath.Clean(path)
	}
	rest := ""
	for dir := abs; ; dir = filepath.Dir(dir) {
		if found, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(found, rest)
		}
		if dir == filepath.Dir(dir) {
			return abs
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
