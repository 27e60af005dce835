package lane

import (
	"bytes"
	"strconv"

	"millrace/internal/wire/field"
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
// gets the page for that status instead.
func (s *session) Write(p []byte) (int, error) {
	if len(p) <= longestUnread && bytes.HasPrefix(p, []byte("HTTP/1.1 ")) {
		if page := s.unread(p); page != nil {
			if _, err := s.Conn.Write(page); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return s.Conn.Write(p)
}

// unread returns the page for an answer of net/http's own, nil for any other.
func (s *session) unread(answer []byte) []byte {
	line, again, found := bytes.Cut(answer, []byte(unreadFields))
	if line = line[len("HTTP/1.1 "):]; !found || len(line) < len("400") {
		return nil
	}
	status, err := strconv.Atoi(string(line[:len("400")]))
	_, why, _ := bytes.Cut(again, []byte(": ")) // 400 Bad Request: missing required Host header
	if err != nil || len(why) == 0 && !bytes.Equal(line, again) && status != 501 {
		return nil
	}
	text := ""
	switch {
	case status == 501:
		text = "This server knows no such transfer coding."
	case len(why) > 0:
		text = "The server does not understand this request: " + string(why) + "."
	}
	return pages.Unread(status, text, formIn(s.piece), bytes.HasPrefix(s.piece, []byte("HEAD ")))
}

// formIn returns the form that the sender of a header likes best, as far as piece has it. Of
// a header that is not here as a whole a browser is thought of: its cookies are what makes
// headers too long.
func formIn(piece []byte) pages.Form {
	head, _, whole := bytes.Cut(piece, []byte("\r\n\r\n"))
	var accept []string
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && field.Lower(string(name)) == "accept" {
			accept = append(accept, string(bytes.TrimSpace(value)))
		}
	}
	if accept == nil && !whole {
		return pages.HTML
	}
	return pages.FormOf(accept)
}
