package cli

// This file is how the program speaks to the person who typed a command:
// results, messages, errors with what to do about them, bars, and figures.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"millrace/internal/observe/redact"
	"millrace/lab/live"
)

// Streams are where a command writes: results to Out, and everything else to
// Err. A server's Err is a [BufferedStderr].
type Streams struct {
	Out, Err io.Writer
	Program  string // that speaks; empty: millrace
}

// program is what messages begin with.
func (s Streams) program() string { return cmp.Or(s.Program, "millrace") }

// Print writes to the person at the terminal. When that fails, there is nobody to
// report it to.
func (s Streams) Print(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, format, args...) }

// WriteJSON prints a result for programs.
func (s Streams) WriteJSON(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Log says what a server did: a line for a person or, where the access log is
// JSON, a line of JSON with the attributes.
func (s Streams) Log(level slog.Level, message string, attrs ...slog.Attr) {
	if !s.JSON() && !s.forwards() {
		s.Print("%s: %s\n", s.program(), message)
		return
	}
	s.Logger().LogAttrs(context.Background(), level, message, attrs...)
}

// fail says what went wrong, and what to type next.
func (s Streams) fail(err error, hint string) {
	switch {
	case hint == "":
		s.Log(slog.LevelError, err.Error())
	case s.JSON() || s.forwards():
		s.Log(slog.LevelError, err.Error(), slog.String("hint", hint))
	default:
		s.Log(slog.LevelError, err.Error())
		s.Print("  %s\n", hint)
	}
}

// Format makes a server's messages JSON if the access log is.
func (s Streams) Format(accessLog string) {
	if c, ok := s.Err.(*BufferedStderr); ok {
		c.json.Store(accessLog == "json")
	}
}

// JSON reports whether programs read the messages.
func (s Streams) JSON() bool {
	c, ok := s.Err.(*BufferedStderr)
	return ok && c.json.Load()
}

// Logger writes to err, in the format that is in use.
func (s Streams) Logger() *slog.Logger {
	text := slog.Handler(slog.NewTextHandler(s.Err, nil))
	if c, ok := s.Err.(*BufferedStderr); ok {
		text = eitherHandler{to: c, text: text, json: slog.NewJSONHandler(s.Err, nil)}
	}
	return slog.New(redact.Handler(text))
}

// IsTerminal reports whether a person is looking.
func IsTerminal(w io.Writer) bool {
	if c, ok := w.(*BufferedStderr); ok {
		w = c.to
	}
	f, ok := w.(*os.File)
	return ok && live.IsTerminal(f) && os.Getenv("TERM") != "dumb"
}

// StandardLog passes on to the error log what packages write to the standard
// logger. net/http does so with what an upstream sends unasked, and shows its
// bytes, which may be somebody's answer: they are left out.
type StandardLog struct{ To *slog.Logger }

// Write implements [io.Writer].
func (l StandardLog) Write(line []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(line)), " starting with ")
	l.To.Warn(redact.Text(text))
	return len(line), nil
}

// Terminal is where a person watches: the standard error if that is one, so that
// a result that goes elsewhere leaves the view where it is; nil: nowhere.
func (s Streams) Terminal() *os.File {
	if os.Getenv("TERM") == "dumb" {
		return nil
	}
	for _, w := range []io.Writer{s.Err, s.Out} {
		if f, ok := w.(*os.File); ok && live.IsTerminal(f) {
			return f
		}
	}
	return nil
}
