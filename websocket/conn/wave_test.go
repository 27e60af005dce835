package conn

import (
	"testing"
	"time"
)

func TestWave(t *testing.T) {
	var w wave
	now := time.Unix(1e9, 0)
	tick := func(opened int64) bool {
		now = now.Add(tickTime)
		return w.tick(opened, now)
	}
	for i := range int64(10) {
		if tick(i * 300) {
			t.Error("over while they still come")
		}
	}
	over := 0
	for range 200 {
		if tick(2700) {
			over++
		}
	}
	if over != 1 {
		t.Errorf("a wave ended %d times", over)
	}
	for range 200 {
		if tick(2700 + waveSize - 1) {
			t.Error("a few are no wave")
		}
	}
	for range waveCalm {
		if tick(2700 + waveSize) {
			t.Error("over at once")
		}
	}
	if !tick(2700 + waveSize) {
		t.Error("a second wave does not end")
	}
	w.last = now
	for range int(waveRest/tickTime) - 1 {
		if tick(2700 + 3*waveSize) {
			t.Error("twice in a short time")
		}
	}
}
