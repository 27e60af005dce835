package cli

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

// Bar tells how far a list is: a bar that is drawn over and over on a
// terminal, a line now and then elsewhere.
type Bar struct {
	s     Streams
	draw  bool
	total int
	began time.Time

	mu   sync.Mutex
	last time.Time // when something was shown
	on   bool      // a bar stands on the terminal's last line
}

// NewBar is one for a list of total things, the first of which was begun then.
func NewBar(s Streams, total int, began time.Time) *Bar {
	return &Bar{s: s, draw: IsTerminal(s.Err), total: total, began: began, last: time.Now()}
}

// Step tells of done out of total, of which some have failed.
func (p *Bar) Step(done, failed int) {
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
		text += ", " + Brief(left.Round(time.Second)) + " left"
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if !p.draw {
		p.s.Print("%s\n", text)
		return
	}
	p.s.Print("%s%s %s", wipeLine, drawBar(float64(done)/float64(max(1, p.total))), text)
	p.on = true
}

// Print prints a line above the bar.
func (p *Bar) Print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
	p.s.Print(format+"\n", args...)
}

// End takes the bar away.
func (p *Bar) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wipe()
}

func (p *Bar) wipe() {
	if p.on {
		p.s.Print(wipeLine)
		p.on = false
	}
}

// Countdown draws how far something of a known length is on one line of a
// terminal, and says it in one line elsewhere: there step is nil.
func Countdown(s Streams, what string, total time.Duration) (step func(done, total time.Duration), end func()) {
	if !IsTerminal(s.Err) {
		s.Print("%s, %v\n", what, total)
		return nil, func() {}
	}
	step = func(done, total time.Duration) {
		s.Print("\r%s %s %v left ", what, drawBar(float64(done)/float64(max(1, total))), (total - done).Round(time.Second))
	}
	return step, func() { s.Print(wipeLine) }
}
