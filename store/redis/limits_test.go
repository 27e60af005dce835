package redis

import (
	"fmt"
	"testing"
	"time"
)

// TestCountClock: who was counted by a clock that was ahead by a day is not locked out for a day.
func TestCountClock(t *testing.T) {
	s := start(t)
	r := open(t, Options{URL: s.url()})
	client := Count{Name: "client", Want: 1, Interval: 100 * time.Millisecond, Ahead: 900 * time.Millisecond}
	count := func() Counted {
		t.Helper()
		counted, err := r.Count(t.Context(), []Count{client})
		if err != nil {
			t.Fatal(err)
		}
		return counted[0]
	}
	if is := count(); is.Granted != 1 {
		t.Errorf("at first: %+v", is)
	}
	s.do("SET millrace:l:client %s", fmt.Sprint(time.Now().Add(24*time.Hour).UnixMicro()))
	if is := count(); is.Granted != 0 || is.Ahead < 900*time.Millisecond || is.Ahead > 11*time.Second {
		t.Errorf("after the clock was set back by a day: %+v", is)
	}
	// What very many machines have let pass is not forgotten.
	client.Cost, client.Want = 100*client.Interval, 0
	if is := count(); is.Ahead < 20*time.Second {
		t.Errorf("after 100 more requests: %+v", is)
	}
}
