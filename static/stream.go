package static

import (
	"io"
	"io/fs"
)

// sequential lets one request read a file at offsets where the file system
// can only read from the front, as a zip archive does: going on is free, back
// means opening it again. It is used by one goroutine.
type sequential struct {
	tree *tree
	name string
	file fs.File
	at   int64
}

// ReadAt implements [io.ReaderAt].
func (s *sequential) ReadAt(p []byte, off int64) (int, error) {
	if s.file == nil || off < s.at {
		if err := s.reopen(); err != nil {
			return 0, err
		}
	}
	if skip := off - s.at; skip > 0 {
		if seeker, ok := s.file.(io.Seeker); ok {
			if _, err := seeker.Seek(off, io.SeekStart); err != nil {
				return 0, err
			}
			s.at = off
		} else {
			n, err := io.CopyN(io.Discard, s.file, skip)
			s.at += n
			if err != nil {
				return 0, err
			}
		}
	}
	n, err := io.ReadFull(s.file, p)
	s.at += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

func (s *sequential) reopen() error {
	if err := s.Close(); err != nil {
		return err
	}
	f, _, err := s.tree.open(s.name)
	s.file, s.at = f, 0
	return err
}

// Close implements [io.Closer].
func (s *sequential) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
