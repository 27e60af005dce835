package admit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"millrace/internal/wire/netset"
	"millrace/internal/wire/urlpath"
)

// Traps are paths that only somebody asks for who looks for holes. A program that
// does is turned away from all sites with traps for a while: 403, from the fast
// lane as well. What a browser may have sent catches nobody: a page's author can
// have its readers ask for anything. "traps: on" stands for all presets.
type Traps struct {
	// Presets are lists of paths: wordpress (/wp-login.php, /xmlrpc.php), secrets
	// (/.env, /.git/config), php (phpMyAdmin, PHPUnit, shells) and devices (routers,
	// cameras, consoles of servers). They catch only where the site itself has
	// nothing: its answer is 403, 404, 405 or 410. Default all of them, [] for none.
	Presets []string `yaml:"presets"`
	// Paths are further ones. They catch whatever the site has there; the answer
	// is 404. One that ends in "/" stands for everything below it.
	Paths []string `yaml:"paths"`
	// For is how long an address is caught. Default 10m, at most 24h.
	For time.Duration `yaml:"for"`
	// Rate lets those who are caught ask so often, 1/s for example, instead of not at
	// all. More gets 429.
	Rate string `yaml:"rate"`
	// Except are addresses and networks that are never caught. The machine itself
	// never is.
	Except []string `yaml:"except"`
}

// UnmarshalText lets a site say "traps: on".
func (o *Traps) UnmarshalText(text []byte) error {
	if s := string(text); s != "on" && s != "true" {
		return fmt.Errorf("%q: write on, or the settings", s)
	}
	return nil
}

const (
	defaultCaught = 10 * time.Minute
	longestCaught = 24 * time.Hour
	// maxTraps bounds the paths of a config: each is compared with every request
	// that the fast lane does not answer.
	maxTraps = 1000
)

// trapSet is a preset: names are last parts of paths, starts are beginnings. All
// in lower case.
type trapSet struct{ names, starts []string }

// trapSets are what scanners ask for by the thousand, and no page links to.
var trapSets = map[string]trapSet{
	"wordpress": {
		names: []string{"wp-login.php", "xmlrpc.php", "wlwmanifest.xml", "wp-config.php", "wp-config.php.bak", "wp-config.bak", "setup-config.php"},
	},
	"secrets": {
		names: []string{
			".env", ".env.local", ".env.production", ".env.prod", ".env.backup", ".env.bak", ".env.old", ".env.save", ".env.dev",
			".htpasswd", ".netrc", ".npmrc", ".pgpass", ".bash_history", "id_rsa", "id_ed25519", "credentials.json", "sftp-config.json",
		},
		starts: []string{"/.git/", "/.svn/", "/.hg/", "/.aws/", "/.ssh/", "/.docker/", "/.kube/", "/.vscode/sftp.json"},
	},
	"php": {
		names:  []string{"phpinfo.php", "eval-stdin.php", "adminer.php", "alfa.php", "shell.php", "wso.php", "c99.php", "r57.php", "filemanager.php"},
		starts: []string{"/phpmyadmin/", "/pma/", "/dbadmin/", "/myadmin/", "/vendor/phpunit/", "/_ignition/"},
	},
	"devices": {
		starts: []string{
			"/boaform/", "/gponform/", "/hnap1", "/cgi-bin/luci", "/goform/", "/setup.cgi", "/dana-na/", "/remote/fgt_lang", "/manager/html",
			"/actuator/env", "/actuator/heapdump", "/actuator/gateway/", "/solr/admin/", "/owa/auth/", "/autodiscover/autodiscover.json", "/geoserver/web",
		},
	},
}

// TrapPresets are the names of the lists.
func TrapPresets() []string { return []string{"wordpress", "secrets", "php", "devices"} }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Traps) Check() map[string]error {
	faults := map[string]error{}
	for i, name := range o.Presets {
		if _, ok := trapSets[name]; !ok {
			faults[fmt.Sprintf("presets[%d]", i)] = fmt.Errorf("%q is no list of traps: there are %s", name, strings.Join(TrapPresets(), ", "))
		}
	}
	for i, path := range o.Paths {
		if path == "/" || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?*") {
			faults[fmt.Sprintf("paths[%d]", i)] = fmt.Errorf("%q is no path to set a trap at: write one like /old-login, or /old-admin/ for everything below it", path)
		}
	}
	if len(o.Paths) > maxTraps {
		faults["paths"] = fmt.Errorf("%d paths are too many: at most %d", len(o.Paths), maxTraps)
	}
	if o.Presets != nil && len(o.Presets)+len(o.Paths) == 0 {
		faults["presets"] = errors.New("there is no trap: name presets or paths, or leave traps out")
	}
	if o.For < 0 || o.For > 0 && o.For < time.Second || o.For > longestCaught {
		faults["for"] = fmt.Errorf("%s is out of range: from 1s to 24h", o.For)
	}
	if o.Rate != "" {
		if _, _, err := (Rate{Rate: o.Rate}).parse(); err != nil {
			faults["rate"] = err
		}
	}
	if _, err := netset.Parse(o.Except); err != nil {
		faults["except"] = err
	}
	return faults
}

// Trap is Traps in force. A nil one catches nobody. It is safe for concurrent use.
type Trap struct {
	table  *Table
	lasts  time.Duration
	limit  *Limit // of those who are caught; nil: they may not ask
	except netset.Set
	names  map[string]bool
	starts []string
	own    map[string]bool
	below  []string // of the config's own: what lies below them
}

// Trap sets traps. What this table has caught goes on.
func (t *Table) Trap(o Traps) (*Trap, error) {
	for name, err := range o.Check() {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	except, err := netset.Parse(o.Except)
	if err != nil {
		return nil, fmt.Errorf("except: %w", err)
	}
	p := &Trap{table: t, lasts: o.For, except: except, names: map[string]bool{}, own: map[string]bool{}}
	p.lasts = cmp.Or(p.lasts, defaultCaught)
	if o.Rate != "" {
		if p.limit, err = t.Limit(Rate{Rate: o.Rate}, "caught "+o.Rate); err != nil {
			return nil, fmt.Errorf("rate: %w", err)
		}
	}
	presets := o.Presets
	if presets == nil {
		presets = TrapPresets()
	}
	for _, name := range presets {
		for _, n := range trapSets[name].names {
			p.names[n] = true
		}
		p.starts = append(p.starts, trapSets[name].starts...)
	}
	for _, path := range o.Paths {
		if p.own[path] = true; strings.HasSuffix(path, "/") {
			p.below = append(p.below, path)
		}
	}
	return p, nil
}

// Own reports whether a trap of the config's own is at a path: nothing else is there.
func (p *Trap) Own(path string) bool {
	return p != nil && (p.own[path] || slices.ContainsFunc(p.below, func(start string) bool { return strings.HasPrefix(path, start) }))
}

// At reports whether a trap is at a path: one of the config's own, or one of a
// preset, which catches where the site has nothing.
func (p *Trap) At(path string) bool {
	if p == nil {
		return false
	}
	lower := strings.ToLower(path)
	return p.Own(path) || p.names[lower[strings.LastIndexByte(lower, '/')+1:]] ||
		slices.ContainsFunc(p.starts, func(start string) bool { return strings.HasPrefix(lower, start) })
}

// Asked is Own and At for a path however some server may read it: no spelling gets
// round a trap.
func (p *Trap) Asked(u *url.URL) (own, at bool) {
	switch {
	case p == nil:
	case !urlpath.Several(u.Path, u.RawPath):
		return p.Own(u.Path), p.At(u.Path)
	default:
		readings := urlpath.Readings(u)
		return slices.ContainsFunc(readings, p.Own), slices.ContainsFunc(readings, p.At)
	}
	return false, false
}

// Answered catches the client of a request for a trap by the status of its answer,
// and reports whether it did. A page can have a reader's browser ask for anything:
// that catches nobody.
func (p *Trap) Answered(r *http.Request, client netip.Addr, status int) bool {
	if !missing(status) || !client.IsValid() || client.IsLoopback() || p.except.Has(client) || maybeBrowser(r.Header) {
		return false
	}
	p.table.Catch(client, time.Now(), p.lasts)
	return true
}

// missing reports whether a status says that nothing is there for who asks.
func missing(status int) bool {
	switch status {
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return true
	}
	return false
}

// ask is what a gate asks for it.
func (p *Trap) ask(client netip.Addr, now time.Time) Verdict {
	if p == nil || !p.table.Caught(client, now) || p.except.Has(client) {
		return Verdict{}
	}
	if p.limit == nil {
		return Verdict{Denied: true, Caught: true}
	}
	if wait := p.limit.take(client, now, nil); wait > 0 {
		return Verdict{Limit: p.limit, Wait: wait, Caught: true}
	}
	return Verdict{}
}
