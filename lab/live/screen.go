package live

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"
)

// Control sequences (ECMA-48), which every terminal of today knows.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	restOfLine = "\x1b[K"
	restBelow  = "\x1b[J"
	ctrlC      = '\x03' // as it arrives when the terminal makes no signal of it
)

// A screen is a model that is being shown.
type screen struct {
	terminal *os.File
	plain    bool // no colours

	mu    sync.Mutex
	model model
	fresh bool // the model has changed since it was drawn
	quit  chan struct{}
	over  bool // quit is closed

	drawn []string // lines on the terminal; the cursor stands below them
	err   error    // of writing
}

func newScreen(terminal *os.File, m model) *screen {
	plain := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return &screen{terminal: terminal, plain: plain, model: m, fresh: true, quit: make(chan struct{})}
}

// send tells the model something. It may be called from several goroutines, and
// does nothing once the model has ended.
func (s *screen) send(msg any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.model, s.over = s.model.update(msg)
	s.fresh = true
	if s.over {
		close(s.quit)
	}
}

// run draws the model until it ends, and returns it as it was then.
func (s *screen) run() (model, error) {
	giveBack := s.takeKeys()
	defer giveBack()
	s.write(hideCursor)
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	frames := time.NewTicker(time.Second / Frames)
	defer frames.Stop()
	for ended := false; !ended; {
		select {
		case t := <-clock.C:
			s.send(second(t))
		case <-frames.C:
			s.draw()
		case <-s.quit:
			ended = true
		}
	}
	s.draw()
	s.write(showCursor)
	return s.model, s.err // nobody changes it any more
}

// takeKeys reads keys from the standard input, if that is a terminal, one by one
// and unseen, until the function that it returns is called; that one waits for
// the goroutine that reads.
func (s *screen) takeKeys() (giveBack func()) {
	if !IsTerminal(os.Stdin) {
		return func() {}
	}
	keys, err := cancelreader.NewReader(os.Stdin)
	if err != nil {
		return func() {} // Ctrl-C is a signal then
	}
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		keys.Close()
		return func() {}
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		b := make([]byte, 64)
		for {
			n, err := keys.Read(b)
			for _, key := range b[:n] {
				if key == ctrlC {
					s.send(interrupted{})
				}
			}
			if err != nil {
				return
			}
		}
	})
	return func() {
		if keys.Cancel() {
			wait.Wait()
		}
		keys.Close()
		_ = term.Restore(int(os.Stdin.Fd()), before) // there is nothing else to try
	}
}

// draw brings the terminal up to date.
func (s *screen) draw() {
	s.mu.Lock()
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err == nil && width > 0 && height > 0 && (width != s.model.width || height != s.model.height) {
		s.model.width, s.model.height = width, height
		s.fresh = true
	}
	fresh, m := s.fresh, s.model
	s.fresh = false
	s.mu.Unlock()
	if !fresh {
		return
	}
	text := m.draw()
	if s.plain {
		text = plainText(text)
	}
	// A terminal that has become narrower has broken lines in two.
	up := 0
	for _, line := range s.drawn {
		up += 1 + max(0, textWidth(line)-1)/max(1, m.width)
	}
	var b strings.Builder
	if up > 0 {
		b.WriteString("\x1b[" + strconv.Itoa(up) + "A")
	}
	s.drawn = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range s.drawn {
		b.WriteString("\r" + line + restOfLine + "\r\n")
	}
	s.write(b.String() + restBelow)
}

// write keeps the first error; nothing is written after it.
func (s *screen) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.terminal, text)
	}
}

// endWith tells the screen when ctx ends, until the function that it returns is
// called.
func (s *screen) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { s.send(ending{}) })
}
