package dashboard

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
)

// TestStores: shared servers have a panel, and one that is down is what is wrong.
func TestStores(t *testing.T) {
	m := meter.New()
	up, down := m.Store("s3", "10.0.0.2/bucket", "images"), m.Store("redis", "10.0.0.1:6379", "cache of /")
	up.Call(time.Now(), false)
	up.Look(true, 100)
	d := New(Source{Meters: m, Recent: accesslog.NewRecent(), Stores: func() []Store {
		return []Store{{Store: up}, {Store: down, Trouble: "connection refused", Waiting: 2}}
	}}, Actions{}, slog.New(slog.DiscardHandler))
	panels := map[string]Panel{}
	for _, p := range d.panels() {
		panels[p.ID] = p
	}
	p := panels["stores"]
	if len(p.Rows) != 2 {
		t.Fatalf("%d rows", len(p.Rows))
	}
	for i, want := range []map[string]string{
		{"server": "10.0.0.2/bucket", "use": "images", "state": "up", "calls": "1", "hits": "1"},
		{"server": "10.0.0.1:6379", "use": "cache of /", "state": "down", "waiting": "2", "trouble": "connection refused"},
	} {
		for key, text := range want {
			if got := p.Value(p.Rows[i], key); got != text {
				t.Errorf("row %d: %s is %q, want %q", i, key, got, text)
			}
		}
	}
	if p.Rows[0].Level != Fine || p.Rows[1].Level != Bad {
		t.Errorf("levels %q and %q", p.Rows[0].Level, p.Rows[1].Level)
	}
	wrong := panels[problemsID]
	if len(wrong.Rows) != 1 || wrong.Rows[0].Level != Bad || !strings.Contains(wrong.Value(wrong.Rows[0], "what"), "redis at 10.0.0.1:6379 cannot be used for the cache of /: connection refused") {
		t.Errorf("what is wrong: %v", wrong.Rows)
	}
}
