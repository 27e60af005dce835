package websocket

import (
	"millrace/websocket/conn"
	"millrace/websocket/frame"
)

// echo sends every message back as it comes, part by part: it holds nothing,
// and what the client does not read stops what it sends.
type echo struct{}

var _ conn.Streamer = echo{}

// Open implements [conn.App].
func (echo) Open(*conn.Conn) {}

// Message implements [conn.App]: of those that came compressed.
func (echo) Message(c *conn.Conn, op frame.Opcode, data []byte) { c.Send(op, data) }

// Piece implements [conn.Streamer].
func (echo) Piece(c *conn.Conn, op frame.Opcode, data []byte, first, last bool) {
	c.SendPiece(op, data, first, last)
}

// Closed implements [conn.App].
func (echo) Closed(*conn.Conn, frame.Code) {}
