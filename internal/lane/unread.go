package lane

import (
	"bytes"
	"strconv"

	"millrace/internal/wire/pages"
)

// How net/http answers what it cannot read as a request: a status line, these fields, and
// the text of the status line again, in one Write. An answer of a handler has at least a
// Date as well.
const (
	unreadFields  = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	longestUnread = 512 // bytes of it
)

// Write implements [net.Conn]. What net/http cannot read it answers by itself; the client
// gets the page for that status instead. It is HTML for everybody, as other servers have it:
// nobody has read what the client accepts. What a handler writes stays as it is: a body may
// have the same bytes.
func (s *session) Write(p []byte) (int, error) {
	if !s.handled && len(p) <= longestUnread && bytes.HasPrefix(p, []byte("HTTP/1.1 ")) {
		if page := unread(p); page != nil {
			if _, err := s.Conn.Write(page); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return s.Conn.Write(p)
}

// unread returns the page for an answer of net/http's own, nil for any other.
func unread(answer []byte) []byte {
	line, again, found := bytes.Cut(answer[len("HTTP/1.1 "):], []byte(unreadFields))
	coding := string(again) == "Unsupported transfer encoding"
	if !found || len(line) < len("400") || line[0] < '4' || bytes.IndexByte(line, '\n') >= 0 || !coding && !bytes.Equal(line, again) {
		return nil
	}
	status, err := strconv.Atoi(string(line[:len("400")]))
	if err != nil {
		return nil
	}
	text := ""
	if _, why, ok := bytes.Cut(again, []byte(": ")); ok { // 400 Bad Request: missing required Host header
		text = "The server does not understand this request: " + string(why) + "."
	} else if coding {
		text = "This server knows no such transfer coding."
	}
	return pages.Unread(status, text)
}
