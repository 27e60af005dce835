package channels

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"millrace/internal/bytesize"
	"millrace/store/bus"
	"millrace/websocket/auth"
)

// Options of the channels. The zero value lets everybody subscribe, and
// whoever is on this machine publish.
type Options struct {
	// Keys are what publishing over HTTP needs: Authorization: Bearer KEY.
	// Without one only this machine may publish: by its loopback addresses and
	// UNIX sockets, with a loopback Host (localhost, 127.0.0.1, [::1]), HTTP/1.1
	// or later, and no header of a proxy (Forwarded, Via, X-Forwarded-…,
	// CF-Connecting-IP and the like) or of a web page (Origin, Referer,
	// Sec-Fetch-…). Give one behind any proxy, and for a site with hosts.
	Keys []string `yaml:"keys"`
	// Auth says who may do what.
	Auth auth.Options `yaml:"auth"`
	// History bounds what is kept for clients that come back.
	History History `yaml:"history"`
	// Presence lets clients see who else is in a channel (with permission).
	Presence bool `yaml:"presence"`
	// Centrifuge lets clients connect that speak the protocol of Centrifugo's SDKs: below
	// the route at connection/websocket, http_stream, sse and uni_…. Its server API is at
	// api/ then, for those who may publish.
	Centrifuge bool `yaml:"centrifuge"`
	// PerClient is the most channels that one client may subscribe to.
	// Default 128.
	PerClient int `yaml:"per_client"`
	// Commands is the most commands that one client may send in a second, over
	// ten seconds; history and presence count as five. Default 50.
	Commands int `yaml:"commands"`
	// MaxPublish is the most bytes that a publication may have. Default 64KiB.
	MaxPublish bytesize.Size `yaml:"max_publish"`
	// Bus connects machines: nats://host:4222. Default: none, each process has
	// channels of its own.
	Bus string `yaml:"bus"`
	// BusName is the same on all machines that share channels. Default millrace.
	BusName string `yaml:"bus_name"`
	// BusReplicas is how many servers of a cluster of NATS keep each publication: 1, 3 or 5.
	// Default 1 for a bus that is new; one that is there keeps what it has.
	BusReplicas int `yaml:"bus_replicas"`
}

// History says how much of each channel is kept.
type History struct {
	// Messages is how many of each channel. Default 100.
	Messages int `yaml:"messages"`
	// Age is how long. Default 5m.
	Age time.Duration `yaml:"age"`
	// Memory is how many bytes for all channels together. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Off keeps nothing.
	Off bool `yaml:"off"`
}

const (
	defaultPerClient  = 128
	defaultCommands   = 50
	defaultMaxPublish = 64 << 10
	defaultMessages   = 100
	defaultAge        = 5 * time.Minute
	defaultMemory     = 64 << 20

	// minKey is the length of a key that cannot be guessed over a network.
	minKey = 16
	// maxKeys bounds what every publication over HTTP is compared with.
	maxKeys = 1000
	// mostPerClient bounds what the end of one client costs its runner.
	mostPerClient = 100_000
	// mostCommands is more than one connection gets through a runner.
	mostCommands = 1_000_000
	// largestPublish is what a queue of one client and a frame in memory can
	// still hold.
	largestPublish = 64 << 20
	// mostMessages bounds what one subscription can be sent at its beginning.
	mostMessages = 1_000_000
	// mostHistories is how many channels have a history: each costs some
	// hundred bytes whatever is in it, and anyone who may publish can make one.
	mostHistories = 1_000_000
)

// Check returns what is wrong with the options, by key.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	for key, fault := range o.Auth.Check() {
		faults["auth."+key] = fault
	}
	o.checkKeys(faults)
	o.History.check(faults)
	for _, n := range []struct {
		key         string
		value, most int64
		standard    string
	}{
		{"per_client", int64(o.PerClient), mostPerClient, "128"},
		{"commands", int64(o.Commands), mostCommands, "50"},
		{"max_publish", int64(o.MaxPublish), largestPublish, "64KiB"},
		{"history.messages", int64(o.History.Messages), mostMessages, "100"},
	} {
		if n.value < 0 {
			faults[n.key] = fmt.Errorf("%d is negative: leave it out for the default, %s", n.value, n.standard)
		} else if n.value > n.most {
			faults[n.key] = fmt.Errorf("%d is too many: at most %d", n.value, n.most)
		}
	}
	if err := checkBus(o.Bus); err != nil {
		faults["bus"] = err
	}
	if o.BusName != "" && o.Bus == "" {
		faults["bus_name"] = errors.New("bus_name does nothing without a bus: write bus: nats://host:4222")
	} else if strings.ContainsFunc(o.BusName, notInName) {
		faults["bus_name"] = fmt.Errorf("%q cannot be the name of a bus: letters, digits, - and _ only", o.BusName)
	}
	switch {
	case o.BusReplicas == 0:
	case o.Bus == "":
		faults["bus_replicas"] = errors.New("bus_replicas does nothing without a bus: write bus: nats://host:4222")
	case o.BusReplicas != 1 && o.BusReplicas != 3 && o.BusReplicas != 5:
		faults["bus_replicas"] = fmt.Errorf("%d servers cannot agree by a majority better than one fewer: use 1, 3 or 5", o.BusReplicas)
	}
	return faults
}

func (o Options) checkKeys(faults map[string]error) {
	if len(o.Keys) > maxKeys {
		faults["keys"] = fmt.Errorf("%d keys are too many to compare with: at most %d", len(o.Keys), maxKeys)
	}
	for i, key := range o.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		switch {
		case len(key) < minKey:
			faults[at] = fmt.Errorf("a key of %d characters can be guessed: at least %d, such as openssl rand -hex 16 makes", len(key), minKey)
		case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }):
			faults[at] = errors.New("a key goes into a header: printable ASCII without spaces only")
		}
	}
}

func (h History) check(faults map[string]error) {
	if h.Age < 0 {
		faults["history.age"] = fmt.Errorf("%s is negative: write how long, like 5m, or off: true to keep nothing", h.Age)
	}
	if h.Memory < 0 {
		faults["history.memory"] = fmt.Errorf("%s is negative: write how much, like 64MiB, or off: true to keep nothing", h.Memory)
	}
	if h.Off && (h.Messages != 0 || h.Age != 0 || h.Memory != 0) {
		faults["history.off"] = errors.New("the history is off, and its bounds are given: leave one of them out")
	}
}

// checkBus looks at an address, or several with commas between them.
func checkBus(text string) error {
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Scheme == "" || u.Hostname() == "" {
			return errors.New("this is not an address of a bus: write nats://host:4222, or tls://host:4222") // not quoted: it may hold a password
		}
		if u.Scheme != "nats" && u.Scheme != "tls" {
			return fmt.Errorf("a bus is not reached by %s: write nats://%s, or tls://%[2]s", u.Scheme, u.Host)
		}
	}
	return nil
}

// notInName reports what the names of streams and subjects cannot hold.
func notInName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// Keep is the history for a bus.
func (o Options) Keep() bus.Keep {
	if o.History.Off {
		return bus.Keep{}
	}
	return bus.Keep{
		Messages: or(o.History.Messages, defaultMessages),
		Age:      or(o.History.Age, defaultAge),
		Bytes:    int64(or(o.History.Memory, defaultMemory)),
		Channels: mostHistories,
	}
}

// or is v, or its default if v is not given.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
