package certs

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// core writes certmagic's log to the error log, at level debug: certmagic logs each step
// and each failure several times. [Manager.happened] logs what an operator needs.
type core struct {
	to     *slog.Logger
	fields []zapcore.Field
}

func newZap(to *slog.Logger) *zap.Logger { return zap.New(&core{to: to}) }

// Enabled implements [zapcore.LevelEnabler].
func (c *core) Enabled(l zapcore.Level) bool {
	return l > zapcore.DebugLevel && c.to.Enabled(context.Background(), slog.LevelDebug)
}

// With implements [zapcore.Core].
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.to, append(append([]zapcore.Field{}, c.fields...), fields...)}
}

// Check implements [zapcore.Core].
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements [zapcore.Core].
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, list := range [][]zapcore.Field{c.fields, fields} {
		for _, f := range list {
			f.AddTo(enc)
		}
	}
	attrs := make([]any, 0, 2*len(enc.Fields))
	for name, value := range enc.Fields {
		attrs = append(attrs, name, value)
	}
	c.to.Debug("acme: "+e.Message, attrs...)
	return nil
}

// Sync implements [zapcore.Core].
func (c *core) Sync() error { return nil }
