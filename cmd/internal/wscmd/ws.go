// Package wscmd has the verbs about WebSockets: those that serve, and those that
// publish to and read from channels.
package wscmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/servecmd"
	"millrace/internal/config"
)

// Command is `millrace ws`: the verb itself, which answers WebSockets, the
// one that passes them on, and those that talk to channels.
type Command struct {
	Serve   Serve   `cmd:"" default:"withargs" help:"Answer WebSockets with what they say, or with channels."`
	Proxy   Proxy   `cmd:"" help:"Pass WebSockets on to another server."`
	Publish Publish `cmd:"" help:"Publish to a channel of the running server, or of one at a URL."`
	Listen  Listen  `cmd:"" help:"Print what is published to channels, one line of JSON for each publication."`

	Channels   Channels   `cmd:"" help:"List the channels that have subscribers."`
	Presence   Presence   `cmd:"" help:"Print who is in a channel."`
	History    History    `cmd:"" help:"Print the latest publications of a channel."`
	Disconnect Disconnect `cmd:"" help:"Disconnect a user's clients."`
}

// originFlags are those of both verbs that serve.
type originFlags struct {
	Origin []string `placeholder:"ORIGIN" key:"websocket.origins" env:"MILLRACE_WS_ORIGIN" help:"Let pages of this site connect besides the server's own: https://app.example, https://*.example.org, or * for any. May be repeated."`
}

// Serve is `millrace ws`. The keys that begin with a job are those of
// its one route.
type Serve struct {
	Channels bool `help:"Channels instead of an echo: clients subscribe at /ws or /sse, and what is published with POST /publish reaches them."`

	Key           []string     `placeholder:"KEY" key:"websocket.channels.keys" env:"MILLRACE_WS_KEY" help:"Let whoever has this key publish over HTTP (Authorization: Bearer KEY). May be repeated. Without one only this machine may."`
	AllowPublish  []string     `placeholder:"PATTERN" key:"websocket.channels.auth.publish" env:"MILLRACE_WS_ALLOW_PUBLISH" help:"Let every client publish to these channels: chat, room:*, or * for all. May be repeated. Default: none."`
	History       Messages     `placeholder:"N" key:"websocket.channels.history.messages" env:"MILLRACE_WS_HISTORY" help:"How many publications of each channel to keep for clients that come back. Default 100."`
	HistoryAge    cli.Lifetime `placeholder:"TIME" key:"websocket.channels.history.age" env:"MILLRACE_WS_HISTORY_AGE" help:"How long to keep them. Default 5m."`
	NoHistory     bool         `key:"websocket.channels.history.off" env:"MILLRACE_WS_NO_HISTORY" help:"Keep none."`
	Presence      bool         `key:"websocket.channels.presence" env:"MILLRACE_WS_PRESENCE" help:"Let clients see who else is in a channel."`
	Bus           string       `placeholder:"URL" key:"websocket.channels.bus" env:"MILLRACE_WS_BUS" help:"Share the channels with other machines through this NATS server: nats://host:4222."`
	MaxMessage    cli.Size     `placeholder:"SIZE" key:"websocket.max_message" env:"MILLRACE_WS_MAX_MESSAGE" help:"How large a message may be. Default 64KiB for channels, no limit for an echo."`
	Ping          Silence      `placeholder:"TIME" values:"off" key:"websocket.ping" env:"MILLRACE_WS_PING" help:"After how much silence to ask a client whether it is still there, or off. Default 30s."`
	SlowConsumer  SlowConsumer `placeholder:"WAY" values:"disconnect,drop_oldest" key:"websocket.slow_consumer" env:"MILLRACE_WS_SLOW_CONSUMER" help:"What to do with a client that does not read as fast as others write: disconnect, or drop_oldest. Default disconnect."`
	NoCompression bool         `key:"websocket.compression.off" env:"MILLRACE_WS_NO_COMPRESSION" help:"Never compress messages."`

	originFlags    `embed:""`
	servecmd.Flags `embed:""`
}

// Run serves until a signal ends it.
func (c *Serve) Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals) error {
	if !c.Channels {
		for _, one := range cli.Settings(ctx) {
			// What stands in the environment may be meant for another day, but
			// who types it wants it.
			if strings.HasPrefix(one.Key, "websocket.channels.") && strings.HasPrefix(one.From, "--") {
				return cli.Usage(one.From+" is about channels, and this is an echo", "with channels: `millrace ws --channels "+one.From+" …`")
			}
		}
	}
	what := webSocket{kind: echo}
	if c.Channels {
		what.kind = channels
	}
	return what.source().Serve(cli.Settings(ctx), s, taken)
}

// Proxy is `millrace ws proxy UPSTREAM`.
type Proxy struct {
	Upstream []string `arg:"" optional:"" env:"MILLRACE_WS_UPSTREAM" help:"The server to pass WebSockets on to: ws://host:port, wss://host or unix:/path. host:port and :port are taken as ws://. Several share them."`

	Host string `placeholder:"HOST" values:"client,upstream" key:"websocket.proxy.host" env:"MILLRACE_WS_HOST" help:"The Host that the server gets: client (the one that the client asks for, which servers compare with Origin), upstream (the server's own), or a name. Default client."`

	originFlags    `embed:""`
	servecmd.Flags `embed:""`
}

// Run serves until a signal ends it.
func (c *Proxy) Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals) error {
	if len(c.Upstream) == 0 {
		return cli.Usage("the server to pass WebSockets on to is missing", "for example `millrace ws proxy ws://127.0.0.1:9000`; `millrace ws proxy --help` lists what there is")
	}
	what := webSocket{kind: proxy}
	for _, text := range c.Upstream {
		url, err := config.WebSocketUpstream(text)
		if err != nil {
			message, hint, _ := strings.Cut(err.Error(), "; ")
			return cli.Usage(message, hint)
		}
		what.to = append(what.to, cli.Upstream{URL: url, Typed: text})
	}
	return what.source().Serve(cli.Settings(ctx), s, taken)
}

// kind is what `millrace ws` does.
type kind uint8

const (
	echo kind = iota
	channels
	proxy
)

// webSocket is what is served where it is nothing but WebSockets.
type webSocket struct {
	kind kind
	to   cli.Upstreams // of a proxy
}

func (w *webSocket) source() servecmd.Source {
	return servecmd.Source{
		Load:    w.load,
		Subject: func(*config.Config) string { return w.subject() },
		Rows:    w.rows,
		NoLane:  true, // it answers no WebSockets
	}
}

// load makes the config, with the flags on top.
func (w *webSocket) load(flags []config.Setting) (*config.Config, error) {
	var cfg *config.Config
	switch w.kind {
	case channels:
		cfg = config.ForChannels()
		for _, f := range flags {
			if f.Key == "websocket.max_message" { // those that come over HTTP are messages, too
				f.Key = "websocket.channels.max_publish"
				flags = append(flags, f)
			}
		}
	case proxy:
		cfg = config.ForWebSocketProxy()
		flags = append(flags, w.to.Setting("websocket.proxy.to"))
	default:
		cfg = config.ForEcho()
	}
	return cfg, cfg.Check(flags...)
}

// subject is what the banner says that the program does.
func (w *webSocket) subject() string {
	switch w.kind {
	case channels:
		return "has channels for WebSockets and event streams"
	case proxy:
		return "passes WebSockets on to " + w.to.String()
	}
	return "answers WebSockets with what they say"
}

// rows say where what is, and what to type to see it work.
func (w *webSocket) rows(up servecmd.Up) [][2]string {
	o := up.Config.Sites[0].Routes["/"].WebSocket
	at := func(ws bool, path string) string { return strings.Join(below(up.URLs, ws, path), "  ") }
	var rows [][2]string
	switch w.kind {
	case echo:
		rows = [][2]string{{"echo", at(true, "/echo")}, {"page", at(false, "/")}}
	case proxy:
		rows = [][2]string{{"ws", at(true, "/")}}
	case channels:
		publish := "curl -d hello '" + below(up.URLs, false, "/publish?channel=news")[0] + "'"
		if len(o.Channels.Keys) > 0 {
			publish += " -H 'Authorization: Bearer KEY'"
		} else {
			publish += "  (from this machine only; --key lets others)"
		}
		rows = [][2]string{
			{"ws", at(true, "/ws")},
			{"sse", at(false, "/sse?channel=news")},
			{"sdk", at(true, "/connection/websocket")},
			{"client", at(false, "/client.js")},
			{"page", at(false, "/")},
			{"publish", publish},
		}
		if up.Admin != "" {
			rows = append(rows, [2]string{"try", "millrace ws listen news, and elsewhere: millrace ws publish news hello"})
		}
	}
	if len(o.Origins) > 0 {
		rows = append(rows, [2]string{"origins", strings.Join(o.Origins, " ") + ", and its own"})
	}
	return rows
}

// below is a path on all of a server's addresses, with ws: and wss: for
// WebSockets. A socket has no such URL.
func below(addrs []string, ws bool, path string) []string {
	all := slices.Clone(addrs)
	for i, a := range all {
		if strings.HasPrefix(a, "unix:") {
			all[i] = fmt.Sprintf("%s, at %s", a, path)
			continue
		}
		if rest, ok := strings.CutPrefix(a, "http"); ok && ws {
			a = "ws" + rest
		}
		all[i] = strings.TrimSuffix(a, "/") + path
	}
	return all
}

// Unexpected says what was meant by a word behind `millrace ws`, which takes
// none.
func Unexpected(text string, program *kong.Node) error {
	group := program.Children[slices.IndexFunc(program.Children, func(n *kong.Node) bool { return n.Name == "ws" })]
	if text == "echo" {
		return cli.Usage("`millrace ws` takes no \"echo\"", "an echo is what it is already: `millrace ws`")
	}
	if url, err := config.WebSocketUpstream(text); err == nil {
		return cli.Usage(
			fmt.Sprintf("`millrace ws` is the server itself: it has no use for %q", text),
			fmt.Sprintf("to pass connections on to it: `millrace ws proxy %s`; to serve there: `millrace ws --listen %s`", url, listenable(url)),
		)
	}
	if other := cli.OtherVerb(text, group); other != nil {
		return other
	}
	if port, err := config.WebSocketUpstream(":" + text); err == nil {
		return cli.Usage(
			fmt.Sprintf("`millrace ws` has no use for %q", text),
			fmt.Sprintf("to serve at that port: `millrace ws --listen :%s`; to pass connections on to it: `millrace ws proxy %s`", text, port),
		)
	}
	return cli.Usage(fmt.Sprintf("there is no command %q", "ws "+text), "`millrace ws --help` lists what there is")
}

// listenable is the address in an upstream's URL.
func listenable(url string) string {
	if strings.HasPrefix(url, "unix:") {
		return url
	}
	_, place, _ := strings.Cut(url, "://")
	place, _, _ = strings.Cut(place, "/")
	if config.CheckAddress(place) != nil {
		return "ADDR"
	}
	return place
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	return cli.Examples{
		"ws": {
			"millrace ws                                           # an echo, and a page: http://127.0.0.1:8080",
			"millrace ws --channels                                # publish and subscribe",
			"millrace ws --channels --allow-publish 'room:*' --presence",
			"millrace ws --channels -l :80 --key \"$KEY\" --origin https://app.example",
			"millrace ws --channels --bus nats://127.0.0.1:4222    # the same channels on several machines",
			"millrace ws proxy ws://127.0.0.1:9000                 # in front of another server",
			"millrace ws publish news 'it works'                   # while it runs",
		},
		"ws proxy": {
			"millrace ws proxy ws://127.0.0.1:9000                 # ws://127.0.0.1:8080",
			"millrace ws proxy :9000 :9001 -l :80                  # two servers, for everyone",
			"millrace ws proxy wss://live.example.org --host upstream --tls-cert cert.pem --tls-key key.pem --tls-listen :443",
		},
		"ws publish": {
			"millrace ws publish news 'it works'",
			"millrace ws publish news --json '{\"title\": \"it works\"}'",
			"date | millrace ws publish news -",
			"MILLRACE_WS_KEY=\"$KEY\" millrace ws publish news hello --url https://live.example.org/",
		},
		"ws channels":   {"millrace ws channels", "millrace ws channels 'room:*'"},
		"ws presence":   {"millrace ws presence room:1"},
		"ws history":    {"millrace ws history news -n 5 | jq .data"},
		"ws disconnect": {"millrace ws disconnect ada", "millrace ws disconnect ada --again"},
		"ws listen": {
			"millrace ws listen news",
			"millrace ws listen news sport -n 10 | jq .data",
			"millrace ws listen news --url https://live.example.org/",
		},
	}
}
