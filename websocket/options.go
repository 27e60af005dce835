package websocket

import (
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/proxy"
	"millrace/websocket/channels"
)

// Options of the job. Exactly one of Echo, Proxy and Channels.
type Options struct {
	// Echo sends every message back to who sent it, under every path of the route.
	Echo *Echo `yaml:"echo"`
	// Proxy passes connections on to another server. Its address alone is enough: "proxy: ws://127.0.0.1:9000".
	Proxy *proxy.Options `yaml:"proxy"`
	// Channels publish and subscribe: …/ws, …/sse, …/publish and …/client.js below the route, which must end in "/".
	Channels *channels.Options `yaml:"channels"`

	// Origins are the sites whose pages may connect, besides the server's own: https://app.example, https://*.example.org, or * for any. Clients that are no browsers send no Origin, and may.
	Origins []string `yaml:"origins"`
	// Subprotocols are the names that are agreed to when a client offers them; the first of ours that it offers. Not for a proxy, which passes them on.
	Subprotocols []string `yaml:"subprotocols"`
	// MaxMessage is the most bytes that a message of a client may have. Default 64KiB for channels; no limit for echo, which holds none of it, and for a proxy, where it would be the upstream's to say.
	MaxMessage bytesize.Size `yaml:"max_message"`
	// Memory is the most that messages which have not come whole may take, of all clients together. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Connections is the most clients at once; more get 503. Default: no limit but the system's.
	Connections int `yaml:"connections"`
	// Ping is after how much silence a client is asked whether it is still there; negative: never. Default 30s. Not for a proxy.
	Ping time.Duration `yaml:"ping"`
	// PongTimeout is how long it may take to answer. Default 20s.
	PongTimeout time.Duration `yaml:"pong_timeout"`
	// IdleTimeout closes connections on which no message came for so long. Default: never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// WriteTimeout is how long a client may take no byte of what is sent to it. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// Queue is the most bytes that may wait for one client. Default 256KiB.
	Queue bytesize.Size `yaml:"queue"`
	// QueueLength is the most messages that may wait for one client. Default 256.
	QueueLength int `yaml:"queue_length"`
	// SlowConsumer says what happens to a client for which more would have to wait: disconnect (close code 1013), or drop_oldest. Default disconnect.
	SlowConsumer string `yaml:"slow_consumer"`
	// Compression is permessage-deflate.
	Compression Compression `yaml:"compression"`
	// Reconnect is the time over which clients are told to spread their return when they are sent away. Default 5s.
	Reconnect time.Duration `yaml:"reconnect"`
	// Page answers a browser that comes without a WebSocket with a small page for trying it out.
	Page bool `yaml:"page"`
}

// Echo has no options.
type Echo struct{}

// Compression of messages (RFC 7692). No context is kept between messages: it would cost every client some 300 KB.
type Compression struct {
	// Off agrees to none.
	Off bool `yaml:"off"`
	// From is the size from which on messages are compressed. Default 1KiB.
	From bytesize.Size `yaml:"from"`
}

// UnmarshalText lets a route say "websocket: echo" or "websocket: channels".
func (o *Options) UnmarshalText(text []byte) error { panic("not built") }

// Check returns what is wrong with the options, by key.
func (o Options) Check() map[string]error { return nil } // not built
