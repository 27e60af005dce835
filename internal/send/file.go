package send

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// File is an open file shared by every answer and connection that sends it.
// All reads name their offset, so nobody moves anybody else's position. It is
// closed when its last user releases it: a file that was replaced on disk
// stays readable for the downloads that began before.
type File struct {
	f    *os.File
	refs atomic.Int64
}

// NewFile takes over f, with one reference that belongs to the caller.
func NewFile(f *os.File) *File {
	sf := &File{f: f}
	sf.refs.Store(1)
	return sf
}

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
		_ = f.f.Close() // opened for reading: nothing can be lost
	case n < 0:
		panic(fmt.Sprintf("send: file %s released more often than retained", f.f.Name()))
	}
}

// ReadAt reads at an offset, as [io.ReaderAt] says.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// Section returns a reader of n bytes from off on. The caller keeps a
// reference to f for as long as the section is used.
func (f *File) Section(off, n int64) *Section { return &Section{file: f, off: off, n: n} }

// Section is a part of a File that is still to be sent. Whoever copies it with
// ReadFrom to a connection of the fast lane gets sendfile(2) with an explicit
// offset; to everyone else it is a plain reader.
type Section struct {
	file *File
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
	n, err := s.file.ReadAt(p, s.off)
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
