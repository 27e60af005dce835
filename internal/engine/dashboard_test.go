package engine_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/ops/dashboard"
	"millrace/internal/process/servertest"
)

// browserTime is for all that the browser does.
const browserTime = 5 * time.Minute

// inABrowser runs one of the checks in internal/ops/dashboard/testdata/browser. MILLRACE_SHOTS
// names a folder for its screenshots. MILLRACE_NEED_BROWSER makes it an error that something
// is missing.
func inABrowser(t *testing.T) (check func(script string, args ...string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser is not short")
	}
	skip := t.Skipf
	if os.Getenv("MILLRACE_NEED_BROWSER") != "" {
		skip = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		skip("node is not installed (package nodejs)")
	}
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		skip("chromium is not installed (package chromium)")
	}
	folder := filepath.Join("..", "ops", "dashboard", "testdata", "browser")
	for _, module := range []string{"playwright-core", "axe-core"} {
		if _, err := os.Stat(filepath.Join(folder, "node_modules", module)); err != nil {
			skip("%s is not installed: run `npm ci` in internal/ops/dashboard/testdata/browser", module)
		}
	}
	return func(script string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), browserTime)
		defer cancel()
		args = append(append([]string{script, browser}, args...), os.Getenv("MILLRACE_SHOTS"))
		cmd := exec.CommandContext(ctx, node, args...)
		cmd.Dir, cmd.WaitDelay = folder, time.Second
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestDashboardInABrowser: the pages of a running server.
func TestDashboardInABrowser(t *testing.T) {
	check := inABrowser(t)
	site, admin, srv := dashboardSite(t)
	s := open(t, srv, "/live/")
	for _, command := range []string{`{"subscribe":"news"}`, `{"publish":"news","data":"hello","id":1}`} {
		if err := s.send(command); err != nil {
			t.Fatal(err)
		}
		s.hear(t)
	}
	check("check.mjs", admin, site)
}

// TestBuiltInPagesInABrowser: what visitors see where something fails.
func TestBuiltInPagesInABrowser(t *testing.T) {
	check := inABrowser(t)
	root := folder(t, map[string]string{
		"index.html": "page", "closed/a.html": "page",
	})
	files := folder(t, map[string]string{
		"file10": strings.Repeat("x", 3_000_000), "file2": "x", "a folder/x": "x", strings.Repeat("long-name-", 12) + "x.txt": "x",
	})
	srv := start(t, parse(t, fmt.Sprintf(`
listen: 127.0.0.1:0
request_id: on
sites:
- hosts: [localhost]
  routes:
    /: {static: {root: %[1]q}}
    /files/: {static: {root: %[3]q, listing: true}}
    /limited/: {static: {root: %[1]q}, rate_limit: {rate: 1/h, burst: 1}}
    /closed/: {static: {root: %[1]q}, access: {deny: [0.0.0.0/0, "::/0"]}}
    /dead/: {proxy: {to: %[2]s, breaker: {off: true}}}
    /secret/: {static: {root: %[1]q}, auth: {passwords: {ann: '{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM='}}}
    /gone: {deny: {status: 410}}
    /echo/: {websocket: {echo: {}, page: true}}
    /live/: {websocket: {channels: {}, page: true}}
    /asked/: {static: {root: %[1]q}, challenge: {agents: [Chrome], work: 24}}
`, root, deadAddress(t), files)))
	shut := start(t, parse(t, fmt.Sprintf("listen: 127.0.0.1:0\nmaintenance: {on: true, retry_after: 20m}\nsites: [{routes: {/: {static: {root: %q}}}}]", root)))
	at := strings.Replace(srv.Addrs()[0], "127.0.0.1", "localhost", 1)
	look(t, at+"/limited/")
	type page struct {
		Name   string `json:"name"`
		URL    string `json:"url"`
		Status int    `json:"status"`
		Says   string `json:"says"`
	}
	list, err := json.Marshal([]page{
		{"missing", at + "/none", 404, "Check the address for mistakes"},
		{"host", srv.Addrs()[0] + "/", 404, "No site is served under this host name"},
		{"dead", at + "/dead/", 502, "Try again in a moment."},
		{"password", at + "/secret/", 401, "Check your user name and password"},
		{"limit", at + "/limited/", 429, "Try again in "},
		{"closed", at + "/closed/a.html", 403, "Your address may not see this page."},
		{"gone", at + "/gone", 410, "Start at the front page of the site."},
		{"unread", at + "/a%", 400, "The server does not understand this request."},
		{"maintenance", shut.Addrs()[0] + "/", 503, "Try again in 20 minutes."},
		{"listing", at + "/files/", 200, "file10"},
		{"echo", at + "/echo/", 200, ""},
		{"live", at + "/live/", 200, ""},
		{"challenge", at + "/asked/", 403, ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	check("pages.mjs", string(list))
}

// dashboardSite serves files, a cache, channels and two upstreams; site and admin are its URLs.
func dashboardSite(t *testing.T) (site, admin string, srv *engine.Server) {
	t.Helper()
	up, _ := api(t, 0)
	other, _ := api(t, 0)
	root := folder(t, map[string]string{"counted.txt": "counted\n"})
	srv = start(t, withAdmin(t, fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
log: {format: off}
sites:
- routes:
    /: {static: {root: %q}}
    /api/: {cache: {to: %s}}
    /app/: {proxy: {to: [%q, %q]}}
    /live/: {websocket: {ping: 1h, channels: {presence: true, auth: {subscribe: ["*"], publish: ["*"]}}}}
`, root, up, up, other)))
	return srv.Addrs()[0], "http://" + srv.AdminAddr(), srv
}

// withAdmin is parse for a config that has an admin listener.
func withAdmin(t *testing.T, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func look(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// panel reads one by its JSON.
func panel(t *testing.T, admin, id string) (p dashboard.Panel) {
	t.Helper()
	_, text := look(t, admin+"/dashboard/"+id, "Accept", "application/json")
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%s: %v in %s", id, err, text)
	}
	return p
}

// column adds up the figures of a column in the rows that have a text in another.
func column(p dashboard.Panel, key, where, is string) (sum float64) {
	for _, row := range p.Rows {
		of := map[string]any{}
		for i, c := range p.Columns {
			of[c.Key] = row.Values[i]
		}
		if n, ok := of[key].(float64); ok && of[where] == is {
			sum += n
		}
	}
	return sum
}

// TestDashboardCounts: what was asked for is shown, the fast lane's answers
// included, although no log is written.
func TestDashboardCounts(t *testing.T) {
	t.Parallel() // it mostly waits
	site, admin, _ := dashboardSite(t)
	const n = 50
	for range n {
		look(t, site+"/counted.txt")
	}
	for range 3 {
		look(t, site+"/nothing")
		look(t, site+"/api/a")
	}
	servertest.Eventually(t, "all requests are shown", func() bool {
		p := panel(t, admin, "traffic")
		return column(p, "requests", "job", "static") == n+3 && column(p, "requests", "job", "cache") == 3
	})
	p := panel(t, admin, "traffic")
	if fast := column(p, "requests", "lane", "fast"); fast < n/2 {
		t.Errorf("%v answers of the fast lane are shown, of %d requests", fast, n)
	}
	host := strings.TrimPrefix(site, "http://")
	if got := column(panel(t, admin, "urls"), "requests", "path", host+"/counted.txt"); got != n {
		t.Errorf("the path is shown with %v requests, want %d", got, n)
	}
	if got := column(panel(t, admin, "missing"), "requests", "path", host+"/nothing"); got != 3 {
		t.Errorf("the missing path is shown with %v requests, want 3", got)
	}
	if got := column(panel(t, admin, "clients"), "requests", "address", "127.0.0.1"); got != n+6 {
		t.Errorf("the client is shown with %v requests, want %d", got, n+6)
	}
	if _, text := look(t, admin+"/dashboard/log.csv"); strings.Count(text, "/counted.txt") != n || !strings.HasPrefix(text, "time,status,method,") {
		t.Errorf("the log as CSV is %s", text)
	}
	if _, text := look(t, admin+"/dashboard/", "Accept", "text/html"); !strings.Contains(text, "counted.txt") || strings.Contains(text, "<script>") || strings.Contains(text, "style=") {
		t.Error("the page does not show the path, or has something inline")
	}
	if code, text := look(t, admin+"/dashboard/none.json"); code != http.StatusNotFound || !strings.Contains(text, "traffic") {
		t.Errorf("a panel that is not there: %d %s", code, text)
	}
}

// TestDashboardCertificates: those of files are shown as well, and what is wrong
// with them is said.
func TestDashboardCertificates(t *testing.T) {
	t.Parallel()                      // it mostly waits
	cert, key, pool := certificate(t) // for one more day, of a day and an hour
	root := folder(t, map[string]string{"index.html": "page"})
	srv := start(t, withAdmin(t, fmt.Sprintf("listen: []\nlog: {format: off}\nadmin: {listen: '127.0.0.1:0'}\ntls: {listen: 127.0.0.1:0, cert: %s, key: %s}\nsites: [{routes: {/: {static: {root: %s}}}}]", cert, key, root)))
	admin := "http://" + srv.AdminAddr()
	p := panel(t, admin, "certificates")
	if len(p.Rows) != 1 || p.Rows[0].Values[0] != "localhost, 127.0.0.1" || p.Rows[0].Values[2] != cert || p.Rows[0].Level != dashboard.Fine {
		t.Errorf("shown are %+v", p.Rows)
	}
	if err := os.WriteFile(cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	servertest.Eventually(t, "a changed file that cannot be used is told of", func() bool {
		if resp, err := client.Get(srv.Addrs()[0]); err != nil { // handshakes look at the files
			t.Fatal(err)
		} else {
			resp.Body.Close()
		}
		rows := panel(t, admin, "problems").Rows
		return len(rows) == 1 && strings.Contains(fmt.Sprint(rows[0].Values...), cert+" cannot be used")
	})
}

// TestDashboardReload: a reload that failed is the first thing that is said, with the
// reason, until one succeeds.
func TestDashboardReload(t *testing.T) {
	t.Parallel() // it mostly waits
	text := fmt.Sprintf("listen: 127.0.0.1:0\nlog: {format: off}\nadmin: {listen: '127.0.0.1:0'}\nsites: [{routes: {/: {static: {root: %s}}}}]", folder(t, map[string]string{"index.html": "page"}))
	srv := start(t, withAdmin(t, text))
	said := func() []dashboard.Row { return panel(t, "http://"+srv.AdminAddr(), "problems").Rows }
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := srv.Reload(withAdmin(t, strings.Replace(text, "127.0.0.1:0", taken.Addr().String(), 1))); err == nil {
		t.Fatal("an address in use was taken")
	}
	servertest.Eventually(t, "the reason is shown", func() bool {
		rows := said()
		return len(rows) == 1 && rows[0].Level == dashboard.Bad && strings.Contains(fmt.Sprint(rows[0].Values...), "address already in use")
	})
	srv.ReloadFailed(errors.New("c.yaml has 2 mistakes\n\nline one\nline two"))
	servertest.Eventually(t, "the last reason is shown", func() bool {
		rows := said()
		return len(rows) == 1 && strings.Contains(fmt.Sprint(rows[0].Values...), "on serving: c.yaml has 2 mistakes line one line two")
	})
	if err := srv.Reload(withAdmin(t, text)); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "it is over", func() bool { return len(said()) == 0 })
}

var formSecret = regexp.MustCompile(`name="form" value="([A-Z0-9]+)"`)

// TestDashboardButtons: they do what they say, for pages of this server only.
func TestDashboardButtons(t *testing.T) {
	site, admin, _ := dashboardSite(t)
	_, text := look(t, admin+"/dashboard/", "Accept", "text/html")
	secret := formSecret.FindStringSubmatch(text)
	if secret == nil {
		t.Fatal("the page has no form")
	}
	do := func(form url.Values, header ...string) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, admin+"/dashboard/do", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	with := func(pairs ...string) url.Values {
		form := url.Values{"form": {secret[1]}}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		return form
	}
	if code := do(url.Values{"do": {"close"}}); code != http.StatusForbidden {
		t.Errorf("a form without the secret: %d", code)
	}
	if code := do(with("do", "close"), "Origin", "http://evil.example"); code != http.StatusForbidden {
		t.Errorf("a form of another origin: %d", code)
	}
	if code := do(with("do", "shutdown")); code != http.StatusBadRequest {
		t.Errorf("an action that is not there: %d", code)
	}
	if code, _ := look(t, site+"/counted.txt"); code != http.StatusOK {
		t.Errorf("the site answers %d", code)
	}
	if code := do(with("do", "close")); code != http.StatusOK {
		t.Errorf("maintenance: %d", code)
	}
	if code, _ := look(t, site+"/counted.txt"); code != http.StatusServiceUnavailable {
		t.Errorf("in maintenance the site answers %d", code)
	}
	if len(panel(t, admin, "problems").Rows) == 0 {
		t.Error("maintenance is not shown as a problem")
	}
	do(with("do", "open"))

	_, first := look(t, site+"/api/x")
	if _, again := look(t, site+"/api/x"); again != first {
		t.Fatal("the cache does not keep its answer")
	}
	if code := do(with("do", "purge", "what", site+"/api/*")); code != http.StatusOK {
		t.Errorf("the purge: %d", code)
	}
	if _, after := look(t, site+"/api/x"); after == first {
		t.Error("the purge has changed nothing")
	}

	servers := panel(t, admin, "upstreams")
	pool, address := servers.Rows[len(servers.Rows)-1].Values[0].(string), servers.Rows[len(servers.Rows)-1].Values[1].(string)
	if code := do(with("do", "drain", "pool", pool, "server", address)); code != http.StatusOK {
		t.Errorf("draining %s: %d", address, code)
	}
	for range 10 {
		look(t, site+"/app/")
	}
	if got := column(panel(t, admin, "upstreams"), "requests", "server", address); got != 0 {
		t.Errorf("the drained server got %v requests", got)
	}
	if done := panel(t, admin, "done"); len(done.Rows) != 4 {
		t.Errorf("%d actions are shown, want 4", len(done.Rows))
	}
}

// TestDashboardEvents: changes come by themselves, to a bounded number of browsers.
func TestDashboardEvents(t *testing.T) {
	t.Parallel() // it mostly waits
	site, admin, _ := dashboardSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := func() *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/dashboard/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	first := watch()
	look(t, site+"/counted.txt")
	lines := bufio.NewScanner(first.Body)
	lines.Buffer(nil, 1<<20)
	for seen := false; !seen; {
		if !lines.Scan() {
			t.Fatalf("the events have ended: %v", lines.Err())
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var changed map[string]string
		if err := json.Unmarshal([]byte(data), &changed); err != nil {
			t.Fatal(err)
		}
		seen = strings.Contains(changed["urls"], "/counted.txt")
	}
	refused := 0
	for range 40 {
		if watch().StatusCode == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 40-31 {
		t.Errorf("%d of 40 more were refused, want 9", refused)
	}
}
