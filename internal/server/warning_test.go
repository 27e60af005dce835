package server

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A warning that comes again and again is one line, and later another one with
// their number.
func TestRepeatedWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, nil))
		var w warning
		for range 440 {
			w.warn(log, "accept failed", "err", "too many open files")
		}
		if got := strings.Count(out.String(), "\n"); got != 1 || strings.Contains(out.String(), "repeated") {
			t.Errorf("%d lines: %s", got, out.String())
		}
		time.Sleep(warningInterval)
		out.Reset()
		w.warn(log, "accept failed")
		if !strings.Contains(out.String(), "repeated=439") {
			t.Errorf("later: %s", out.String())
		}
	})
}
