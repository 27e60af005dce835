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

// Beside opens a socket beside the predecessor's.
func Beside(*net.UDPConn) (*net.UDPConn, error) { return nil, errNotHere }

// Begin has the packets of new connections come to a socket.
func Begin(*net.UDPConn, Generation) error { return errNotHere }
