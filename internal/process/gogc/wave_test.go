package gogc

import (
	"testing"
	"time"
)

func TestWave(t *testing.T) {
	const tick = 500 * time.Millisecond
	var w Wave
	now := time.Unix(1e9, 0)
	over := func(opened int64) bool {
		now = now.Add(tick)
		return w.Over(opened, now)
	}
	for i := range int64(10) {
		if over(i * 300) {
			t.Error("over while they still come")
		}
	}
	n := 0
	for range 200 {
		if over(2700) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("a wave ended %d times", n)
	}
	for range 200 {
		if over(2700 + waveSize - 1) {
			t.Error("a few are not a wave")
		}
	}
	for range waveCalm / tick {
		if over(2700 + waveSize) {
			t.Error("over at once")
		}
	}
	if !over(2700 + waveSize) {
		t.Error("a second wave does not end")
	}
	for range int(waveRest/tick) - 1 {
		if over(2700 + 3*waveSize) {
			t.Error("twice in a short time")
		}
	}
	if !over(2700 + 3*waveSize) {
		t.Error("a third wave does not end")
	}
}
