//go:build !linux

package steer

import (
	"errors"
	"net"

	"millrace/internal/wire/netset"
)

var errNotHere = errors.New("this system cannot tell the packets of two processes apart")

// Listen opens a UDP socket.
func Listen(of netset.Family, at *net.UDPAddr) (*net.UDPConn, error) {
	return net.ListenUDP(of.Network("udp"), at)
}

// Beside fails: see errNotHere.
func Beside(*net.UDPConn) (*net.UDPConn, error) { return nil, errNotHere }

// Begin fails: see errNotHere.
func Begin(*net.UDPConn, Generation) error { return errNotHere }
