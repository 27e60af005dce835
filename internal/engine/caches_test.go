package engine_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/cache/control"
	"millrace/cache/purge"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/ops/admin"
	"millrace/internal/process/servertest"
	"millrace/store/disk"
)

// api is an upstream that counts: answers of size bytes, good for an hour.
func api(t *testing.T, size int) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = fmt.Fprintf(w, "%s %d%s", r.URL.Path, n, strings.Repeat(" ", size)) // what the cache does not read is its own loss
	}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}

func reload(t *testing.T, srv *engine.Server, cfg *config.Config) {
	t.Helper()
	if err := srv.Reload(cfg); err != nil {
		t.Fatal(err)
	}
}

func TestReloadKeepsWhatACacheHolds(t *testing.T) {
	url, asked := api(t, 0)
	site := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {cache: {to: %s, memory: 8MiB}}\n", url)
	srv := start(t, parse(t, site))
	c := dial(t, srv.Addrs()[0])
	want := "/a 1"
	for range 3 {
		if _, body := c.get("a", "/a"); body != want {
			t.Fatalf("before: %q", body)
		}
		reload(t, srv, parse(t, site+"    /gone: {deny: {}}\n"))
		if _, body := c.get("a", "/a"); body != want {
			t.Fatalf("after a reload that changes something else: %q", body)
		}
		reload(t, srv, parse(t, site))
	}
	reload(t, srv, parse(t, strings.Replace(site, "memory", "ttl: 5m, memory", 1)))
	if _, body := c.get("a", "/a"); body != "/a 2" || asked.Load() != 2 {
		t.Errorf("with other options it is another cache: %q", body)
	}
}

// TestRoutesWithEqualOptionsShare: they are one cache, by host and path.
func TestRoutesWithEqualOptionsShare(t *testing.T) {
	url, asked := api(t, 0)
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
sites:
- hosts: [a]
  routes: {/: {cache: &c {to: %s, disk: %q}}, /x/: {cache: *c}}
- routes: {/: {cache: *c}}
`, url, filepath.Join(t.TempDir(), "kept"))))
	c := dial(t, srv.Addrs()[0])
	for range 3 {
		for _, at := range [][2]string{{"a", "/"}, {"a", "/x/y"}, {"b", "/"}} {
			if status, _ := c.get(at[0], at[1]); status != 200 {
				t.Errorf("%v: %d", at, status)
			}
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("the upstream was asked %d times for three URLs", n)
	}
}

// TestReloadHandsTheFolderOver: a folder can be open but once, and while a
// cache's options change, the old handler and the new one both need it.
func TestReloadHandsTheFolderOver(t *testing.T) {
	url, asked := api(t, 100<<10) // written to disk when it comes
	dir := filepath.Join(t.TempDir(), "kept")
	site := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {cache: {to: %s, disk: %q, OPTION}}\n", url, dir)
	with := func(option string) *config.Config {
		return parse(t, strings.Replace(site, "OPTION", option, 1))
	}
	srv := start(t, with("ttl: 1m"))
	c := dial(t, srv.Addrs()[0])
	if _, body := c.get("a", "/a"); !strings.HasPrefix(body, "/a 1") {
		t.Fatalf("%.20q", body)
	}
	servertest.Eventually(t, "the answer is on disk", func() bool {
		found := false
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // files come and go
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil && info.Size() > 100<<10 && filepath.Base(filepath.Dir(path)) != "tmp" {
					found = true
				}
			}
			return nil
		})
		return found
	})
	for _, option := range []string{"ttl: 2m", "ttl: 3m, disk_size: 2GiB", "ttl: 1m"} {
		reload(t, srv, with(option))
		if _, body := c.get("a", "/a"); !strings.HasPrefix(body, "/a 1") || asked.Load() != 1 {
			t.Fatalf("after a reload with %s: %.20q, asked %d times", option, body, asked.Load())
		}
	}
	// A config without it gives the folder back, once its last request is over.
	reload(t, srv, parse(t, "listen: 127.0.0.1:0\nsites: [{routes: {/: {deny: {}}}}]"))
	servertest.Eventually(t, "the folder is free", func() bool {
		d, err := disk.Open(disk.Options{Dir: dir})
		if err == nil {
			_ = d.Close()
		}
		return err == nil
	})
}

func TestFailedReloadGivesTheFolderBack(t *testing.T) {
	url, _ := api(t, 0)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Join(t.TempDir(), "kept")
	srv := start(t, parse(t, "listen: 127.0.0.1:0\nsites: [{routes: {/: {deny: {}}}}]"))
	bad := parse(t, fmt.Sprintf("listen: [127.0.0.1:0, %s]\nsites: [{routes: {/: {cache: {to: %s, disk: %q}}}}]", taken.Addr(), url, dir))
	if err := srv.Reload(bad); err == nil {
		t.Fatal("a reload with a taken port succeeded")
	}
	d, err := disk.Open(disk.Options{Dir: dir})
	if err != nil {
		t.Fatalf("after a failed reload: %v", err)
	}
	_ = d.Close()
}

func TestProxyAcrossReloads(t *testing.T) {
	url, asked := api(t, 0)
	site := fmt.Sprintf("listen: 127.0.0.1:0\nsites:\n- routes:\n    /: {proxy: %s}\n", url)
	srv := start(t, parse(t, site))
	c := dial(t, srv.Addrs()[0])
	for i := range 6 {
		if status, body := c.get("a", "/x"); status != 200 || body != fmt.Sprintf("/x %d", i+1) {
			t.Errorf("%d %q", status, body)
		}
		reload(t, srv, parse(t, site+fmt.Sprintf("    /v%d: {deny: {}}\n", i%2)))
	}
	if asked.Load() != 6 {
		t.Errorf("a proxy asked %d times for six requests", asked.Load())
	}
}

// startWithAdmin is start with an admin listener, and a client for its caches.
func startWithAdmin(t *testing.T, yaml string) (*engine.Server, *control.Client) {
	t.Helper()
	cfg := parse(t, yaml)
	cfg.Admin.Listen = "127.0.0.1:0"
	srv := start(t, cfg)
	client, base, err := admin.Client(srv.AdminAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return srv, &control.Client{HTTP: client, Base: base}
}

func TestControlKnowsTheRoutes(t *testing.T) {
	url, _ := api(t, 0)
	yaml := fmt.Sprintf(`
listen: 127.0.0.1:0
sites:
- hosts: [a.test]
  routes: {/: {cache: {to: %[1]s}}, /two/: {cache: {to: %[1]s, ttl: 1s}}, /no: {deny: {}}}
- routes: {/: {proxy: %[1]s}}
`, url)
	srv, caches := startWithAdmin(t, yaml)
	ctx := context.Background()
	for target, want := range map[string]string{"http://a.test/": "a.test/", "http://A.test:80/two/x": "a.test/two/", "https://a.test/x": "a.test/"} {
		if e, err := caches.Explain(ctx, target, "", nil); err != nil || e.Route != want || e.Outcome != "miss" {
			t.Errorf("%s: %+v, %v; want the route %s", target, e, err, want)
		}
	}
	for _, target := range []string{"http://a.test/no", "http://b.test/"} {
		if e, err := caches.Explain(ctx, target, "", nil); err == nil || !strings.Contains(err.Error(), "the routes with a cache are a.test/, a.test/two/") {
			t.Errorf("%s: %+v, %v", target, e, err)
		}
	}
	reload(t, srv, parse(t, strings.Replace(yaml, "ttl: 1s", "ttl: 2s", 1)))
	done, err := caches.Purge(ctx, control.Purge{Selector: purge.Selector{All: true}})
	if err != nil || len(done.Routes) != 2 {
		t.Errorf("after a reload: %+v, %v", done, err)
	}
	reload(t, srv, parse(t, "listen: 127.0.0.1:0\nsites: [{routes: {/: {deny: {}}}}]"))
	if _, err := caches.Purge(ctx, control.Purge{Selector: purge.Selector{All: true}}); err == nil || !strings.Contains(err.Error(), "no route with a cache") {
		t.Errorf("without caches: %v", err)
	}
}

// TestSharedPurge: two servers with one Redis; a purge at one holds at the other.
func TestSharedPurge(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	socket := filepath.Join(t.TempDir(), "r.sock")
	redis := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = redis.Process.Kill() // nothing of it is kept
		_ = redis.Wait()
	})
	servertest.Eventually(t, "redis-server answers", func() bool {
		nc, err := net.Dial("unix", socket)
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	})
	url, asked := api(t, 0)
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: %s, shared: %q}}}}]", url, "unix://"+socket)
	first, caches := startWithAdmin(t, yaml)
	second, _ := startWithAdmin(t, yaml)
	a, b := dial(t, first.Addrs()[0]), dial(t, second.Addrs()[0])
	for range 3 {
		a.get("s", "/x")
		b.get("s", "/x")
	}
	before := asked.Load()
	servertest.Eventually(t, "the purge is announced", func() bool {
		_, err := caches.Purge(context.Background(), control.Purge{Selector: purge.Selector{All: true, Hard: true}})
		return err == nil // until the connection to Redis stands
	})
	servertest.Eventually(t, "the other server has heard of it", func() bool {
		b.get("s", "/x")
		return asked.Load() > before
	})
}

// TestUnsharable: what is wrong with the shared store's URL is said at the start.
func TestUnsharable(t *testing.T) {
	cfg := parse(t, "listen: 127.0.0.1:0\nsites: [{routes: {/: {cache: {to: http://127.0.0.1:1, shared: nonsense}}}}]")
	if _, err := engine.New(cfg, engine.Options{ErrorLog: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "redis://") {
		t.Errorf("New: %v", err)
	}
}
