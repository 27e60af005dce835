package wsload

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // RFC 6455 asks for it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The opcodes of RFC 6455, 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
)

const (
	fin  = 0x80
	mask = 0x80
	// maxFrame is more than anything that is asked for here may bring; a server
	// that announces more is wrong, and nothing is allocated for it.
	maxFrame = 4 * MaxSize
	// maxHead is the longest head of an answer to a handshake.
	maxHead = 4096
	// acceptGUID is RFC 6455, 1.3.
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// masking is the key of every frame. It is always the same: that it cannot be
// foretold (RFC 6455, 5.3) protects proxies from scripts in browsers, and there
// are none here. It is not zero, so that a server has to unmask.
const masking = "\x37\xfa\x21\x3d"

// masked appends a client's frame.
func masked(to []byte, op byte, payload []byte) []byte {
	to = appendLength(append(to, fin|op), mask, len(payload))
	to = append(to, masking...)
	for i, b := range payload {
		to = append(to, b^masking[i%len(masking)])
	}
	return to
}

// plain appends a server's frame.
func plain(to []byte, op byte, payload []byte) []byte {
	return append(appendLength(append(to, fin|op), 0, len(payload)), payload...)
}

// appendLength appends the length of a frame, RFC 6455, 5.2.
func appendLength(to []byte, bit byte, n int) []byte {
	switch {
	case n < 126:
		return append(to, bit|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(to, bit|126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(to, bit|127), uint64(n))
	}
}

// a frame of a server, in the bytes that were read.
type frame struct {
	fin     bool
	op      byte
	payload []byte
}

// cut takes the first frame from data. size is how many bytes it has; 0: it has
// not come whole.
func cut(data []byte) (f frame, size int, err error) {
	if len(data) < 2 {
		return frame{}, 0, nil
	}
	switch {
	case data[1]&mask != 0:
		return frame{}, 0, errors.New("the server masked its frame")
	case data[0]&0x70 != 0:
		return frame{}, 0, errors.New("the server set bits that are reserved")
	}
	head, length := 2, uint64(data[1])
	switch length {
	case 126:
		if head = 4; len(data) < head {
			return frame{}, 0, nil
		}
		length = uint64(binary.BigEndian.Uint16(data[2:]))
	case 127:
		if head = 10; len(data) < head {
			return frame{}, 0, nil
		}
		length = binary.BigEndian.Uint64(data[2:])
	}
	if length > maxFrame {
		return frame{}, 0, fmt.Errorf("the server announced a frame of %d bytes", length)
	}
	if size = head + int(length); len(data) < size {
		return frame{}, 0, nil
	}
	return frame{data[0]&fin != 0, data[0] & 0x0f, data[head:size]}, size, nil
}

// handshake is a request for a WebSocket, and what its key must be answered
// with: RFC 6455, 4.1.
func handshake(host, path string) (request, accept string) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUpgrade: websocket\r\nConnection: Upgrade" +
		"\r\nSec-WebSocket-Key: " + key + "\r\nSec-WebSocket-Version: 13\r\n\r\n", acceptOf(key)
}

// acceptOf is what a server makes of a key: RFC 6455, 4.2.2.
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + acceptGUID)) //nolint:gosec // RFC 6455 asks for it
	return base64.StdEncoding.EncodeToString(sum[:])
}

// answered checks the head of an answer, up to its empty line.
func answered(head, accept string) error {
	status, fields, _ := strings.Cut(head, "\r\n")
	if _, code, _ := strings.Cut(status, " "); !strings.HasPrefix(code, "101") {
		return fmt.Errorf("the server answered %.60q", status)
	}
	for line := range strings.SplitSeq(fields, "\r\n") {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Sec-WebSocket-Accept") && strings.TrimSpace(value) == accept {
			return nil
		}
	}
	return errors.New("the server's Sec-WebSocket-Accept does not fit")
}
