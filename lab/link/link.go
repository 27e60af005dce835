// Package link makes a network with one link that takes its time and loses
// packets, to measure protocols over. The network is a namespace of its own, which
// nothing else of the machine sees, and which is gone with the process.
//
// The link is a TUN device whose packets this package carries: it exchanges their
// two addresses, which leaves all checksums as they are, and hands them back after
// the delay, or not at all. So what is sent to [Far] arrives at [Near], a whole
// round trip through the kernel's TCP, UDP and IP in one namespace. The kernel's
// own netem does the same between two; it is not in every kernel, and has no seed.
package link

import (
	"errors"
	"time"
)

// The addresses, of a network for documentation (RFC 5737): a server listens at
// Near, or at all, and its clients ask Far.
const (
	Near = "192.0.2.1"
	Far  = "192.0.2.2"
)

// Conditions are what a link does to packets.
type Conditions struct {
	Loss  float64       // the share of packets that are lost, in either direction
	Delay time.Duration // in one direction: half of a round trip
}

// Counts say what became of packets since the link was opened.
type Counts struct {
	Delivered, Lost uint64
	Crowded         uint64 // lost because too many were under way
}

// ErrUnsupported is why there is no link: the error says what is missing.
var ErrUnsupported = errors.New("there can be no network of its own here")

// mtu is Ethernet's: the largest packet.
const mtu = 1500

// mostUnderWay bounds the packets that wait for their time: with 5 ms, those of
// 2.4 Gbit/s.
const mostUnderWay = 1024

// exchange makes a packet to Far one to Near, and a packet from Near one from Far.
// What is not IPv4 (RFC 791, 3.1) is no packet of ours.
func exchange(packet []byte) bool {
	const head, source, destination, size = 20, 12, 16, 4
	if len(packet) < head || packet[0]>>4 != 4 {
		return false
	}
	var from [size]byte
	copy(from[:], packet[source:])
	copy(packet[source:source+size], packet[destination:])
	copy(packet[destination:], from[:])
	return true
}
