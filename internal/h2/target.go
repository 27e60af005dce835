package h2

import (
	"net/url"
	"strings"
)

// badTarget reports whether the request's path is none: net/http resets a stream with
// such a path, where it answers 400 over HTTP/1.1.
func (c *Conn) badTarget() bool {
	for i := range c.list.fields {
		f := &c.list.fields[i]
		if f.Name != ":path" {
			continue
		}
		odd := func(r rune) bool { return r == '%' || r <= ' ' || r == 0x7f }
		if f.Value == "" || f.Value[0] == '/' && !strings.ContainsFunc(f.Value, odd) {
			return false // with none, the request is malformed
		}
		_, err := url.ParseRequestURI(f.Value)
		return err != nil
	}
	return false
}

// badText is the text with which net/http refuses such a request over HTTP/1.1.
const badText = "400 Bad Request"

// badRequest answers 400. What comes of a body is not wanted (RFC 9113, 8.1).
func (c *Conn) badRequest(t *turn, id uint32, ended bool) error {
	var block []byte
	if table := c.settings.table; table < firstTable { // it has become smaller (RFC 7541, 4.2)
		block = appendInt(block, 0x20, 5, uint64(table))
	}
	const status, kind = 8, 31 // in the static table
	block = AppendField(block, status, ":status", "400")
	block = AppendField(block, kind, "content-type", "text/plain; charset=utf-8")
	text := []byte(badText)
	if int(c.settings.window) < len(text) || !c.window.take(int64(len(text))) {
		text = nil
	}
	t.out = AppendHeaders(t.out, id, block, len(text) == 0)
	if len(text) > 0 {
		t.out = AppendData(t.out, id, text, maxRead)
	}
	c.warm.Store(max(id, c.warm.Load()))
	c.declined.add(id)
	if !ended {
		t.out = appendReset(t.out, id, codeNo)
	}
	return nil
}
