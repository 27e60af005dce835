package nats

import (
	"strings"
	"testing"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
	"millrace/store/bus"
)

// TestStrangers: what is no NATS server is said to be none.
func TestStrangers(t *testing.T) {
	for is, addr := range servertest.Strangers(t) {
		t.Run(is, func(t *testing.T) {
			t.Parallel()
			h := openHost(t, "nats://user:s3cret@"+addr, usual())
			h.until("it is said", func() bool {
				return len(h.states) > 0 && strings.Contains(h.states[len(h.states)-1].Error(), addr) && strings.Contains(h.states[len(h.states)-1].Error(), "NATS server")
			})
			if text := h.Trouble().Error(); strings.Contains(text, "s3cret") {
				t.Errorf("the password is told: %s", text)
			}
			if m := h.publish("news", "here"); m.Offset != 0 || h.Waiting() != 1 {
				t.Errorf("published as %d, %d wait", m.Offset, h.Waiting())
			}
		})
	}
}

// TestMeters: what the server was asked is counted.
func TestMeters(t *testing.T) {
	s := startServer(t)
	m := meter.New()
	b, err := Open(Options{URL: s.url(), Name: "test", Keep: usual(), Meters: func(server string) *meter.Store { return m.Store("nats", server, "test") }})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Bus: b, t: t, got: map[string][]bus.Message{}, placed: map[string]uint64{}}
	if err := b.Start(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.close(0) })
	if err := b.Listen("news"); err != nil {
		t.Fatal(err)
	}
	h.isUp()
	h.publish("news", "12345")
	h.texts("news", 1)
	c := m.Stores()[0]
	calls := c.Calls.Snapshot()
	if c.Server != s.addr() || calls.Count() == 0 || c.Written.Load() != 5 || c.Read.Load() != 5 || c.Errors.Load() != 0 || b.Trouble() != nil {
		t.Errorf("%s: %d calls, %d errors, bytes read %d and written %d, trouble %v",
			c.Server, calls.Count(), c.Errors.Load(), c.Read.Load(), c.Written.Load(), b.Trouble())
	}
}
