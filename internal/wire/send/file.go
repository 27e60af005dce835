package send

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// File is an open file that many answers and connections share. Each read has its own
// offset, so there is no common file position. It is closed when its last user has released
// it: downloads that have begun go on after the file was replaced on the disk.
type File struct {
	f      *os.File // nil when it is not a file of the operating system
	fd     uintptr  // of f
	at     io.ReaderAt
	closer io.Closer
	refs   atomic.Int64
	sent   atomic.Int64 // Unix second in which all of it was last sent
}

// warmFor is for how many seconds after a file was sent it is assumed to be in the page
// cache.
const warmFor = 1

// WasSent records in which Unix second the whole file was sent.
func (f *File) WasSent(second int64) {
	if f.sent.Load() < second {
		f.sent.Store(second)
	}
}

// Warm reports whether the file was sent so recently that it should be in the page cache.
func (f *File) Warm(second int64) bool { return second-f.sent.Load() <= warmFor }

// NewFile returns a File that owns f, with one reference, which is the caller's.
func NewFile(f *os.File) *File {
	sf := &File{f: f, fd: f.Fd(), at: f, closer: f}
	sf.refs.Store(1)
	return sf
}

// NewShared is NewFile for a file that somebody else owns: with the last reference c is
// closed, not f.
func NewShared(f *os.File, c io.Closer) *File {
	sf := &File{f: f, fd: f.Fd(), at: f, closer: c}
	sf.refs.Store(1)
	return sf
}

// NewReaderAt is NewFile for content without a descriptor, such as an embedded file. It is
// copied, not sent by sendfile(2); the fast lane takes no answers with it. c may be nil.
func NewReaderAt(r io.ReaderAt, c io.Closer) *File {
	sf := &File{at: r, closer: c}
	sf.refs.Store(1)
	return sf
}

// HasDescriptor reports whether sendfile(2) can send the file.
func (f *File) HasDescriptor() bool { return f.f != nil }

// Retain adds a reference. It returns false, and adds none, if the file is closed already.
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

// Release gives a reference back, and closes the file if it was the last one.
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

// Section returns a reader of n bytes from off on. The caller must keep a reference to f while
// it is used.
func (f *File) Section(off, n int64) *Section {
	s := &Section{at: f.at, off: off, n: n}
	if f.f != nil {
		s.desc = f.f
	}
	return s
}

// Section is a part of a File that is still to be sent. ReadFrom of a connection of the fast
// lane sends it by sendfile(2); elsewhere it is a plain reader.
type Section struct {
	at   io.ReaderAt
	desc descriptor // nil: there is none, and bytes are copied
	off  int64
	n    int64
}

// Read implements [io.Reader]. The error is io.EOF after the section's bytes, and
// io.ErrUnexpectedEOF if the file has become shorter.
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

// Remaining returns the number of bytes that were not read or sent yet.
func (s *Section) Remaining() int64 { return s.n }
