package slim

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/observe/accesslog"
	"millrace/internal/route/headers"
	"millrace/internal/server"
	"millrace/internal/server/guard"
	"millrace/static"
	"millrace/static/packer"
	"millrace/static/packfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A plan goes through the packed file and serves what it says.
func TestPlanServes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"site/index.html": "home", "base": ""} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := json.Marshal(Plan{
		Listen: []string{"127.0.0.1:0"}, TLS: TLS(server.TLSOptions{MinVersion: "1.3"}), Log: accesslog.Options{Format: "off"},
		Sites: []Site{{Routes: map[string]Route{
			"/": {Static: &static.Options{Root: "."}, HeaderOptions: HeaderOptions{
				Headers: headers.Lists(&headers.AnswerOptions{Security: &headers.Security{}}, nil, false),
				CORS:    &CORS{Origins: []string{"https://a.example"}},
			}},
			"/old": {Redirect: &guard.Redirect{To: "/new"}},
			"/no":  {Deny: &guard.Deny{}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "packed")
	if _, err := packer.Make(t.Context(), packer.Plan{
		Base: filepath.Join(dir, "base"), Out: out, Slim: plan,
		Folders: []packer.Folder{{Name: ".", Dir: filepath.Join(dir, "site")}},
	}); err != nil {
		t.Fatal(err)
	}
	site, err := packfile.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	p, err := ReadPlan(site)
	if err != nil || p.TLS.MinVersion != "1.3" {
		t.Fatalf("%+v, %v", p, err)
	}
	s, err := New(p, site, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for path, want := range map[string]int{"/": 200, "/old": 308, "/no": 403, "/nothing": 404} {
		res, err := client.Get(s.Addrs()[0] + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || want == 200 && string(body) != "home" {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, want)
		}
		if h := res.Header; path == "/" && (h.Get("X-Frame-Options") != "SAMEORIGIN" || h.Get("Access-Control-Allow-Origin") != "https://a.example") {
			t.Errorf("%s: %v", path, h)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	site.Plan = nil
	if _, err := ReadPlan(site); err == nil {
		t.Error("a site without a plan")
	}
}
