package live

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"millrace/lab/record"
)

// plainEvery is how often figures are written where there is no terminal: a log
// of a minute stays on one screen.
const plainEvery = 5 * time.Second

// Plain tells of events in lines of text, for logs and pipes: steps and notes as
// they come, figures every few seconds. The watch it returns may be called from
// several goroutines. When w fails, nothing more is written.
func Plain(w io.Writer) record.Watch {
	p := &plain{w: w}
	return func(e record.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.event(stamped(e))
	}
}

type plain struct {
	mu       sync.Mutex
	w        io.Writer
	failed   bool
	last     string    // the line before, which is not repeated
	reported time.Time // when figures were written last
}

func (p *plain) event(e record.Event) {
	text := printable(e.Text)
	switch e.Kind {
	case record.EventTick, record.EventSample:
		switch {
		case p.reported.IsZero():
			p.reported = e.Time // nothing is to be told of yet
		case e.Time.Sub(p.reported) >= plainEvery:
			p.reported = e.Time
			p.line(figuresOf(e))
		}
	case record.EventNote:
		p.line("note: " + text)
	case record.EventLook:
		p.line(text)
		for _, v := range e.Verdicts {
			p.line("  " + sentence(v))
		}
	case record.EventEnd: // the summary says it
	default:
		p.line(text)
	}
}

func (p *plain) line(text string) {
	if text == "" || text == p.last || p.failed {
		return
	}
	p.last = text
	_, err := io.WriteString(p.w, text+"\n")
	p.failed = err != nil
}

// figuresOf are an event's figures in one line.
func figuresOf(e record.Event) string {
	var parts []string
	if e.Done > 0 {
		parts = append(parts, fmt.Sprintf("%.0f %%", 100*min(1, e.Done)))
	}
	for _, name := range []string{e.Arm, e.Workload} {
		if name = printable(name); name != "" {
			parts = append(parts, name)
		}
	}
	parts = append(parts, perSecond(e.Rate)+" requests/s")
	if e.P50 > 0 {
		parts = append(parts, "p50 "+brief(e.P50), "p99 "+brief(e.P99))
	}
	if e.Errors > 0 {
		parts = append(parts, grouped(e.Errors)+" errors")
	}
	if e.Left > time.Second/2 {
		parts = append(parts, clock(e.Left)+" left")
	}
	return strings.Join(parts, ", ")
}
