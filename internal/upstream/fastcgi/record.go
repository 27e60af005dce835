// Package fastcgi is a client of FastCGI 1.0 in the role of responder, which is
// what php-fpm speaks: one request at a time on a connection.
package fastcgi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kinds of records (FastCGI specification, 8).
const (
	kindBegin  = 1
	kindAbort  = 2
	kindEnd    = 3
	kindParams = 4
	kindStdin  = 5
	kindStdout = 6
	kindStderr = 7
)

const (
	version1      = 1
	roleResponder = 1
	flagKeep      = 1
	requestID     = 1 // the only one on its connection
	headerLen     = 8
	maxContent    = 65535 - 7 // a multiple of 8, so that none needs padding
)

// ErrProtocol means that an application's answer is not FastCGI.
var ErrProtocol = errors.New("the application does not speak FastCGI")

// appendHeader appends the header of a record.
func appendHeader(b []byte, kind byte, length int) []byte {
	b = append(b, version1, kind)
	b = binary.BigEndian.AppendUint16(b, requestID)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	return append(b, 0, 0)
}

// appendStream appends content as records of a kind, without the empty one that
// ends a stream.
func appendStream(b []byte, kind byte, content []byte) []byte {
	for len(content) > 0 {
		n := min(len(content), maxContent)
		b = append(appendHeader(b, kind, n), content[:n]...)
		content = content[n:]
	}
	return b
}

func appendBegin(b []byte, keep bool) []byte {
	b = appendHeader(b, kindBegin, 8)
	flags := byte(0)
	if keep {
		flags = flagKeep
	}
	return append(b, 0, roleResponder, flags, 0, 0, 0, 0, 0)
}

// AppendParam appends a name and its value as they stand in a request.
func AppendParam(b []byte, name, value string) []byte {
	b = appendLength(b, len(name))
	b = appendLength(b, len(value))
	b = append(b, name...)
	return append(b, value...)
}

func appendLength(b []byte, n int) []byte {
	if n < 128 {
		return append(b, byte(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n)|1<<31)
}

// record is the header of a record that is being read.
type record struct {
	kind    byte
	content int // bytes that are left of the content
	padding int // and of what stands behind it
}

// recordOf reads a header.
func recordOf(b []byte) (record, error) {
	if b[0] != version1 {
		return record{}, fmt.Errorf("%w: version %d", ErrProtocol, b[0])
	}
	if id := binary.BigEndian.Uint16(b[2:]); id != requestID {
		return record{}, fmt.Errorf("%w: a record of request %d", ErrProtocol, id)
	}
	switch b[1] {
	case kindStdout, kindStderr, kindEnd:
		return record{b[1], int(binary.BigEndian.Uint16(b[4:])), int(b[6])}, nil
	}
	return record{}, fmt.Errorf("%w: a record of kind %d", ErrProtocol, b[1])
}
