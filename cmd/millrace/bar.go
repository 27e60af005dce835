package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/live"
)

const (
	// redraw is how often the bar moves; sayEvery how often a log gets a line.
	redraw   = 100 * time.Millisecond
	sayEvery = 5 * time.Second
	barWidth = 30
	// shownLeft: what ends sooner needs no word about when.
	shownLeft = 3 * time.Second
)

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
	f, _ := s.err.(*os.File)
	now := time.Now()
	return &bar{s: s, draw: live.IsTerminal(f) && os.Getenv("TERM") != "dumb", total: total, began: now, last: now}
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
	full := barWidth * done / max(1, p.total)
	p.s.say("\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), text)
	p.on = true
}

// perSecond is a rate with no more figures than it deserves.
func perSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
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
		p.s.say("\r\x1b[K")
		p.on = false
	}
}

// brief is a duration as a person would say it: three figures, no zero parts.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// amount is a number of bytes as a person would say it: 1.5 MB.
func amount(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), 0
	for value >= 999.5 && unit < 4 {
		value, unit = value/1000, unit+1
	}
	return fmt.Sprintf("%.3g %cB", value, " kMGT"[unit])
}
