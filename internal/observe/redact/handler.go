package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler masks the secrets in whatever is logged through it, messages and
// values, and hands it on to h.
func Handler(h slog.Handler) slog.Handler {
	if _, already := h.(handler); already {
		return h
	}
	return handler{h}
}

type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(each(attrs))}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func each(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = attr(a)
	}
	return clean
}

func attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(shown(v.String()))
	case slog.KindGroup:
		a.Value = slog.GroupValue(each(v.Group())...)
	case slog.KindAny:
		// As package slog writes it; what has no secret keeps its type.
		text := fmt.Sprintf("%+v", v.Any())
		if clean := Text(text); clean != text {
			v = slog.StringValue(clean)
		}
		a.Value = v
	default:
		a.Value = v
	}
	return a
}

// shown masks a value. What holds a space is a text, anything else may be a
// target, in which a quote ends nothing.
func shown(s string) string {
	for i := range len(s) {
		if s[i] <= ' ' {
			return Text(s)
		}
	}
	return Target(s)
}
