package slow

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/trace"
	"time"
)

const (
	// recorderAge is how much of the past the recorder has, recorderBytes how large that
	// may be in memory.
	recorderAge   = 10 * time.Second
	recorderBytes = 16 << 20

	// readEvery is how often it is read at the most: each time is work for the runtime.
	readEvery = time.Minute
	// maxTraces is how many of its traces are kept.
	maxTraces = 2
)

// recorded is a trace of the Go runtime.
type recorded struct {
	number uint64 // of the entry
	trace  []byte
}

// record switches the recorder on or off as the options say, and reads it for the
// entry that asks for it. It is called by Run alone.
func (s *Store) record() {
	s.mu.Lock()
	on, recorder, asked := s.o.Recorder && !s.o.Off, s.recorder, s.asked
	s.mu.Unlock()
	switch {
	case !on:
		s.stop()
		return
	case recorder == nil:
		s.start()
		return
	case asked == 0:
		return
	}
	b := &bounded{}
	_, err := recorder.WriteTo(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.read = 0, time.Now()
	if err != nil {
		s.report(fmt.Errorf("reading the runtime's recorder: %w", err))
		return
	}
	for i := range s.entries {
		if s.entries[i].Number == asked {
			s.entries[i].Recorded = b.Len()
		}
	}
	s.traces = append(s.traces, recorded{asked, b.Bytes()})
	if len(s.traces) > maxTraces {
		gone := s.traces[0].number
		for i := range s.entries {
			if s.entries[i].Number == gone {
				s.entries[i].Recorded = 0
			}
		}
		s.traces = append([]recorded(nil), s.traces[1:]...)
	}
}

func (s *Store) start() {
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: recorderAge, MaxBytes: recorderBytes})
	err := recorder.Start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // another one in this process has it
		s.failure = err.Error()
		s.report(fmt.Errorf("slow_requests.recorder: %w", err))
		return
	}
	s.recorder, s.failure = recorder, ""
}

func (s *Store) stop() {
	s.mu.Lock()
	recorder := s.recorder
	s.recorder, s.failure, s.asked = nil, "", 0
	s.mu.Unlock()
	if recorder != nil {
		recorder.Stop()
	}
}

// bounded is a buffer that takes no more than twice of what the recorder may have.
type bounded struct{ bytes.Buffer }

var errTooMuch = errors.New("the trace is too large")

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > 2*recorderBytes {
		return 0, errTooMuch
	}
	return b.Buffer.Write(p) //nolint:wrapcheck // never fails
}
