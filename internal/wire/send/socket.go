package send

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// chunk is the most for one call of sendfile(2): large enough that the calls cost nothing
// (with 1 MiB a download took a fifth more CPU), and small enough that a fast reader does
// not keep the thread in the kernel for long.
const chunk = 4 << 20

// ErrNeedsBlocking says that a goroutine which may block must send the file, by SendFile: its
// file system has no sendfile(2), or the file is too short. SendFile finds out which.
var ErrNeedsBlocking = errors.New("the file cannot be sent without waiting")

// SectionOf reports whether src is a file that sendfile(2) can send: a Section, an open file,
// or a part of these as io.CopyN makes it. Call moved with the number of bytes that were
// sent: it moves src on as reading them would have done.
func SectionOf(src io.Reader) (sec *Section, moved func(n int64), ok bool) {
	if s, ok := src.(*Section); ok {
		return s, func(int64) {}, s.desc != nil
	}
	limited, isLimited := src.(*io.LimitedReader)
	if isLimited {
		if s, ok := limited.R.(*Section); ok {
			part := &Section{at: s.at, desc: s.desc, off: s.off, n: min(s.n, limited.N)}
			return part, func(n int64) { s.off += n; s.n -= n; limited.N -= n }, s.desc != nil
		}
		src = limited.R
	}
	f, ok := src.(interface {
		descriptor
		io.Seeker
		Stat() (os.FileInfo, error)
	})
	if !ok {
		return nil, nil, false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, nil, false // files of /proc have content, but no size
	}
	off, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, nil, false
	}
	n := max(info.Size()-off, 0)
	if isLimited {
		n = min(n, limited.N)
	}
	return &Section{at: f, desc: f, off: off, n: n}, func(n int64) {
		_, _ = f.Seek(off+n, io.SeekStart) // as it could before
		if isLimited {
			limited.N -= n
		}
	}, true
}

// HasDescriptor reports whether sendfile(2) can send the section.
func (s *Section) HasDescriptor() bool { return s.desc != nil }

// descriptor is what sendfile(2) and pread(2) need of an open file.
type descriptor interface {
	io.ReaderAt
	SyscallConn() (syscall.RawConn, error)
}
