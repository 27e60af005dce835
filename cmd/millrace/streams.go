package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"millrace/internal/redact"
	"millrace/lab/live"
)

// streams are where a command writes: results, and everything else. A server's
// err is a *console.
type streams struct {
	out, err io.Writer
}

// say tells the person at the terminal. When nobody can be told, there is
// nobody to tell of that either.
func (s streams) say(format string, args ...any) { _, _ = fmt.Fprintf(s.err, format, args...) }

// tell says what a server did: a line for a person or, where the access log is
// JSON, a line of JSON with the attributes.
func (s streams) tell(level slog.Level, message string, attrs ...slog.Attr) {
	if !s.json() {
		s.say("millrace: %s\n", message)
		return
	}
	s.logger().LogAttrs(context.Background(), level, message, attrs...)
}

// fail says what went wrong, and what to type next.
func (s streams) fail(err error, hint string) {
	switch {
	case hint == "":
		s.tell(slog.LevelError, err.Error())
	case s.json():
		s.tell(slog.LevelError, err.Error(), slog.String("hint", hint))
	default:
		s.tell(slog.LevelError, err.Error())
		s.say("  %s\n", hint)
	}
}

// format makes a server's messages JSON if the access log is.
func (s streams) format(accessLog string) {
	if c, ok := s.err.(*console); ok {
		c.json.Store(accessLog == "json")
	}
}

// json reports whether programs read the messages.
func (s streams) json() bool {
	c, ok := s.err.(*console)
	return ok && c.json.Load()
}

// logger writes to err, in the format that is in use.
func (s streams) logger() *slog.Logger {
	text := slog.Handler(slog.NewTextHandler(s.err, nil))
	if c, ok := s.err.(*console); ok {
		text = eitherHandler{asJSON: &c.json, text: text, json: slog.NewJSONHandler(s.err, nil)}
	}
	return slog.New(redact.Handler(text))
}

// eitherHandler writes in one of two formats, as a reload may change it.
type eitherHandler struct {
	asJSON     *atomic.Bool
	text, json slog.Handler
}

func (h eitherHandler) current() slog.Handler {
	if h.asJSON.Load() {
		return h.json
	}
	return h.text
}

// Enabled implements [slog.Handler].
func (h eitherHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.current().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h eitherHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.current().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h eitherHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return eitherHandler{h.asJSON, h.text.WithAttrs(attrs), h.json.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h eitherHandler) WithGroup(name string) slog.Handler {
	return eitherHandler{h.asJSON, h.text.WithGroup(name), h.json.WithGroup(name)}
}

// isTerminal reports whether a person is looking.
func isTerminal(w io.Writer) bool {
	if c, ok := w.(*console); ok {
		w = c.to
	}
	f, ok := w.(*os.File)
	return ok && live.IsTerminal(f) && os.Getenv("TERM") != "dumb"
}
