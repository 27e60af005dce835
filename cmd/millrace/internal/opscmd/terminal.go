package opscmd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"

	"millrace/lab/live"
)

// Control sequences (ECMA-48, and xterm's second screen).
const (
	enter      = "\x1b[?1049h\x1b[?25l" // the second screen, without a cursor
	leave      = "\x1b[?25h\x1b[?1049l"
	home       = "\x1b[H"
	restOfLine = "\x1b[K"
	restBelow  = "\x1b[J"
)

// resized is how often it is looked whether the terminal has another size.
const resized = 250 * time.Millisecond

// watch shows the figures, asked for each second, until a key or ctx ends it.
func watch(ctx context.Context, out *os.File, s *screen, ask func(context.Context) figures) error {
	ctx, cancel := context.WithCancel(ctx)
	keys, giveBack := takeKeys(cancel)
	answers := make(chan figures)
	var asking sync.WaitGroup
	asking.Go(func() { poll(ctx, ask, answers) })
	defer func() {
		cancel()
		asking.Wait()
		giveBack()
	}()
	var st styler = coloured{}
	if os.Getenv("NO_COLOR") != "" {
		st = plain{}
	}
	size := time.NewTicker(resized)
	defer size.Stop()
	s.measure(out)
	if _, err := out.WriteString(enter); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	defer func() { _, _ = out.WriteString(leave) }() // the terminal may have gone
	for fresh := true; ; {
		if fresh {
			if _, err := out.WriteString(home + strings.Join(s.fit(st), restOfLine+"\r\n") + restOfLine + restBelow); err != nil {
				return fmt.Errorf("drawing: %w", err)
			}
		}
		fresh = true
		select {
		case <-ctx.Done():
			return nil
		case f := <-answers:
			s.take(f)
		case k := <-keys:
			if s.key(k) {
				return nil
			}
		case <-size.C:
			fresh = s.measure(out)
		}
	}
}

// poll asks once a second until ctx ends.
func poll(ctx context.Context, ask func(context.Context) figures, answers chan<- figures) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case answers <- ask(ctx):
		case <-ctx.Done():
		}
	}
}

// measure takes the terminal's size, and reports whether that is another one.
func (s *screen) measure(out *os.File) bool {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	changed := width != s.width || height != s.height
	s.width, s.height = width, height
	return changed
}

// takeKeys reads keys from the standard input, if that is a terminal, one by one and
// unseen. giveBack ends that, and waits for the goroutine that reads. gone is called
// when the terminal is.
func takeKeys(gone func()) (keys <-chan string, giveBack func()) {
	if !live.IsTerminal(os.Stdin) {
		return nil, func() {}
	}
	from, err := cancelreader.NewReader(os.Stdin)
	if err != nil {
		return nil, func() {} // Ctrl-C is a signal then
	}
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		_ = from.Close()
		return nil, func() {}
	}
	pressed, ended := make(chan string), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer gone()
		b := make([]byte, 64)
		for {
			n, err := from.Read(b)
			for _, k := range named(b[:n]) {
				select {
				case pressed <- k:
				case <-ended:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	return pressed, func() {
		close(ended)
		if from.Cancel() {
			reading.Wait()
		}
		_ = from.Close()
		_ = term.Restore(int(os.Stdin.Fd()), before) // there is nothing else to try
	}
}

// moves are the keys that scroll, as terminals send them (ECMA-48, 8.3.19 and following).
var moves = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down",
	"\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
}

// named are the keys that were read at once. Any other sequence of several bytes that
// begins with Escape is a key that means nothing here.
func named(b []byte) (keys []string) {
	if len(b) > 1 && b[0] == '\x1b' {
		if k := moves[string(b)]; k != "" {
			return []string{k}
		}
		return nil
	}
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		switch {
		case r == '\x03':
			keys = append(keys, "ctrl+c")
		case r == '\x1b':
			keys = append(keys, "esc")
		case r == '\r' || r == '\n':
			keys = append(keys, "enter")
		case r == '\x7f' || r == '\b':
			keys = append(keys, "backspace")
		case r != utf8.RuneError && unicode.IsPrint(r):
			keys = append(keys, string(r))
		}
	}
	return keys
}
