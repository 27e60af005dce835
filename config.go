package millrace

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/cache"
	"millrace/images"
	"millrace/internal/config"
	"millrace/internal/server"
	"millrace/internal/server/guard"
	"millrace/php"
	"millrace/proxy"
	"millrace/static"
	"millrace/websocket"
)

// Config says what a [Server] does. All that can be wrong with it is said at once,
// by New.
//
// It has fields for what programs set most. The rest is said in YAML, by the keys
// that docs/config.md lists. Where both speak of the same, the field counts.
type Config struct {
	// Listen are addresses for plain HTTP, as [Listen] has them.
	Listen []string
	// Listeners are open ones for plain HTTP. Without any address the server is
	// an http.Handler alone.
	Listeners []net.Listener
	// TLS are addresses for HTTPS and their certificates.
	TLS TLS
	// Sites come on top of those in YAML. One with the hosts of a site there adds
	// its routes to that.
	Sites []Site
	// YAML is a config, or part of one, as in "limits: {body_bytes: 1MiB}".
	// Without it, nothing is logged but errors, and there is no admin listener.
	YAML string
	// Dir is where relative paths in YAML start from. Default: the working directory.
	Dir string
	// ErrorLog gets what goes wrong. Default slog.Default().
	ErrorLog *slog.Logger
	// ImageWorker is a command that converts images: a program that calls
	// images/worker's Main, and its arguments. Without it they are decoded in
	// this process.
	ImageWorker []string
}

// TLS are the addresses for HTTPS. HTTP/2 comes with it.
type TLS struct {
	// Listen are the addresses, as in [Config].
	Listen []string
	// Cert and Key are PEM files, the certificate with its chain. They are read
	// again when they change.
	Cert, Key string
	// Auto gets certificates for the sites' hosts by itself, from Let's Encrypt.
	// Then Listen is :443 if it is empty, and plain requests are redirected.
	Auto bool
}

// Site is what some hosts serve.
type Site struct {
	// Hosts are names without port; *.example.org stands for every name below
	// example.org. Empty: every host that no other site names.
	Hosts []string
	// Routes map a path to what answers it. A path that ends in "/" covers
	// everything below it, any other only itself. The longest match wins.
	Routes map[string]Route
}

// Route is what answers a path: exactly one of its fields is set. Only Files, and
// Images and PHP, stand beside Static.
type Route struct {
	// Handler is the program's own. It sees the whole path, as it came. What the
	// fast lane may do for it: see [Public].
	Handler http.Handler
	// Files are served in place of a folder: an embed.FS, or any other. Static
	// may be nil then.
	Files fs.FS
	// Static serves the folder Root.
	Static *static.Options
	// Images converts the images beside it for the browser.
	Images *images.Options
	// PHP runs the PHP files of the folder beside it.
	PHP *php.Options
	// Cache puts an API behind memory: see [cache.To].
	Cache *cache.Options
	// WebSocket carries WebSockets.
	WebSocket *websocket.Options
	// Proxy are servers that requests are passed on to, as http://host:port.
	Proxy []string
	// Redirect is where the client is sent: a URL, or a path.
	Redirect string
}

// yamlName stands in messages about [Config].YAML.
const yamlName = "Config.YAML"

// internal is the config as the server knows it, checked.
func (c *Config) internal() (*config.Config, error) {
	embedded := 0 // folders of Files, which need a name
	return config.ForProgram(filepath.Join(c.Dir, yamlName), []byte(c.YAML), func(to *config.Config) {
		if c.Listen != nil {
			to.Listen = c.Listen
		}
		c.TLS.add(&to.TLS)
		for _, s := range c.Sites {
			routes := siteOf(to, s.Hosts).Routes
			for pattern, r := range s.Routes {
				routes[pattern] = r.internal(&embedded)
			}
		}
	})
}

func (t *TLS) add(to *server.TLSOptions) {
	if t.Listen != nil {
		to.Listen = t.Listen
	}
	if t.Cert != "" || t.Key != "" {
		to.Cert, to.Key = t.Cert, t.Key
	}
	if t.Auto && to.Auto == nil {
		to.Auto = &server.AutoOptions{}
	}
}

// siteOf is the site with these hosts, a new one if there is none.
func siteOf(to *config.Config, hosts []string) *config.Site {
	own := make([]string, len(hosts))
	for i, h := range hosts {
		own[i] = strings.ToLower(h) // RFC 9110, 4.2.3
	}
	at := slices.IndexFunc(to.Sites, func(s config.Site) bool { return slices.Equal(s.Hosts, own) })
	if at < 0 {
		at = len(to.Sites)
		to.Sites = append(to.Sites, config.Site{Hosts: own})
	}
	s := &to.Sites[at]
	if s.Routes == nil {
		s.Routes = map[string]config.Route{}
	}
	return s
}

func (r Route) internal(embedded *int) config.Route {
	to := config.Route{
		Handler: r.Handler, Files: r.Files,
		Static: r.Static, Images: r.Images, PHP: r.PHP, Cache: r.Cache, WebSocket: r.WebSocket,
	}
	if r.Files != nil {
		o := static.Options{}
		if r.Static != nil {
			o = *r.Static
		}
		*embedded++
		o.Root = fmt.Sprintf("files %d of %s", *embedded, program())
		to.Static = &o
	}
	if r.Proxy != nil {
		to.Proxy = &proxy.Options{}
		to.Proxy.To = r.Proxy
	}
	if r.Redirect != "" {
		to.Redirect = &guard.Redirect{To: r.Redirect}
	}
	return to
}

// program tells one build of this program from the others: embedded images have
// no dates, and what was made of them must not outlive them.
func program() string {
	self, err := os.Executable()
	if err != nil {
		return "this program"
	}
	info, err := os.Stat(self)
	if err != nil {
		return self
	}
	return fmt.Sprint(self, " of ", info.ModTime().UnixNano())
}
