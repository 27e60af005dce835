package server

import (
	"log/slog"
	"sync"
	"time"
)

// warningInterval is how often a warning is written that comes again and again.
const warningInterval = 10 * time.Second

// warning is a kind of warning that may come very often. It is written once in
// warningInterval, with the number of those that were suppressed.
type warning struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// warn writes the warning, with how many were suppressed since the last one, or counts
// it as suppressed.
func (w *warning) warn(l *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now, held := time.Now(), w.suppressed
	if !w.last.IsZero() && now.Sub(w.last) < warningInterval {
		w.suppressed++
		w.mu.Unlock()
		return
	}
	w.last, w.suppressed = now, 0
	w.mu.Unlock()
	if held > 0 {
		args = append(args, "repeated", held)
	}
	l.Warn(text, args...)
}
