package servecmd

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
)

const nameServers = "/etc/resolv.conf"

// keepNameServers has the name servers of the start asked once their file was
// replaced by one that is out of reach, as DHCP clients do. Package net would ask
// this machine instead.
func keepNameServers() {
	text, err := os.ReadFile(nameServers)
	if err != nil {
		return
	}
	known := nameServersIn(string(text))
	if len(known) == 0 {
		return
	}
	var turn atomic.Uint32
	net.DefaultResolver = &net.Resolver{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if f, err := os.Open(nameServers); err == nil {
			_ = f.Close() // nothing was read
		} else {
			address = known[int(turn.Add(1)-1)%len(known)]
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

// nameServersIn are the addresses in the text of resolv.conf(5).
func nameServersIn(text string) (all []string) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			all = append(all, net.JoinHostPort(words[1], "53"))
		}
	}
	return all
}
