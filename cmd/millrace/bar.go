package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// redraw is how often the bar moves; sayEvery how often a log gets a line.
	redraw   = 100 * time.Millisecond
	sayEvery = 5 * time.Second
	barWidth = 30
	// shownLeft: what ends sooner needs no word about when.
	shownLeft = 3 * time.Second
)

// wipeLine empties a terminal's last line.
const wipeLine = "\r\x1b[K"

// drawBar is a bar of which a share is full.
func drawBar(share float64) string {
	full := min(max(int(barWidth*share), 0), barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// bar tells how far a list is: a bar that is drawn over and over on a
// terminal, a line now and then elsewhere.
type bar struct {
	s     streams
	draw  bool
	total int
	began time.Time

	mu   sync.Mutex
	last time.Time // when something was shown
	on   bool      // a bar stands on the terminal's last line
}

func newBar(s streams, total int) *bar {
	now := time.Now()
	return &bar{s: s, draw: isTerminal(s.err), total: total, began: now, last: now}
}

// step tells of done out of total, of which some have failed.
func (p *bar) step(done, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := sayEvery
	if p.draw {
		every = redraw
	}
	now := time.Now()
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	rate := float64(done) / max(1e-9, now.Sub(p.began).Seconds())
	text := fmt.Sprintf("%d of %d, %s a second", done, p.total, perSecond(rate))
	if left := time.Duration(float64(p.total-done) / max(1e-3, rate) * float64(time.Second)); left > shownLeft {
		text += ", " + brief(left.Round(time.Second)) + " left"
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if !p.draw {
		p.s.say("%s\n", text)
		return
	}
	p.s.say("%s%s %s", wipeLine, drawBar(float64(done)/float64(max(1, p.total))), text)
	p.on = true
}

// say prints a line above the bar.
func (p *bar) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	p.s.say(format+"\n", args...)
}

// end takes the bar away.
func (p *bar) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
}

func (p *bar) wipe() {
	if p.on {
		p.s.say(wipeLine)
		p.on = false
	}
}
