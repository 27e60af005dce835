package websocket

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/wire/field"
	"millrace/proxy"
	"millrace/websocket/channels"
)

// Options of the job. Exactly one of Echo, Proxy and Channels.
type Options struct {
	// Echo sends every message back to who sent it, under every path of the
	// route: "websocket: echo".
	Echo *Echo `yaml:"echo"`
	// Proxy passes connections on to another server. Its address alone is
	// enough: "proxy: ws://127.0.0.1:9000". Here the default of host is client,
	// since servers of WebSockets compare Origin with Host; write host: upstream
	// for one that answers to its own name only.
	Proxy *proxy.Options `yaml:"proxy"`
	// Channels publish and subscribe: /ws, /sse, /publish and /client.js below
	// the route, which must end in "/".
	Channels *channels.Options `yaml:"channels"`

	// Origins are the sites whose pages may connect, besides the server's own:
	// https://app.example, https://*.example.org, or * for any. Clients that are
	// no browsers send no Origin, and may.
	Origins []string `yaml:"origins"`
	// Subprotocols are the names that are agreed to when a client offers them;
	// the first of ours that it offers. Not for a proxy, which passes them on.
	Subprotocols []string `yaml:"subprotocols"`
	// MaxMessage is the most bytes that a message of a client may have. Default
	// 65KiB for channels, or 1KiB more than their max_publish; no limit for an
	// echo, which holds none of it (16MiB for compressed ones, which it has to
	// hold), and for a proxy, where it would be the upstream's to say.
	MaxMessage bytesize.Size `yaml:"max_message"`
	// Memory is the most that messages which have not come whole, or are being
	// decompressed, may take, of all clients together. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Connections is the most clients at once; more get 503. Default: no limit
	// but the system's.
	Connections int `yaml:"connections"`
	// Ping is after how much silence a client is asked whether it is still
	// there; -1s: never. Default 30s. Not for a proxy.
	Ping time.Duration `yaml:"ping" negative:"never"`
	// PongTimeout is how long it may take to answer. Default 20s.
	PongTimeout time.Duration `yaml:"pong_timeout"`
	// IdleTimeout closes connections on which no message came for so long.
	// Default: never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// WriteTimeout is how long a client may take no byte of what is sent to it.
	// Then it gets a close frame, and as long again (at least 5s) to take that.
	// One of a proxy is cut off at once. Default 30s.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// Queue is the most bytes that may wait for one client. Default 256KiB.
	Queue bytesize.Size `yaml:"queue"`
	// QueueLength is the most messages that may wait for one client. Default 256.
	QueueLength int `yaml:"queue_length"`
	// SlowConsumer says what happens to a client for which more would have to
	// wait: disconnect (close code 1013), or drop_oldest. Default disconnect.
	SlowConsumer string `yaml:"slow_consumer"`
	// Compression is permessage-deflate.
	Compression Compression `yaml:"compression"`
	// Reconnect is the time over which clients are told to spread their return
	// when they are sent away. Default 5s.
	Reconnect time.Duration `yaml:"reconnect"`
	// Page answers a browser that comes without a WebSocket with a small page
	// for trying it out. Not for a proxy.
	Page bool `yaml:"page"`
}

// Echo has no options.
type Echo struct{}

// Compression of messages (RFC 7692). No context is kept between messages: it
// would cost every client some 300 KB.
type Compression struct {
	// Off agrees to none.
	Off bool `yaml:"off"`
	// From is the size from which on messages are compressed. Default 1KiB.
	From bytesize.Size `yaml:"from"`
}

// What options may be. They only keep away what nobody can have meant.
const (
	longest       = 24 * time.Hour // a client that needs longer is gone
	largest       = 1 << 30        // bytes of a message or a queue: one client could take all memory
	leastMemory   = 64 << 10       // one message of the default size
	mostClients   = 10_000_000     // descriptors that Linux allows a process with much tuning
	longestQueue  = 1 << 20        // messages
	mostNames     = 64             // subprotocols; each costs every handshake
	defaultMemory = bytesize.Size(64 << 20)
)

// SlowConsumers are the ways to treat a client that does not read as fast as
// others write for it.
func SlowConsumers() []string { return []string{"disconnect", "drop_oldest"} }

// UnmarshalText lets a route say "websocket: echo", "websocket: channels", or
// the address of the server that connections are passed on to, as in
// "websocket: ws://127.0.0.1:9000".
func (o *Options) UnmarshalText(text []byte) error {
	switch s := strings.TrimSpace(string(text)); {
	case s == "echo":
		o.Echo = &Echo{}
	case s == "channels":
		o.Channels = &channels.Options{}
	case strings.Contains(s, "://") || strings.HasPrefix(s, "unix:"):
		p := new(proxy.Options)
		if err := p.UnmarshalText(text); err != nil {
			return err
		}
		o.Proxy = p
	default:
		return fmt.Errorf("%q is none of the ways to answer: write echo, channels, or the address of a server like ws://127.0.0.1:9000", s)
	}
	return nil
}

// hostOfClient is the default of proxy.Options.Host here: most servers compare
// Origin, which a browser fills with the site of the page, with Host.
const hostOfClient = "client"

// ProxyOptions are those of Proxy with the defaults of this job, for the pool of
// its upstreams and for what goes to them. Proxy must be there.
func (o Options) ProxyOptions() proxy.Options {
	p := *o.Proxy
	p.Host = cmp.Or(p.Host, hostOfClient)
	return p
}

// Check returns what is wrong with the options, by the key it is wrong with:
// that of a part has the part's before it, as in channels.keys.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	o.checkKind(faults)
	if o.Proxy != nil {
		nest(faults, "proxy", o.Proxy.Check())
		o.checkProxied(faults)
	}
	if o.Channels != nil {
		nest(faults, "channels", o.Channels.Check())
	}
	for i, origin := range o.Origins {
		if err := checkOrigin(origin); err != nil {
			faults[fmt.Sprintf("origins[%d]", i)] = err
		}
	}
	o.checkSubprotocols(faults)
	o.checkSizes(faults)
	o.checkTimes(faults)
	if o.SlowConsumer != "" && !slices.Contains(SlowConsumers(), o.SlowConsumer) {
		faults["slow_consumer"] = fmt.Errorf("%q is not a way to treat slow clients: use %s", o.SlowConsumer, strings.Join(SlowConsumers(), " or "))
	}
	if o.Compression.Off && o.Compression.From != 0 {
		faults["compression.from"] = errors.New("\"from\" does nothing while compression is off: leave one of them out")
	}
	return faults
}

// nest puts a part's faults under its key.
func nest(faults map[string]error, key string, of map[string]error) {
	for inner, fault := range of {
		faults[key+"."+inner] = fault
	}
}

// checkKind wants exactly one of three.
func (o Options) checkKind(faults map[string]error) {
	var kinds []string
	for _, k := range []struct {
		name  string
		there bool
	}{{"echo", o.Echo != nil}, {"proxy", o.Proxy != nil}, {"channels", o.Channels != nil}} {
		if k.there {
			kinds = append(kinds, k.name)
		}
	}
	switch len(kinds) {
	case 0:
		faults["echo"] = errors.New("websocket needs one of echo, proxy and channels: for example websocket: echo")
	case 1:
	default:
		faults[kinds[1]] = fmt.Errorf("a route is one of echo, proxy and channels, not %s: keep one, and give the other a route of its own", strings.Join(kinds, " and "))
	}
}

// checkProxied refuses options that a proxy cannot have, because it does not speak the
// protocol itself.
func (o Options) checkProxied(faults map[string]error) {
	const why = "%q does nothing for a proxy: %s"
	if len(o.Subprotocols) > 0 {
		faults["subprotocols"] = fmt.Errorf(why, "subprotocols", "the upstream agrees to them")
	}
	if o.Ping != 0 {
		faults["ping"] = fmt.Errorf(why, "ping", "the upstream sends its own")
	}
	if len(o.Proxy.Canary.To) > 0 {
		faults["proxy.canary"] = errors.New(`WebSockets have no canary: use a "proxy" route, which passes them on as well`)
	}
	if len(o.Proxy.Mirror.To) > 0 {
		faults["proxy.mirror"] = errors.New("a WebSocket cannot be mirrored")
	}
	if o.Page {
		faults["page"] = fmt.Errorf(why, "page", "what to say to a browser is the upstream's")
	}
}

// checkOrigin reports what is wrong with an origin (RFC 6454, 6.2), or with a
// pattern of them.
func checkOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	switch {
	case !strings.Contains(origin, "://") && origin != "" && !strings.ContainsAny(origin, " /,"):
		return fmt.Errorf("%q is not an origin: write https://%s, or * for any", origin, origin)
	case err != nil || u.Host == "" || u.Scheme == "":
		return fmt.Errorf("%q is not an origin: write it like https://app.example, or * for any", origin)
	case u.Scheme == "ws" || u.Scheme == "wss":
		return fmt.Errorf("%q is not an origin: pages come by %s", origin, "http"+strings.TrimPrefix(u.Scheme, "ws")+"://"+u.Host)
	case u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q is more than an origin: write %s://%s", origin, u.Scheme, u.Host)
	case strings.Contains(strings.TrimPrefix(u.Host, "*."), "*"):
		return fmt.Errorf("%q: a * stands alone before the first dot, like https://*.example.org", origin)
	}
	return nil
}

// checkSubprotocols wants tokens (RFC 6455, 4.1; RFC 9110, 5.6.2), each once.
func (o Options) checkSubprotocols(faults map[string]error) {
	if len(o.Subprotocols) > mostNames {
		faults["subprotocols"] = fmt.Errorf("%d subprotocols are too many: at most %d", len(o.Subprotocols), mostNames)
	}
	for i, name := range o.Subprotocols {
		key := fmt.Sprintf("subprotocols[%d]", i)
		switch {
		case !field.Token(name):
			faults[key] = fmt.Errorf("%q cannot be the name of a subprotocol: letters, digits and - . _ ! # $ %% & ' * + ^ ` | ~ only", name)
		case slices.Contains(o.Subprotocols[:i], name):
			faults[key] = fmt.Errorf("%q is here a second time", name)
		}
	}
}

func (o Options) checkSizes(faults map[string]error) {
	for key, n := range map[string]bytesize.Size{"max_message": o.MaxMessage, "queue": o.Queue, "compression.from": o.Compression.From} {
		if n > largest {
			faults[key] = fmt.Errorf("%s is too much: at most %s", n, bytesize.Size(largest))
		}
	}
	memory := o.Memory
	switch {
	case memory <= 0:
		memory = defaultMemory
	case memory < leastMemory:
		faults["memory"] = fmt.Errorf("%s is too little, messages would be refused: at least %s", memory, bytesize.Size(leastMemory))
	}
	if o.Channels != nil && o.MaxMessage > memory && o.MaxMessage <= largest {
		faults["max_message"] = fmt.Errorf("a message of %s would not fit into \"memory\", %s for those of all clients: make that larger", o.MaxMessage, memory)
	}
	if o.Connections > mostClients {
		faults["connections"] = fmt.Errorf("%d is more than any machine holds: at most %d", o.Connections, mostClients)
	}
	if o.QueueLength > longestQueue {
		faults["queue_length"] = fmt.Errorf("%d messages are too many to wait for one client: at most %d", o.QueueLength, longestQueue)
	}
}

func (o Options) checkTimes(faults map[string]error) {
	times := map[string]time.Duration{
		"ping": o.Ping, "pong_timeout": o.PongTimeout, "idle_timeout": o.IdleTimeout,
		"write_timeout": o.WriteTimeout, "reconnect": o.Reconnect,
	}
	for key, d := range maps.All(times) {
		if d > longest {
			faults[key] = fmt.Errorf("%s is too long: at most 24h", d)
		}
	}
	if o.Ping < 0 && o.PongTimeout > 0 {
		faults["pong_timeout"] = errors.New("\"pong_timeout\" does nothing, since \"ping\" says never: leave one of them out")
	}
}
