// Package proxyline reads and writes the line that a load balancer sends before
// anything else on a connection, to say whose it is: the PROXY protocol, versions 1
// and 2 (haproxy.org/download/3.0/doc/proxy-protocol.txt). Reading is strict: a
// header that is not exactly as it must be is an error.
package proxyline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

const (
	text      = "PROXY "                 // how version 1 begins
	signature = "\r\n\r\n\x00\r\nQUIT\n" // how version 2 begins
	// maxText is the longest header of version 1, with its line end.
	maxText = 107
	// maxBinary bounds what follows the first 16 bytes of version 2: addresses and
	// a few hundred bytes of further values, which are skipped.
	maxBinary = 4096
)

// ErrNone says that a connection does not begin with a PROXY header.
var ErrNone = errors.New("no PROXY header")

// Begins reports whether these are the first bytes of a header.
func Begins(b []byte) bool {
	return bytes.HasPrefix(b, []byte(text+"TCP")) || bytes.HasPrefix(b, []byte(text+"UNKNOWN")) || bytes.HasPrefix(b, []byte(signature))
}

// Read reads a header and no byte more. The client is the zero value where the
// header names none: it is the load balancer itself that asks.
func Read(r io.Reader) (client netip.AddrPort, err error) {
	var buf [maxText]byte
	n := 0
	for n < len(signature) { // no header is shorter
		m, err := r.Read(buf[n:len(signature)])
		n += m
		if !bytes.HasPrefix([]byte(signature), buf[:n]) && string(buf[:min(n, len(text))]) != text[:min(n, len(text))] {
			return client, ErrNone
		}
		if err != nil && n < len(signature) {
			if n == 0 {
				return client, err //nolint:wrapcheck // of the connection: nothing was sent
			}
			return client, brokenOff(err)
		}
	}
	if string(buf[:n]) == signature {
		return readBinary(r)
	}
	for ; buf[n-1] != '\n'; n++ { // one by one: what follows is not ours
		if n == maxText {
			return client, errors.New("the PROXY header has no end")
		}
		if _, err := io.ReadFull(r, buf[n:n+1]); err != nil {
			return client, brokenOff(err)
		}
	}
	return parseText(string(buf[:n]))
}

// brokenOff is the error of a header that is not complete.
func brokenOff(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the PROXY header breaks off: %w", err)
}

// parseText reads "PROXY TCP4 192.0.2.1 198.51.100.1 4711 443\r\n".
func parseText(line string) (client netip.AddrPort, err error) {
	wrong := fmt.Errorf("%q is no PROXY header", line)
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return client, wrong
	}
	fields := strings.Split(line, " ")
	if len(fields) >= 2 && fields[1] == "UNKNOWN" {
		return client, nil
	}
	if len(fields) != 6 || fields[1] != "TCP4" && fields[1] != "TCP6" {
		return client, wrong
	}
	var at [2]netip.AddrPort
	for i := range at {
		a, err := netip.ParseAddr(fields[2+i])
		port, e := strconv.ParseUint(fields[4+i], 10, 16)
		if err != nil || e != nil || a.Is4() != (fields[1] == "TCP4") || a.Zone() != "" || strconv.FormatUint(port, 10) != fields[4+i] {
			return client, wrong
		}
		at[i] = netip.AddrPortFrom(a.Unmap(), uint16(port))
	}
	return at[0], nil
}

// readBinary reads what follows the signature of version 2.
func readBinary(r io.Reader) (client netip.AddrPort, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return client, brokenOff(err)
	}
	size := int(binary.BigEndian.Uint16(head[2:]))
	if size > maxBinary {
		return client, fmt.Errorf("the PROXY header has %d bytes: at most %d are taken", size, maxBinary)
	}
	rest := make([]byte, size)
	if _, err := io.ReadFull(r, rest); err != nil {
		return client, brokenOff(err)
	}
	const local, proxy = 0x20, 0x21
	switch head[0] {
	case local:
		return client, nil
	case proxy:
	default:
		return client, fmt.Errorf("the PROXY header is of an unknown version or command: %#02x", head[0])
	}
	const (
		unspecified, tcp4, tcp6, unix = 0x00, 0x11, 0x21, 0x31

		size4, size6, sizeUnix = 12, 36, 216
	)
	switch family := head[1]; {
	case family == tcp4 && size >= size4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest)), binary.BigEndian.Uint16(rest[8:])), nil
	case family == tcp6 && size >= size6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest)).Unmap(), binary.BigEndian.Uint16(rest[32:])), nil
	case family == unspecified, family == unix && size >= sizeUnix:
		return client, nil
	default:
		return client, fmt.Errorf("the PROXY header is of an unknown kind: %#02x, with %d bytes", family, size)
	}
}

// Version is one of the two forms of a header.
type Version int

// The versions: a line of text, and bytes.
const (
	V1 Version = 1
	V2 Version = 2
)

// Append appends the header of a connection from one address to another. Where
// one of them is not known the header says that it names nobody.
func Append(b []byte, v Version, from, to netip.AddrPort) []byte {
	known := from.IsValid() && to.IsValid()
	client, server := from.Addr().Unmap().WithZone(""), to.Addr().Unmap().WithZone("")
	four := client.Is4() && server.Is4()
	if v == V2 {
		return appendBinary(b, known, four, netip.AddrPortFrom(client, from.Port()), netip.AddrPortFrom(server, to.Port()))
	}
	switch {
	case !known:
		return append(b, "PROXY UNKNOWN\r\n"...)
	case four:
		b = append(b, "PROXY TCP4 "...)
	default: // one of each: version 4 has a place in version 6 (RFC 4291, 2.5.5.2)
		b = append(b, "PROXY TCP6 "...)
		client, server = netip.AddrFrom16(client.As16()), netip.AddrFrom16(server.As16())
	}
	b = append(client.AppendTo(b), ' ')
	b = append(server.AppendTo(b), ' ')
	b = append(strconv.AppendUint(b, uint64(from.Port()), 10), ' ')
	return append(strconv.AppendUint(b, uint64(to.Port()), 10), "\r\n"...)
}

func appendBinary(b []byte, known, four bool, from, to netip.AddrPort) []byte {
	b = append(b, signature...)
	switch {
	case !known:
		return append(b, 0x20, 0x00, 0, 0) // LOCAL, unspecified
	case four:
		a, z := from.Addr().As4(), to.Addr().As4()
		b = append(append(append(b, 0x21, 0x11, 0, 12), a[:]...), z[:]...)
	default:
		a, z := from.Addr().As16(), to.Addr().As16()
		b = append(append(append(b, 0x21, 0x21, 0, 36), a[:]...), z[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, from.Port())
	return binary.BigEndian.AppendUint16(b, to.Port())
}
