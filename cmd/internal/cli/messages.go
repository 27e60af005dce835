package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/observe/logfile"
)

// eitherHandler writes messages in one of two formats, as a reload may change it, or
// sends them to a daemon.
type eitherHandler struct {
	to         *BufferedStderr
	text, json slog.Handler
	chain      []func(slog.Handler) slog.Handler // groups and attributes, for what is sent
}

func (h eitherHandler) current() slog.Handler {
	if h.to.json.Load() {
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
	f := h.to.forward.Load()
	if f == nil {
		return h.current().Handle(ctx, r)
	}
	f.sender.Send(severity(r.Level), h.sent(ctx, r))
	return nil
}

// sent is a message as a daemon gets it: without its time and level, which the daemon
// has beside it, unless it is JSON.
func (h eitherHandler) sent(ctx context.Context, r slog.Record) string {
	var b bytes.Buffer
	asJSON := h.to.json.Load()
	var to slog.Handler = slog.NewJSONHandler(&b, nil)
	if !asJSON {
		to = slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: withoutHead})
	}
	for _, add := range h.chain {
		to = add(to)
	}
	if err := to.Handle(ctx, r); err != nil {
		fmt.Fprint(&b, err)
	}
	text := strings.TrimSpace(b.String())
	if asJSON {
		return text
	}
	return strings.TrimSpace(r.Message + " " + text)
}

// withoutHead leaves out what every message has.
func withoutHead(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// WithAttrs implements [slog.Handler].
func (h eitherHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (h eitherHandler) WithGroup(name string) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h eitherHandler) with(add func(slog.Handler) slog.Handler) slog.Handler {
	chain := append(h.chain[:len(h.chain):len(h.chain)], add)
	return eitherHandler{h.to, add(h.text), add(h.json), chain}
}

func severity(l slog.Level) logfile.Severity {
	switch {
	case l >= slog.LevelError:
		return logfile.Error
	case l >= slog.LevelWarn:
		return logfile.Warning
	case l >= slog.LevelInfo:
		return logfile.Info
	}
	return logfile.Debug
}

// forwarded is where messages go instead of the standard error.
type forwarded struct {
	target string
	sender *logfile.Sender
}

func (f *forwarded) close() {
	if f != nil {
		f.sender.Close()
	}
}

// Forward sends a server's messages to a daemon (see [logfile.Parse]), or again to
// the standard error for "". What the daemon does not take goes there with the reason,
// which is said once a minute.
func (s Streams) Forward(target string) error {
	c, ok := s.Err.(*BufferedStderr)
	if !ok {
		return nil
	}
	if now := c.forward.Load(); now == nil && target == "" || now != nil && now.target == target {
		return nil
	}
	var next *forwarded
	if target != "" {
		to, err := logfile.ParseTarget(target)
		if err != nil {
			return fmt.Errorf("log.messages: %w", err)
		}
		next = &forwarded{target, logfile.NewSender(logfile.NewSocket(to, "millrace"), c.untaken())}
	}
	c.forward.Swap(next).close()
	return nil
}

// forwards reports whether messages go to a daemon.
func (s Streams) forwards() bool {
	c, ok := s.Err.(*BufferedStderr)
	return ok && c.forward.Load() != nil
}

// reportEvery bounds how often a message says why messages are not sent.
const reportEvery = time.Minute

// untaken prints what a daemon has not taken.
func (c *BufferedStderr) untaken() func(logfile.Severity, string, error) {
	var said atomic.Int64
	return func(v logfile.Severity, text string, err error) {
		write := func(text string) {
			if !strings.HasPrefix(text, "{") || !c.json.Load() {
				text = "millrace: " + text
			}
			_, _ = c.Write([]byte(text + "\n")) // never fails
		}
		now := time.Now().Unix()
		if last := said.Load(); err != nil && now-last >= int64(reportEvery/time.Second) && said.CompareAndSwap(last, now) {
			write(fmt.Sprintf("messages are printed here as long as they cannot be sent: %v", err))
		}
		write(text)
	}
}
