package server

import (
	"log/slog"
	"sync"
	"time"
)

// quietFor is how long a warning that comes again and again is counted before
// it is written once more.
const quietFor = 10 * time.Second

// repeated is one kind of warning, of which there may be very many.
type repeated struct {
	mu   sync.Mutex
	last time.Time
	held int
}

// warn writes the warning, with how often it was held back since the last one,
// or counts it.
func (w *repeated) warn(l *slog.Logger, text string, args ...any) {
	w.mu.Lock()
	now, held := time.Now(), w.held
	if !w.last.IsZero() && now.Sub(w.last) < quietFor {
		w.held++
		w.mu.Unlock()
		return
	}
	w.last, w.held = now, 0
	w.mu.Unlock()
	if held > 0 {
		args = append(args, "repeated", held)
	}
	l.Warn(text, args...)
}
