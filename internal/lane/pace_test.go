package lane

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const most, rate = 30 * time.Second, 500
	var p Pace
	if got := p.Left(most); got != most {
		t.Fatalf("at first %v are left", got)
	}
	// A byte every eleven seconds: progress, but not enough.
	for range 2 {
		p.Took(11*time.Second, 1, most, rate)
	}
	if got := p.Left(most); got != 8*time.Second+4*time.Millisecond {
		t.Errorf("after two bytes in 22 s: %v", got)
	}
	p.Took(time.Second, 5500, most, rate)
	if got := p.Left(most); got != 18*time.Second+4*time.Millisecond {
		t.Errorf("after 5500 bytes more in a second: %v", got)
	}
	// No speed earns more than the timeout.
	p.Took(time.Second, 1<<30, most, rate)
	if got := p.Left(most); got != most {
		t.Errorf("after a gigabyte: %v", got)
	}
	p.Took(29*time.Second, 1, most, 0)
	if got := p.Left(most); got != most {
		t.Errorf("without a rate: %v", got)
	}
}
