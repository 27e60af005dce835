package php

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Bounds of what is held for one request or answer: in memory, and then in a
// file that has no name any more.
const (
	spoolMemory = 256 << 10
	spoolFile   = 1 << 30
)

// errSpoolFull is why no more is taken.
var errSpoolFull = errors.New("more than is held for one request")

// spool holds bytes between somebody who writes and somebody who reads, neither
// of whom waits for the other before spoolFile is reached.
type spool struct {
	mu     sync.Mutex
	more   sync.Cond // of mu: there is more, or an end
	memory []byte
	file   *os.File
	size   int64 // of all that was written
	ended  bool
	err    error // why it ended
}

func newSpool() *spool {
	s := &spool{}
	s.more.L = &s.mu
	return s
}

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, io.ErrClosedPipe
	}
	defer s.more.Broadcast()
	if s.file == nil && len(s.memory)+len(p) <= spoolMemory {
		s.memory = append(s.memory, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.size+int64(len(p)) > spoolFile {
		return 0, errSpoolFull
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "millrace-php-*")
		if err != nil {
			return 0, fmt.Errorf("a file for what does not fit into memory: %w", err)
		}
		_ = os.Remove(f.Name()) // it lives until it is closed
		s.file = f
	}
	n, err := s.file.WriteAt(p, s.size-int64(len(s.memory)))
	s.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("a file for what does not fit into memory: %w", err)
	}
	return n, nil
}

// end says that no more is written, and why: nil for the proper end.
func (s *spool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.err = true, err
		s.more.Broadcast()
	}
}

// close gives up what is held.
func (s *spool) close() {
	s.end(io.ErrClosedPipe)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
	}
}

// reader reads from the beginning.
type reader struct {
	*spool
	at int64
	// idle is called before it waits; nil for nothing.
	idle func()
}

// Read implements [io.Reader]. It waits for more.
func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	for r.at == r.size {
		switch {
		case r.ended && r.err != nil:
			defer r.mu.Unlock()
			return 0, r.err
		case r.ended:
			defer r.mu.Unlock()
			return 0, io.EOF
		case r.idle != nil:
			r.mu.Unlock()
			r.idle()
			r.mu.Lock()
			if r.at < r.size || r.ended {
				continue
			}
		}
		r.more.Wait()
	}
	if held := int64(len(r.memory)); r.at < held {
		n := copy(p, r.memory[r.at:])
		r.mu.Unlock()
		r.at += int64(n)
		return n, nil
	}
	file, from, left := r.file, r.at-int64(len(r.memory)), r.size-r.at
	r.mu.Unlock()
	n, err := file.ReadAt(p[:min(int64(len(p)), left)], from)
	r.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err //nolint:wrapcheck // as a file's
}
