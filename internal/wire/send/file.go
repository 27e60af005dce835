package send

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// File is an open file shared by every answer and connection that sends it.
// All reads name their offset, so users do not share a file position. It is
// closed when its last user releases it: a file that was replaced on disk
// stays readable for the downloads that began before.
type File struct {
	f      *os.File // nil when it is not a file of the operating system
	fd     uintptr  // of f
	at     io.ReaderAt
	closer io.Closer
	refs   atomic.Int64
	sent   atomic.Int64 // Unix second in which all of it was last sent
}

// warmFor is for how many seconds after a file was sent it is taken to be in the
// system's memory.
const warmFor = 1

// WasSent notes in which Unix second the whole file was sent.
func (f *File) WasSent(second int64) {
	if f.sent.Load() < second {
		f.sent.Store(second)
	}
}

// Warm reports whether the file was sent so recently that sending it again will
// hardly wait for the disk.
func (f *File) Warm(second int64) bool { return second-f.sent.Load() <= warmFor }

// NewFile takes over f, with one reference that belongs to the caller.
func NewFile(f *os.File) *File {
	sf := &File{f: f, fd: f.Fd(), at: f, closer: f}
	sf.refs.Store(1)
	return sf
}

// NewShared is NewFile for a borrowed descriptor: c, not f, is closed when the
// last user has released it.
func NewShared(f *os.File, c io.Closer) *File {
	sf := &File{f: f, fd: f.Fd(), at: f, closer: c}
	sf.refs.Store(1)
	return sf
}

// NewReaderAt is NewFile for content that has no descriptor, such as an
// embedded file. It is always copied, never sent by the kernel; do not offer
// answers made of it to the fast lane. c may be nil.
func NewReaderAt(r io.ReaderAt, c io.Closer) *File {
	sf := &File{at: r, closer: c}
	sf.refs.Store(1)
	return sf
}

// HasDescriptor reports whether the kernel can send the file by itself.
func (f *File) HasDescriptor() bool { return f.f != nil }

// Retain adds a reference. It reports false when the file is closed already;
// then nothing was retained.
func (f *File) Retain() bool {
	for {
		n := f.refs.Load()
		if n <= 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a reference back and closes the file with the last one.
func (f *File) Release() {
	switch n := f.refs.Add(-1); {
	case n == 0:
		if f.closer != nil {
			_ = f.closer.Close() // opened for reading: nothing can be lost
		}
	case n < 0:
		panic(fmt.Sprintf("send: file released more often than retained (%d)", n))
	}
}

// ReadAt reads at an offset, as [io.ReaderAt] says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.at.ReadAt(p, off) }

// Section returns a reader of n bytes from off on. The caller keeps a
// reference to f for as long as the section is used.
func (f *File) Section(off, n int64) *Section {
	s := &Section{at: f.at, off: off, n: n}
	if f.f != nil {
		s.desc = f.f
	}
	return s
}

// Section is a part of a File that is still to be sent. Whoever copies it with
// ReadFrom to a connection of the fast lane gets sendfile(2) with an explicit
// offset; to everyone else it is a plain reader.
type Section struct {
	at   io.ReaderAt
	desc descriptor // nil where there is none: then bytes are copied
	off  int64
	n    int64
}

// Read implements [io.Reader] and ends with io.EOF after the section's bytes,
// with io.ErrUnexpectedEOF when the file has become shorter.
func (s *Section) Read(p []byte) (int, error) {
	if s.n <= 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > s.n {
		p = p[:s.n]
	}
	n, err := s.at.ReadAt(p, s.off)
	s.off += int64(n)
	s.n -= int64(n)
	if err == io.EOF {
		err = nil
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// Remaining is the number of bytes not yet read or sent.
func (s *Section) Remaining() int64 { return s.n }
