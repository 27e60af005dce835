// Package live shows a measurement while it runs: a few lines on the terminal
// that follow its events or, without a terminal, one plain line after the other. Programs get the events themselves
// as lines of JSON.
//
// The machine that draws is usually the one that is measured, so drawing is
// kept cheap: at most Frames times a second, and only what changed.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/term"

	"millrace/lab/record"
)

// Frames is how often a second the view is drawn at most. Figures come four
// times a second; twice that keeps them prompt.
const Frames = 8

// ErrForced is what Show returns when it was interrupted a second time.
var ErrForced = errors.New("stopped at once: what was measured so far is lost")

// IsTerminal reports whether a person may be watching what is written to f.
func IsTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// Width is how many characters a line of w has: of a terminal what it says, of
// anything else otherwise.
func Width(w io.Writer, otherwise int) int {
	if f, ok := w.(*os.File); ok && f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return otherwise
}

// NDJSON writes each event as a line of JSON, at once: newline-delimited JSON
// of [record.Event], with times in nanoseconds. The watch it returns may be
// called from several goroutines. When w fails, nothing more is written: that
// nobody reads any more is no reason to stop measuring.
func NDJSON(w io.Writer) record.Watch {
	var (
		mu     sync.Mutex
		failed bool
	)
	return func(e record.Event) {
		line, err := json.Marshal(stamped(e))
		if err != nil {
			return // an infinity or NaN, which JSON cannot say; the result file names the figure
		}
		mu.Lock()
		defer mu.Unlock()
		if failed {
			return
		}
		_, err = w.Write(append(line, '\n'))
		failed = err != nil
	}
}

// stamped gives an event a time if it has none.
func stamped(e record.Event) record.Event {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	return e
}

// Show runs work and shows its events on the terminal until it returns; it
// returns what work does. title is one line that says what is measured. The
// watch that work is given may be called from several goroutines.
//
// While it runs it owns the terminal: keys are read from the standard input if
// that is a terminal, and what others write by package log becomes a line of
// the view. At the end one line is left.
//
// Ctrl-C ends work's context, once, and the view says that it waits. A second
// Ctrl-C gives the terminal back and returns ErrForced without waiting; work's
// goroutine is then left behind, and the program should end. When ctx ends, by
// a signal for instance, the view says that it waits, too.
//
// A view that cannot be drawn does not stop a measurement: work goes on, and
// the trouble is part of the error at the end.
func Show(ctx context.Context, terminal *os.File, title string, work func(ctx context.Context, watch record.Watch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []tea.ProgramOption{
		tea.WithOutput(terminal), tea.WithFPS(Frames), tea.WithoutSignalHandler(),
		tea.WithWindowSize(80, 24), // until the terminal says its own
	}
	if !IsTerminal(os.Stdin) {
		options = append(options, tea.WithInput(nil))
	}
	program := tea.NewProgram(newModel(title, time.Now(), runtime.NumCPU(), cancel), options...)
	watch := func(e record.Event) { program.Send(stamped(e)) } // does nothing once the program has ended
	defer tookLog(watch)()

	done := make(chan error, 1)
	go func() { // ends with work; waited for below, unless forced
		panics := true
		defer func() {
			if panics { // what is said of it is read on a terminal that has been given back
				program.Kill()
			}
		}()
		err := work(ctx, watch)
		program.Send(finished{at: time.Now(), failed: err != nil, early: ctx.Err() != nil})
		panics = false
		done <- err
	}()
	stop := context.AfterFunc(ctx, func() { program.Send(ending{}) })
	defer stop()
	stopClock := startClock(program)

	last, err := program.Run()
	stopClock()
	if m, ok := last.(model); ok && m.forced {
		return ErrForced
	}
	worked := <-done
	if err != nil {
		return errors.Join(worked, fmt.Errorf("drawing the live view: %w", err))
	}
	return worked
}

// startClock tells the view each second that time goes by, until the function
// that it returns is called; that one waits for the clock's goroutine.
func startClock(program *tea.Program) (stop func()) {
	var wait sync.WaitGroup
	ended := make(chan struct{})
	wait.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case t := <-ticker.C:
				program.Send(second(t))
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}

// tookLog sends what is logged to the view, which a line from elsewhere would
// tear apart, until the function that it returns is called.
func tookLog(watch record.Watch) (giveBack func()) {
	before, flags := log.Writer(), log.Flags()
	log.SetOutput(logLines{watch})
	log.SetFlags(0) // the view is about now
	return func() {
		log.SetOutput(before)
		log.SetFlags(flags)
	}
}

// logLines makes notes of log lines.
type logLines struct{ watch record.Watch }

func (l logLines) Write(line []byte) (int, error) {
	l.watch(record.Event{Kind: record.EventNote, Text: strings.TrimSpace(string(line))})
	return len(line), nil
}
