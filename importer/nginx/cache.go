package nginx

import (
	"fmt"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
	"millrace/internal/route/headers"
)

// cache translates proxy_cache; it reports whether answers are kept.
func (t *site) cache(l *location, o *plan.Proxy) bool {
	zone := l.last("proxy_cache")
	if zone == nil || zone.Arg(0) == "off" {
		t.im.Used(zone)
		return false
	}
	t.im.Used(zone)
	t.cacheTimes(l, o)
	t.cacheStale(l, o)
	t.cacheKey(l, o)
	t.cacheBypass(l)
	t.cacheSize(o, zone.Arg(0))
	if d := l.last("proxy_ignore_headers"); d != nil {
		t.im.Leave(d, "a rule of the cache with ttl counts more than what the answer says: rules: [{path: /*, ttl: 10m}]; share: true for answers with cookies")
	}
	if !o.Fields.Empty() {
		o.Fields = t.sharedHeaders(l)
	}
	t.ownFolder(o)
	return true
}

// sharedHeaders are the fields that the upstream of a cache is told: its answers are for
// everyone.
func (t *site) sharedHeaders(l *location) plan.Fields {
	fields := plan.Fields{Requests: true}
	for _, d := range l.all("proxy_set_header") {
		name := strings.ToLower(d.Arg(0))
		op := headers.Set
		switch {
		case name == "host" || name == "x-forwarded-proto" || name == "x-forwarded-host":
			continue
		case name == "x-real-ip":
			t.im.Partly(d, "a cache's answers are for everyone: its upstream is not told of one client")
			continue
		case strings.Contains(d.Arg(1), "$"):
			if fields.Put(plan.Answers{}, headers.Remove, d.Arg(0), "") == "" {
				t.im.Leave(d, "a cache's answers are for everyone: its request_headers have no variables")
			}
			continue
		case d.Arg(1) == "":
			op = headers.Remove
		}
		fields.Put(plan.Answers{}, op, d.Arg(0), d.Arg(1))
	}
	return fields
}

// ownFolder gives a cache with options of its own a folder of its own, where nginx has
// one zone for several.
func (t *site) ownFolder(o *plan.Proxy) {
	if o.Disk == "" {
		return
	}
	for base, n := o.Disk, 2; ; n++ {
		other := t.im.disks[o.Disk]
		if other == nil || other.Node().String() == o.Node().String() {
			break
		}
		o.Disk = fmt.Sprintf("%s-%d", base, n)
	}
	t.im.disks[o.Disk] = o
}

// cacheTimes translates proxy_cache_valid.
func (t *site) cacheTimes(l *location, o *plan.Proxy) {
	for _, d := range l.all("proxy_cache_valid") {
		texts := d.Words()
		if len(texts) == 0 {
			continue
		}
		age, ok := duration(texts[len(texts)-1])
		if !ok {
			t.im.Leave(d, "set ttl of the cache")
			continue
		}
		t.im.Used(d)
		statuses := texts[:len(texts)-1]
		var others []string
		for _, s := range statuses {
			switch s {
			case "200", "any":
				o.TTL = age
			case "301", "302":
			default:
				others = append(others, s)
			}
		}
		if len(statuses) == 0 {
			o.TTL = age
		}
		if len(others) > 0 {
			o.Rules = append(o.Rules, plan.CacheRule{Status: others, TTL: age})
		}
	}
}

// cacheStale translates proxy_cache_use_stale. nginx keeps what has expired as
// long as there is room: a day stands for it.
func (t *site) cacheStale(l *location, o *plan.Proxy) {
	d := t.im.Take(l.last("proxy_cache_use_stale"))
	if d == nil {
		return
	}
	for _, w := range d.Words() {
		switch {
		case w == "updating":
			o.StaleWhileRevalidate = "24h"
		case w == "error" || w == "timeout" || strings.HasPrefix(w, "http_5"):
			o.StaleIfError = "24h"
		}
	}
}

func (t *site) cacheKey(l *location, o *plan.Proxy) {
	d := l.last("proxy_cache_key")
	if d == nil {
		return
	}
	rest := d.Arg(0)
	for _, part := range []string{"$scheme", "$proxy_host", "$request_method", "$host", "$http_host", "$request_uri", "$uri", "$is_args", "$args", "://", "|", ":", "$server_name"} {
		rest = strings.ReplaceAll(rest, part, "")
	}
	var key plan.CacheKey
	for _, m := range variable().FindAllString(rest, -1) {
		if name, is := strings.CutPrefix(m, "$http_"); is {
			key.Headers = append(key.Headers, headerName(name))
		} else if name, is := strings.CutPrefix(m, "$cookie_"); is {
			key.Cookies = append(key.Cookies, name)
		} else {
			t.im.Leave(d, fmt.Sprintf("the key has no %s: see key of the cache in docs/config.md", m))
			return
		}
	}
	t.im.Standard(d, "host, path and query are the key of an answer")
	if !strings.Contains(d.Arg(0), "request_uri") && !strings.Contains(d.Arg(0), "args") {
		key.NoQuery = true
	}
	if o.Key = key; key.NoQuery || len(key.Headers)+len(key.Cookies) > 0 {
		t.im.Used(d)
	}
}

// cacheBypass are requests that the cache is not for.
func (t *site) cacheBypass(l *location) {
	for _, name := range []string{"proxy_cache_bypass", "proxy_no_cache"} {
		for _, d := range l.all(name) {
			known := true
			for _, w := range d.Words() {
				known = known && (strings.HasPrefix(w, "$cookie_") || w == "$http_authorization" || w == "$http_cache_control" || w == "$http_pragma")
			}
			if known {
				t.im.Standard(d, "requests with cookies or Authorization pass by the cache, and a client cannot make it ask again (docs/cache.md)")
			} else {
				t.im.Leave(d, "requests with cookies or Authorization pass by the cache; for others write a rule with a condition that names a proxy route")
			}
		}
	}
}

// cacheSize takes over the bounds of a zone.
func (t *site) cacheSize(o *plan.Proxy, zone string) {
	for _, d := range t.server.parent.each("proxy_cache_path") {
		if !strings.Contains(d.String(), "keys_zone="+zone+":") {
			continue
		}
		for _, w := range d.Words() {
			if v, is := strings.CutPrefix(w, "max_size="); is {
				if s, ok := size(v); ok {
					o.Disk, o.DiskSize = diskOf(d), s
				}
			}
		}
		t.im.Used(d)
	}
}

// diskOf is a folder beside nginx's: neither can read the other's files.
func diskOf(d *draft.Directive) string {
	name := strings.ReplaceAll(strings.Trim(strings.TrimPrefix(d.Arg(0), "/var/cache/"), "/"), "/", "-")
	return "/var/cache/millrace/" + name
}
