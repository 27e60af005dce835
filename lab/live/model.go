package live

import (
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"millrace/lab/record"
)

// The limits of what is remembered to be shown.
const (
	maxNotes    = 2    // the last ones; the result keeps all
	maxVerdicts = 50   // more than any terminal has lines
	maxText     = 1000 // bytes of one text: some ten lines
)

// The messages that do not come from the measurement.
type (
	// finished is the end of the work.
	finished struct {
		at     time.Time
		failed bool
		early  bool // its context had ended
	}
	// ending says that the work's context has ended.
	ending struct{}
	// second is the clock that counts the time left.
	second time.Time
)

// A model is what is on the screen.
type model struct {
	title  string
	cores  int
	cancel func()

	width, height int
	began, now    time.Time

	step     string // what goes on, in words
	arm      string
	workload string
	done     float64 // share of the whole
	left     time.Duration
	leftAt   time.Time // when left was said

	slot  slot
	rates minute

	verdicts []record.Verdict
	notes    []string

	ending bool // waiting for the work to stop
	forced bool
	end    *finished
}

// A slot is the figures of one arm and workload; what is zero is unknown.
type slot struct {
	rated         bool // the rate is known, and may be 0
	rate          float64
	p50, p90, p99 time.Duration
	requests      uint64
	errors        uint64
	target        float64
	generator     float64
}

func newModel(title string, now time.Time, cores int, cancel func()) model {
	return model{title: printable(title), cores: max(1, cores), cancel: cancel, width: 80, height: 24, began: now, now: now}
}

// Init has nothing to begin: everything comes from outside.
func (m model) Init() tea.Cmd { return nil }

// Update takes in what happened.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		if msg.Width > 0 && msg.Height > 0 { // 0 by 0 is a terminal that does not know
			m.width, m.height = msg.Width, msg.Height
		}
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			return m.interrupt()
		}
	case second:
		m.now = time.Time(msg)
	case ending:
		m.ending = true
	case finished:
		m.end, m.now = &msg, msg.at
		return m, tea.Quit
	case record.Event:
		return m.event(msg), nil
	}
	return m, nil
}

// interrupt ends the work the first time, and everything the second. Work that
// was told to end by others, a signal, counts as told.
func (m model) interrupt() (tea.Model, tea.Cmd) {
	if m.ending {
		m.forced = true
		return m, tea.Quit
	}
	m.ending = true
	m.cancel()
	return m, nil
}

// event takes in news of the measurement.
func (m model) event(e record.Event) model {
	if e.Time.After(m.now) {
		m.now = e.Time
	}
	arm, workload := printable(e.Arm), printable(e.Workload)
	moved := arm != "" && arm != m.arm || workload != "" && workload != m.workload
	if e.Kind == record.EventStep || moved {
		m.slot = slot{}
	}
	if arm != "" || e.Kind == record.EventStep {
		m.arm = arm
	}
	if workload != "" || e.Kind == record.EventStep {
		m.workload = workload
	}
	if e.Done > 0 {
		m.done = min(1, e.Done)
	}
	if e.Left > 0 {
		m.left, m.leftAt = e.Left, m.now
	}
	text := printable(e.Text)
	switch e.Kind {
	case record.EventNote:
		m.notes = append(m.notes[:len(m.notes):len(m.notes)], text)
		m.notes = m.notes[max(0, len(m.notes)-maxNotes):]
	case record.EventTick, record.EventSample:
		m.figures(e)
		if text != "" || moved { // what was begun before has ended
			m.step = text
		}
	case record.EventEnd: // the caller says how it ended
	default:
		if text != "" {
			m.step = text
		}
	}
	if len(e.Verdicts) > 0 {
		m.verdicts = e.Verdicts[:min(len(e.Verdicts), maxVerdicts)]
	}
	return m
}

// figures takes in those that are known. A rate of zero after others is a
// target that has stopped answering, and no gap in knowledge.
func (m *model) figures(e record.Event) {
	s := &m.slot
	if s.rated = s.rated || e.Rate > 0; s.rated {
		s.rate = e.Rate
		m.rates.add(e.Time, e.Rate)
	}
	if e.P50 > 0 {
		s.p50, s.p90, s.p99 = e.P50, e.P90, e.P99
	}
	s.requests, s.errors = max(s.requests, e.Requests), max(s.errors, e.Errors)
	if e.TargetCPU > 0 {
		s.target = e.TargetCPU
	}
	if e.GeneratorCPU > 0 {
		s.generator = e.GeneratorCPU
	}
}

// printable makes one line of a text that may be from anywhere, a server's
// dying words say, and must not command the terminal.
func printable(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}
