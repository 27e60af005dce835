package progress

import (
	"strings"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	m := New(&out, func() time.Time { return now }, 10, 100*time.Second)
	now = now.Add(15 * time.Second) // half as fast again as planned
	m.Step(10*time.Second, "nginx %d", 7)
	if got := out.String(); got != "[ 1/10, 2:15 left] nginx 7\n" {
		t.Errorf("printed %q", got)
	}
	for range 9 {
		m.Step(10*time.Second, "x")
	}
	if left := m.Left(); left != 0 {
		t.Errorf("at the end %v are left", left)
	}
	m.Step(10*time.Second, "more than planned")
	if left := m.Left(); left != 0 {
		t.Errorf("behind the end %v are left", left)
	}
	if m.Took() != 15*time.Second {
		t.Errorf("Took = %v", m.Took())
	}
}
