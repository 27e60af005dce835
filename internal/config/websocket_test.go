package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/access/token"
	"millrace/proxy"
	"millrace/websocket"
	"millrace/websocket/auth"
	"millrace/websocket/channels"
)

// parseWebSockets is testdata/good/websocket.yaml as it is read; what other
// packages think of a key or a file is not what is tested.
func parseWebSockets(t *testing.T) map[string]Route {
	t.Helper()
	const file = "testdata/good/websocket.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, body := parse(file, data)
	cfg := Default()
	newDecoder(doc).document(body, cfg)
	cfg.resolve(filepath.Dir(file))
	if len(doc.found) > 0 {
		t.Fatal(doc.found)
	}
	return cfg.Sites[0].Routes
}

func TestWebSocketConfig(t *testing.T) {
	short, long := &proxy.Options{}, &proxy.Options{}
	short.To = []string{"ws://127.0.0.1:9000"}
	long.To, long.Balance = []string{"wss://127.0.0.1:9000/x", "unix:testdata/good/app.sock"}, "least_connections"
	full := &channels.Options{
		Keys:    []string{"a-key-that-nobody-knows-0123456789"},
		Auth:    auth.Options{JWT: &token.Options{PublicKey: "testdata/public/index.html"}, Subscribe: []string{"news"}},
		History: channels.History{Messages: 50, Age: time.Minute},
	}
	for route, want := range map[string]websocket.Options{
		"/a/": {Echo: &websocket.Echo{}},
		"/b":  {Echo: &websocket.Echo{}},
		"/c":  {Echo: &websocket.Echo{}, Ping: -time.Second, Origins: []string{"https://a.example", "https://*.example.org"}},
		"/d/": {Channels: &channels.Options{}},
		"/e/": {Channels: &channels.Options{}},
		"/f/": {Channels: full, MaxMessage: 16 << 20, SlowConsumer: "drop_oldest"},
		"/g/": {Proxy: short},
		"/h/": {Proxy: long, IdleTimeout: time.Hour},
	} {
		if diff := cmp.Diff(&want, parseWebSockets(t)[route].WebSocket); diff != "" {
			t.Errorf("%s (-want +got):\n%s", route, diff)
		}
	}
}

// TestForWebSocket: the verbs' configs have nothing wrong with them, and flags
// reach the part that they are for, and no other.
func TestForWebSocket(t *testing.T) {
	settings := []Setting{
		{"websocket.origins", []string{"https://a.example", "https://b.example"}, "--origin"},
		{"websocket.ping", []string{"-1s"}, "--ping"},
		{"websocket.channels.presence", []string{"true"}, "--presence"},
		{"websocket.channels.history.messages", []string{"7"}, "--history"},
		{"listen", []string{"127.0.0.1:0"}, "--listen"},
	}
	echo, live := ForEcho(), ForChannels()
	for name, c := range map[string]*Config{"echo": echo, "channels": live} {
		if err := c.Check(settings...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o := c.Sites[0].Routes["/"].WebSocket
		if len(o.Origins) != 2 || o.Ping != -time.Second || !o.Page {
			t.Errorf("%s: the settings led to %+v", name, o)
		}
	}
	if o := echo.Sites[0].Routes["/"].WebSocket; o.Echo == nil || o.Channels != nil || o.Proxy != nil {
		t.Errorf("the echo became %+v", o)
	}
	if o := live.Sites[0].Routes["/"].WebSocket.Channels; !o.Presence || o.History.Messages != 7 || len(o.Auth.Presence) != 1 {
		t.Errorf("the settings led to %+v", o)
	}
	passed := ForWebSocketProxy()
	if err := passed.Check(Setting{"websocket.proxy.to", []string{"http://127.0.0.1:9000"}, "UPSTREAM"}); err != nil {
		t.Error(err)
	}
	if o := passed.Sites[0].Routes["/"].WebSocket.Proxy; len(o.To) != 1 {
		t.Errorf("the setting led to %+v", o)
	}
	refusesSettings(t, func() *Config { return ForWebSocketProxy("ws://127.0.0.1:9000") }, map[typed]string{
		{"websocket.proxy.to", "ws://127.0.0.1:8080", "UPSTREAM"}:  "UPSTREAM: ws://127.0.0.1:8080 is this server itself",
		{"websocket.origins", "a.example", "--origin"}:             "--origin: \"a.example\" is not an origin: write https://a.example",
		{"websocket.slow_consumer", "wait", "--slow-consumer"}:     "--slow-consumer: \"wait\" is not a way",
		{"websocket.proxy.too", "ws://127.0.0.1:9000", "UPSTREAM"}: "UPSTREAM: there is no key \"websocket.proxy.too\"",
	})
}

func TestWebSocketUpstream(t *testing.T) {
	for in, want := range map[string]string{
		":9000": "ws://127.0.0.1:9000", "app:9000/chat": "ws://app:9000/chat", "wss://a": "wss://a", "http://a": "http://a", "unix:/run/x": "unix:/run/x",
	} {
		if got, err := WebSocketUpstream(in); got != want || err != nil {
			t.Errorf("WebSocketUpstream(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, hint := range map[string]string{"9000": "write ws://127.0.0.1:9000", "": "for example ws://127.0.0.1:9000", "app": "write ws://app"} {
		if _, err := WebSocketUpstream(in); err == nil || !strings.HasSuffix(err.Error(), hint) {
			t.Errorf("WebSocketUpstream(%q): %v; want the hint %q", in, err, hint)
		}
	}
	for _, upstream := range []string{"ws://localhost", "ws://127.0.0.1:80/x"} {
		if _, self := reached(upstream, []listener{{Address{Port: 80}, "listen[0]"}}); !self {
			t.Errorf("%s is not seen to lead to :80", upstream)
		}
	}
}
