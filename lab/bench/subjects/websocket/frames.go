package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1" // RFC 6455 asks for it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// maxHead is the longest head of an answer that is read at once.
	maxHead = 1024
	// maxFrame is more than any frame that an echo of rampMessage may have; a
	// server that announces more is wrong, and nothing is allocated for it.
	maxFrame = 4096
	// maxFrames bounds what is read while one echo is awaited.
	maxFrames = 64
	// acceptGUID is RFC 6455, 1.3.
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
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

// errUnexpected is an answer that is not an echo.
var errUnexpected = errors.New("the answer is not what was sent")

// upgrade asks for a WebSocket and checks the answer, RFC 6455, 4.1.
func upgrade(w io.Writer, r *bufio.Reader, host, path string) error {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	request := "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://" + host +
		"\r\nSec-WebSocket-Key: " + key + "\r\nSec-WebSocket-Version: 13\r\n\r\n"
	if _, err := io.WriteString(w, request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the server answered %s", answer.Status)
	}
	sum := sha1.Sum([]byte(key + acceptGUID)) // RFC 6455 asks for it
	if got := answer.Header.Get("Sec-WebSocket-Accept"); got != base64.StdEncoding.EncodeToString(sum[:]) {
		return fmt.Errorf("the server's Sec-WebSocket-Accept %q does not fit", got)
	}
	if r.Buffered() > 0 {
		return errors.New("the server spoke first")
	}
	return nil
}

// echo sends rampMessage in one masked text frame and reads it back, in however
// many frames it comes. A server may have asked whether we are still there; it
// is told.
func echo(w io.Writer, r *bufio.Reader) error {
	if _, err := w.Write(frame(opText, rampMessage)); err != nil {
		return err
	}
	var back strings.Builder
	for range maxFrames {
		op, payload, err := readFrame(r)
		if err != nil {
			return err
		}
		if op == opPing && len(payload) < 126 {
			if _, err := w.Write(frame(opPong, string(payload))); err != nil {
				return err
			}
			continue
		}
		if op != opText && op != opBinary && op != opContinuation {
			return fmt.Errorf("%w: a frame with opcode %d", errUnexpected, op)
		}
		back.Write(payload)
		if back.Len() >= len(rampMessage) {
			break
		}
	}
	if back.String() != rampMessage {
		return fmt.Errorf("%w: %.40q", errUnexpected, back.String())
	}
	return nil
}

// goodbye sends a close frame (1000, normal) and reads until the server has
// closed the connection.
func goodbye(w io.Writer, r *bufio.Reader) error {
	if _, err := w.Write(frame(opClose, "\x03\xe8")); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, io.LimitReader(r, maxFrame))
	return err
}

// frame is one masked frame of a client with a payload below 126 bytes. The
// mask is always the same: that it cannot be foretold (RFC 6455, 5.3) protects
// proxies from scripts in browsers, and there are neither here.
func frame(op byte, payload string) []byte {
	const mask = "\x37\xfa\x21\x3d"
	f := make([]byte, 0, 6+len(payload))
	f = append(f, 0x80|op, 0x80|byte(len(payload)))
	f = append(f, mask...)
	for i := range len(payload) {
		f = append(f, payload[i]^mask[i%len(mask)])
	}
	return f
}

// readFrame reads one unmasked frame of a server, RFC 6455, 5.2.
func readFrame(r io.Reader) (op byte, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	op = head[0] & 0x0f
	if head[1]&0x80 != 0 {
		return 0, nil, errors.New("the server masked its frame")
	}
	length := uint64(head[1] & 0x7f)
	switch length {
	case 126:
		if _, err := io.ReadFull(r, head[:2]); err != nil {
			return 0, nil, err
		}
		length = uint64(binary.BigEndian.Uint16(head[:2]))
	case 127:
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return 0, nil, err
		}
		length = binary.BigEndian.Uint64(head[:])
	}
	if length > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, where an echo of %d is due", length, len(rampMessage))
	}
	payload = make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	return op, payload, nil
}
