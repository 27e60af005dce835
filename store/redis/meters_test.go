package redis

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/store"
	"millrace/store/storetest"
)

// TestMeters: what a server was asked is counted, and why it cannot be used is known.
func TestMeters(t *testing.T) {
	s := start(t)
	m := meter.New()
	r := open(t, Options{URL: "redis://" + s.addr, Meters: func(server string) *meter.Store { return m.Store("redis", server, "test") }})
	roundTrip(t, r, "key", "body")
	if _, err := storetest.GetText(r, "nothing"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("getting nothing: %v", err)
	}
	servertest.Eventually(t, "it works", func() bool { return r.Trouble() == nil })
	c := m.Stores()[0]
	if c.Server != s.addr {
		t.Errorf("the server is called %s", c.Server)
	}
	if c.Hits.Load() == 0 || c.Misses.Load() == 0 || c.Written.Load() < 4 || c.Read.Load() < c.Hits.Load()*4 {
		t.Errorf("hits %d, misses %d, bytes read %d and written %d", c.Hits.Load(), c.Misses.Load(), c.Read.Load(), c.Written.Load())
	}
	calls := c.Calls.Snapshot()
	if calls.Count() < 3 || c.Errors.Load() != 0 {
		t.Errorf("%d calls, %d errors", calls.Count(), c.Errors.Load())
	}
	s.Kill()
	servertest.Eventually(t, "it is down, and known why", func() bool {
		_ = storetest.PutText(r, "key", "body")
		return r.Trouble() != nil
	})
	if c.Errors.Load() == 0 {
		t.Error("no error was counted")
	}
}

// TestStrangers: what is no Redis is said to be none, in one line with the server's name.
func TestStrangers(t *testing.T) {
	for is, addr := range servertest.Strangers(t) {
		t.Run(is, func(t *testing.T) {
			t.Parallel()
			var log lines
			r := open(t, Options{URL: "redis://:s3cret@" + addr, Timeout: defaultTimeout, ErrorLog: slog.New(slog.NewTextHandler(&log, nil))})
			servertest.Eventually(t, "it is said", func() bool { return strings.Contains(log.String(), "server="+addr) })
			if _, err := storetest.GetText(r, "key"); !errors.Is(err, store.ErrDown) {
				t.Errorf("getting: %v", err)
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "does not answer as a Redis does") || strings.Contains(text, "s3cret") {
				t.Errorf("the log says:\n%s", text)
			}
		})
	}
}
