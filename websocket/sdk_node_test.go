package websocket_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/store/bus"
	"millrace/websocket"
)

// nodeModules are what the session of the SDK for JavaScript needs, with the versions that
// it is tested with. They come from npm's registry, once: TestCentrifugeJS is skipped where
// that cannot be.
const nodeModules = "centrifuge@5.8.0 ws@8.18.3 eventsource@2.0.2"

// modules returns a folder with them.
func modules(t *testing.T) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("there is no folder for caches: ", err)
	}
	dir = filepath.Join(cache, "millrace-tests", "centrifuge-js-5.8.0")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "eventsource", "package.json")); err == nil {
		return node, dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skip("there is no folder for caches: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir}, strings.Fields(nodeModules)...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm cannot fetch %s: %v\n%s", nodeModules, err, out)
	}
	return node, dir
}

// breaking is a handler that is replaced when it is told so: its clients are sent away,
// and find their history at the next one.
type breaking struct {
	t      *testing.T
	shared *bus.Shared

	mu      sync.Mutex
	handler *websocket.Handler
	engine  websocket.Deps
}

func (b *breaking) fresh() *websocket.Handler {
	d := b.engine
	d.Bus = b.shared.Join()
	h, err := websocket.New(sdkOptions(), d)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// ServeHTTP implements [http.Handler].
func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	h := b.handler
	b.mu.Unlock()
	if r.URL.Path != "/break" {
		h.ServeHTTP(w, r)
		return
	}
	next := b.fresh()
	req := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "http://localhost/publish?channel=news", strings.NewReader(`"meanwhile"`))
	req.Header.Set("Content-Type", "application/json")
	req.RemoteAddr = "127.0.0.1:1"
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := h.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	<-gone
	next.ServeHTTP(httptest.NewRecorder(), req)
	b.mu.Lock()
	b.handler = next
	b.mu.Unlock()
}

// TestCentrifugeJS is a session of the SDK for JavaScript over each of its transports.
func TestCentrifugeJS(t *testing.T) {
	if testing.Short() {
		t.Skip("it fetches packages")
	}
	node, dir := modules(t)
	script, err := filepath.Abs(filepath.Join("testdata", "sdk.test.cjs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]string{{"websocket", "json"}, {"websocket", "protobuf"}, {"http_stream", "json"}, {"http_stream", "protobuf"}, {"sse", "json"}} {
		t.Run(way[0]+" "+way[1], func(t *testing.T) {
			b := &breaking{t: t, shared: bus.Share(bus.NewMemory(sdkOptions().Channels.Keep())), engine: websocket.Deps{Engine: newEngine(t)}}
			b.handler = b.fresh()
			s := httptest.NewServer(b)
			t.Cleanup(func() {
				s.CloseClientConnections()
				s.Close()
				if err := b.handler.Close(); err != nil {
					t.Error(err)
				}
				if err := b.shared.Close(); err != nil {
					t.Error(err)
				}
			})
			token := sdkToken(t, sdkClaims("ann", map[string]any{"channels": []string{"own"}}))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := exec.CommandContext(ctx, node, script, dir, s.URL+"/", way[0], way[1], token).CombinedOutput()
			want := strings.Join([]string{
				"connected by " + way[0], "given own", "present ann", "counted 1 1", `history {"n":2},{"n":1} 3`, "rpc 108",
				"recovered true", `seen {"n":0},{"n":1},{"n":2},"meanwhile"`, "connected", "disconnected 0 disconnect called", "done", "",
			}, "\n")
			if err != nil || string(out) != want {
				t.Errorf("%v\n got %s\nwant %s", err, out, want)
			}
		})
	}
}
