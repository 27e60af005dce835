package websocket

import (
	"strings"
	"testing"
	"time"

	"millrace/proxy"
	"millrace/websocket/channels"
)

func TestUnmarshalText(t *testing.T) {
	kind := func(o Options) string {
		switch {
		case o.Echo != nil:
			return "echo"
		case o.Channels != nil:
			return "channels"
		case o.Proxy != nil:
			return "proxy " + strings.Join(o.Proxy.To, " ")
		}
		return "none"
	}
	for in, want := range map[string]string{
		"echo": "echo", " echo ": "echo", "channels": "channels",
		"ws://127.0.0.1:9000":         "proxy ws://127.0.0.1:9000",
		"wss://a.example,ws://b:1":    "proxy wss://a.example ws://b:1",
		"unix:/run/app.sock":          "proxy unix:/run/app.sock",
		"http://127.0.0.1:9000/chat/": "proxy http://127.0.0.1:9000/chat/",
	} {
		var o Options
		if err := o.UnmarshalText([]byte(in)); err != nil || kind(o) != want {
			t.Errorf("%q: %s, %v; want %s", in, kind(o), err, want)
		}
	}
	for in, want := range map[string]string{
		"": "write echo, channels, or", "Echo": "write echo, channels, or", "9000": "like ws://127.0.0.1:9000",
		"ws://a,": "an address is missing",
	} {
		var o Options
		if err := o.UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || kind(o) != "none" {
			t.Errorf("%q: %v, %s; want an error with %q", in, err, kind(o), want)
		}
	}
}

// TestCheck: each mistake is found under its key, and says what to write.
func TestCheck(t *testing.T) {
	to := &proxy.Options{}
	to.To = []string{"http://127.0.0.1:9000"}
	for _, c := range []struct {
		key, want string
		o         Options
	}{
		{"echo", "websocket: echo", Options{}},
		{"channels", "not echo and channels", Options{Echo: &Echo{}, Channels: &channels.Options{}}},
		{"proxy", "not echo and proxy and channels", Options{Echo: &Echo{}, Proxy: to, Channels: &channels.Options{}}},
		{"proxy.to", "needs an address", Options{Proxy: &proxy.Options{}}},
		{"proxy.trust_forwarded", "", Options{Proxy: &proxy.Options{Options: to.Options, TrustForwarded: []string{"nobody"}}}},
		{"subprotocols", "the upstream agrees", Options{Proxy: to, Subprotocols: []string{"a"}}},
		{"ping", "the upstream sends", Options{Proxy: to, Ping: time.Second}},
		{"page", "browser", Options{Proxy: to, Page: true}},
		{"origins[1]", "write https://app.example", Options{Echo: &Echo{}, Origins: []string{"*", "app.example"}}},
		{"origins[0]", "like https://app.example", Options{Echo: &Echo{}, Origins: []string{""}}},
		{"origins[0]", "write https://a.example", Options{Echo: &Echo{}, Origins: []string{"https://a.example/"}}},
		{"origins[0]", "pages come by https://a.example", Options{Echo: &Echo{}, Origins: []string{"wss://a.example"}}},
		{"origins[0]", "https://*.example.org", Options{Echo: &Echo{}, Origins: []string{"https://a.*.example"}}},
		{"subprotocols[1]", "second time", Options{Echo: &Echo{}, Subprotocols: []string{"a", "a"}}},
		{"subprotocols[0]", "letters", Options{Echo: &Echo{}, Subprotocols: []string{"a b"}}},
		{"subprotocols", "at most 64", Options{Echo: &Echo{}, Subprotocols: make([]string, 65)}},
		{"max_message", "at most 1GiB", Options{Echo: &Echo{}, MaxMessage: 2 << 30}},
		{"max_message", "make that larger", Options{Channels: &channels.Options{}, MaxMessage: 65 << 20}},
		{"memory", "at least 64KiB", Options{Echo: &Echo{}, Memory: 1}},
		{"connections", "at most", Options{Echo: &Echo{}, Connections: 1e8}},
		{"queue", "at most 1GiB", Options{Echo: &Echo{}, Queue: 2 << 30}},
		{"queue_length", "at most", Options{Echo: &Echo{}, QueueLength: 1 << 21}},
		{"slow_consumer", "use disconnect or drop_oldest", Options{Echo: &Echo{}, SlowConsumer: "drop"}},
		{"compression.from", "compression is off", Options{Echo: &Echo{}, Compression: Compression{Off: true, From: 1}}},
		{"idle_timeout", "at most 24h", Options{Echo: &Echo{}, IdleTimeout: 25 * time.Hour}},
		{"pong_timeout", "says never", Options{Echo: &Echo{}, Ping: -1, PongTimeout: 1}},
	} {
		faults := c.o.Check()
		if fault := faults[c.key]; fault == nil || !strings.Contains(fault.Error(), c.want) {
			t.Errorf("%+v: %s: %v, want %q", c.o, c.key, faults, c.want)
		}
	}
	for name, o := range map[string]Options{
		"echo":     {Echo: &Echo{}, Ping: -1, MaxMessage: 16 << 20, Origins: []string{"*"}, SlowConsumer: "drop_oldest"},
		"channels": {Channels: &channels.Options{}, MaxMessage: 64 << 20, Origins: []string{"https://*.example.org", "http://localhost:3000"}, Page: true},
		"proxy":    {Proxy: to, MaxMessage: 1 << 20, IdleTimeout: time.Minute},
	} {
		if faults := o.Check(); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}
