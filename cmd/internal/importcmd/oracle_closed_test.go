package importcmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/importer/compare"
	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// generator writes configs by chance.
type generator struct {
	*rand.Rand
	root, passwords, upstream string
	aliases                   bool // paths may begin with that of an alias
}

func (g *generator) of(list ...string) string { return list[g.IntN(len(list))] }

// often is true in so many of a hundred cases.
func (g *generator) often(percent int) bool { return g.IntN(100) < percent }

// segments are what paths are made of, in configs and in requests.
func segments() []string { return []string{"a", "b", "c", "ab", "x.jpg", "y.php", "z.txt"} }

// path is one that a client may ask for.
func (g *generator) path() string {
	var b strings.Builder
	if g.aliases && g.often(40) {
		b.WriteString("/alias")
	}
	for range 1 + g.IntN(4) {
		b.WriteString("/" + g.of(segments()...))
	}
	switch g.IntN(12) {
	case 0, 1, 2:
		b.WriteString("/")
	case 3:
		b.WriteString("%0a")
	case 4:
		return strings.Replace(b.String(), "/", "//", 1)
	case 5:
		return strings.Replace(b.String(), "a", "%61", 1)
	case 6:
		return b.String() + "/../" + g.of(segments()...)
	}
	return b.String()
}

// nginxHandler is what answers in a location.
func (g *generator) nginxHandler() string {
	return g.of("proxy_pass "+g.upstream+";", "proxy_pass "+g.upstream+";", "root "+g.root+";", "return 200 open;")
}

// nginxGuard is what a location asks of clients.
func (g *generator) nginxGuard() string {
	switch g.IntN(18) {
	case 0, 1:
		return "deny all;"
	case 15:
		return "satisfy all; allow 127.0.0.0/8; deny all; auth_basic x; auth_basic_user_file " + g.passwords + ";"
	case 16:
		return "satisfy any; allow 10.0.0.1; deny all; auth_basic off;"
	case 2:
		return "allow 10.0.0.1; deny all;"
	case 3:
		return "deny 10.0.0.1; allow 127.0.0.0/8; deny all;"
	case 4, 5:
		return "auth_basic x; auth_basic_user_file " + g.passwords + ";"
	case 6:
		return "auth_basic off;"
	case 7:
		return "allow all;"
	case 8:
		return "internal;"
	case 9:
		return "limit_except POST { deny all; }"
	case 10:
		return "if ($request_method = GET) { return 403; }"
	case 11:
		return "if ($uri ~ " + g.nginxExpression() + ") { return 404; }"
	case 12:
		return "deny 127.0.0.1;"
	case 13:
		return "rewrite " + g.nginxExpression() + " /" + g.of(segments()...) + "/" + g.of(segments()...) + " " + g.of("last", "break", "") + ";"
	case 14:
		return "satisfy any; deny all; auth_basic x; auth_basic_user_file " + g.passwords + ";"
	}
	return ""
}

func (g *generator) nginxExpression() string {
	return g.of(`\.jpg$`, `\.php$`, `\.(jpg|txt)$`, `^/a/`, `^/b`, `/c/`, `/ab`, `^/a/.*\.jpg$`, `b`, `^/(a|b)/`, `^/a/|\.txt$`, `\.PHP$`)
}

// nginxLocations are those of a block, and what stands within them.
func (g *generator) nginxLocations(outer string, within, depth int) string {
	const server, prefix, expression = 0, 1, 2
	var b strings.Builder
	seen := map[string]bool{}
	for range 1 + g.IntN(5-depth) {
		var modifier, name string
		next := prefix
		switch {
		case within == expression || g.often(40):
			modifier, name, next = g.of("~ ", "~ ", "~* "), g.nginxExpression(), expression
		default:
			name = outer
			if within == server {
				name = "/"
			}
			for range g.IntN(3) {
				name += g.of("a", "b", "c", "ab", "x.jpg") + g.of("/", "/", "")
			}
			modifier = g.of("", "", "", "^~ ", "= ")
		}
		if seen[strings.TrimPrefix(modifier, "^~ ")+name] {
			continue
		}
		seen[strings.TrimPrefix(modifier, "^~ ")+name] = true
		body := g.nginxGuard() + " "
		if next == prefix && modifier != "= " && strings.HasSuffix(name, "/") && within != expression && g.often(15) {
			body += "alias " + g.root + "/" + g.of("a", "b", "c/a") + "/;"
		} else if g.often(85) {
			body += g.nginxHandler()
		} else {
			body += g.of("return 403;", "return 404;", "return 410;", "deny all;", "return 301 /b/;")
		}
		if depth < 3 && modifier != "= " && g.often(40) {
			body += " " + g.nginxLocations(name, next, depth+1)
		}
		fmt.Fprintf(&b, "location %s%s { %s }\n", modifier, name, body)
	}
	return b.String()
}

// nginxConfig is a config of so many sites.
func (g *generator) nginxConfig(sites int) string {
	var b strings.Builder
	b.WriteString("events { }\nhttp {\nproxy_intercept_errors off;\n")
	for i := range sites {
		guard := ""
		if g.often(15) {
			guard = g.of("deny 127.0.0.1;", "auth_basic x; auth_basic_user_file "+g.passwords+";", "allow 127.0.0.1; deny all;", "error_page 403 404 /c/z.txt;")
		}
		fmt.Fprintf(&b, "server { listen 80; server_name s%d.example; root %s; %s\n%s}\n", i, g.root, guard, g.nginxLocations("/", 0, 0))
	}
	return b.String() + "}\n"
}

// generate prepares files that are there for many paths, and an upstream that has all.
func generate(t *testing.T) *generator {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("MILLRACE_ORACLE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	dir := t.TempDir()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), root: filepath.Join(dir, "root"), passwords: filepath.Join(dir, "passwords")}
	var fill func(folder string, depth int)
	fill = func(folder string, depth int) {
		for _, s := range segments() {
			switch name := filepath.Join(folder, s); {
			case strings.Contains(s, "."):
				write(t, name, "file")
			case depth < 3:
				fill(name, depth+1)
			}
		}
		write(t, filepath.Join(folder, "index.html"), "index")
	}
	fill(g.root, 0)
	write(t, g.passwords, "alice:$2a$04$JQbQPmFZwv4wlCVYlYPyR.6vGSnJdE7k8B1Q2VqhCjWx5F5nIYdWa\n")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "upstream") }))
	t.Cleanup(upstream.Close)
	g.upstream = upstream.URL
	return g
}

// serveBoth starts the server of a config, and Millrace by what the importer makes of it.
func serveBoth(t *testing.T, c *Compare) []compare.Site {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	r := &comparison{Compare: *c, streams: cli.Streams{Out: io.Discard, Err: io.Discard}, dir: dir}
	cert, key, err := compare.SelfSigned(dir, []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if r.theirs, err = r.model(ctx, cert, key); err != nil {
		t.Fatal(err)
	}
	srv, err := engine.New(r.config, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }() // waited for at the end of the test
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = r.theirs.Stop() // it has served
	})
	return r.sites()
}

// status is what a server answers.
func status(t *testing.T, client *http.Client, addr, host, target string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.URL = &url.URL{Scheme: "http", Host: addr, Opaque: target}
	r.Host = host
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // the status is all that counts
	return res.StatusCode
}

// neverOpens asks both servers for paths by chance: what theirs refuses, ours does not
// answer. config is the text, for messages, by the site's number.
func (g *generator) neverOpens(t *testing.T, sites []compare.Site, each int, config func(host string) string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	refused, served, alike := 0, 0, 0
	for _, s := range sites {
		told := 0
		for range each {
			target := g.path()
			theirs, ours := status(t, client, s.Theirs, s.Host, target), status(t, client, s.Ours, s.Host, target)
			switch {
			case theirs == http.StatusNotFound && strings.HasSuffix(target, "%0a"): // no file is called so
			case theirs >= 400 && theirs < 500: // 500 is for paths that are rewritten in circles
				refused++
				if ours < 300 && told < 2 {
					told++
					t.Errorf("%s%s: refused with %d, and open here\n%s", s.Host, target, theirs, config(s.Host))
				}
			case theirs < 300:
				served++
				if ours < 400 {
					alike++
				}
			}
		}
	}
	t.Logf("%d refused, %d served, of these %d by us", refused, served, alike)
	if refused < each || served < each || alike*3 < served {
		t.Errorf("%d refused, %d served, of these only %d by us: it compares too little", refused, served, alike)
	}
}

// TestNginxNeverOpens: whatever locations nginx is given, nested and with all that keeps
// clients out, what it refuses is not served by what the importer writes.
func TestNginxNeverOpens(t *testing.T) {
	servertest.Nginx().Path(t)
	g := generate(t)
	const sites, each = 120, 60
	text := g.nginxConfig(sites)
	file := filepath.Join(t.TempDir(), "nginx.conf")
	write(t, file, text)
	g.neverOpens(t, serveBoth(t, &Compare{Nginx: file, Prefix: "/usr/share/nginx"}), each, func(host string) string {
		blocks := strings.Split(text, "\nserver ")
		return blocks[slices.IndexFunc(blocks, func(b string) bool { return strings.Contains(b, "server_name "+host+";") })] + "\n" + translatedSite(t, file, host)
	})
}

// translatedSite is what the importer makes of a site of a config.
func translatedSite(t *testing.T, file, host string) string {
	t.Helper()
	yaml := filepath.Join(t.TempDir(), "millrace.yaml")
	if err := (&Nginx{File: file, Prefix: "/usr/share/nginx", output: output{Output: yaml}}).Run(cli.Streams{Out: io.Discard, Err: io.Discard}); err != nil {
		return err.Error()
	}
	return siteOf(yaml, host)
}

// siteOf is a site of a config of ours.
func siteOf(yaml, host string) string {
	text, err := os.ReadFile(yaml)
	if err != nil {
		return err.Error()
	}
	for site := range strings.SplitSeq(string(text), "\n  # ") {
		if strings.Contains(site, "["+host+"]") {
			return site
		}
	}
	return "no site"
}
