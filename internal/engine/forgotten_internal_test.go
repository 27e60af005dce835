package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"

	"millrace/internal/config"
)

// TestOldGraphsAreForgotten: nothing that a reload carries over, of whatever job, holds
// what it was built with: neither the graph nor the config.
func TestOldGraphsAreForgotten(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	for _, name := range []string{"index.html", "index.php"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(n int) *config.Config {
		cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
listen: 127.0.0.1:0
admin: {listen: off}
log: {format: off}
tracing: {otlp: 'http://127.0.0.1:1'}
sites:
- traps: on
  challenge: {agents: [EvilBot]}
  rate_limit: {rate: 1000/s}
  routes:
    /: {static: {root: %[1]q}}
    /cache/: {cache: {to: 'http://127.0.0.1:1', disk: %[2]q}}
    /proxy/: {proxy: {to: 'http://127.0.0.1:1', mirror: {to: 'http://127.0.0.1:2'}, canary: {to: 'http://127.0.0.1:3', share: 1}}}
    /php/: {static: {root: %[1]q}, php: {to: 'unix:/nowhere'}}
    /echo: {websocket: echo}
    /live/: {websocket: {channels: {}}}
    /ws/: {websocket: {proxy: 'ws://127.0.0.1:1'}}
    /in/: {respond: in, auth: {jwt: {secret: 0123456789abcdef0123456789abcdef}}}
    /asked/: {respond: in, auth: {url: 'http://127.0.0.1:1'}, access: {allow: ['127.0.0.0/8']}}
- hosts: [n%[3]d.example]
  routes: {/: {cache: 'http://127.0.0.%[3]d:1'}}
`, dir, kept, n))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	srv, err := New(load(1), Options{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(context.Background()) }() // waited for below
	defer func() { _ = srv.Close(); <-ended }()
	for n := 2; n < 6; n++ {
		graph, cfg := weak.Make(srv.graph), weak.Make(srv.config)
		if err := srv.Reload(load(n)); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); graph.Value() != nil || cfg.Value() != nil; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("after reload %d the graph before it is still held: %v; its config: %v", n-1, graph.Value() != nil, cfg.Value() != nil)
			}
			runtime.GC()
		}
	}
}
