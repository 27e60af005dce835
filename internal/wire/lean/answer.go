package lean

import (
	"net/http"

	"millrace/internal/wire/field"
)

// AppendHead appends the head of an answer as [Response] would write it for a handler that
// has set these lines. The lines must be sorted by name, without Connection and
// Transfer-Encoding; a Content-Length must be the body's. Without a Content-Type none is
// guessed.
func (s *Server) AppendHead(out []byte, status int, lines []field.Line) []byte {
	out = appendStatus(out, status)
	dated, named := false, s.Name == ""
	for i := range lines {
		l := &lines[i]
		if !named && l.Name >= "Server" {
			out, named = appendLine(out, "Server", s.Name), true
		}
		switch l.Name {
		case "Server":
			if s.Name != "" {
				continue
			}
		case "Date":
			dated = true
		case "Content-Length":
			if !hasBody(status) {
				continue
			}
		case "Content-Type":
			if status == http.StatusNotModified {
				continue
			}
		}
		out = appendLine(out, l.Name, l.Value)
	}
	if !named {
		out = appendLine(out, "Server", s.Name)
	}
	if !dated {
		out = appendLine(out, "Date", s.now())
	}
	return append(out, "\r\n"...)
}

func appendLine(out []byte, name, value string) []byte {
	return append(append(append(append(out, name...), ": "...), value...), "\r\n"...)
}
