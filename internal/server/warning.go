package server

import (
	"log/slog"
	"sync"
	"time"
)

// warningInterval is how long a warning that comes again and again is counted before
// it is written once more.
const warningInterval = 10 * time.Second

// warning is one kind of warning, of which there may be very many.
type warning struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// warn writes the warning, with how often it was held back since the last one,
// or counts it.
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
