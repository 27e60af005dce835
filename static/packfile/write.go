package packfile

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// Writer writes a packed file from the front to its end: the base, the bodies,
// and with Finish the index. The same calls make the same bytes.
type Writer struct {
	out  *bufio.Writer
	at   int64
	base Body
	have map[[sha256.Size]byte]Body
}

// NewWriter copies a base program. One that is packed itself is copied without
// its site.
func NewWriter(out io.Writer, base *os.File) (*Writer, error) {
	w := &Writer{out: bufio.NewWriterSize(out, 1<<20), have: map[[sha256.Size]byte]Body{}}
	info, err := base.Stat()
	if err != nil {
		return nil, fmt.Errorf("looking at the base program: %w", err)
	}
	size := info.Size()
	switch t, err := readTrailer(base); {
	case err == nil:
		size = t.base
	case !errors.Is(err, ErrNone):
		return nil, fmt.Errorf("the base program: %w", err)
	}
	sum := sha256.New()
	if err := w.copy(io.TeeReader(io.NewSectionReader(base, 0, size), sum), size); err != nil {
		return nil, err
	}
	w.base = Body{Size: size, Sum: [sha256.Size]byte(sum.Sum(nil))}
	if err := w.align(); err != nil {
		return nil, err
	}
	return w, w.write([]byte(Magic))
}

func (w *Writer) write(b []byte) error {
	n, err := w.out.Write(b)
	w.at += int64(n)
	return err
}

// copy takes exactly size bytes from r.
func (w *Writer) copy(r io.Reader, size int64) error {
	n, err := io.Copy(w.out, io.LimitReader(r, size))
	w.at += n
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (w *Writer) align() error { return w.write(make([]byte, aligned(w.at)-w.at)) }

// place makes room for a body: on a new page, unless it fits into what is left
// of the last one.
func (w *Writer) place(size int64) error {
	if size <= aligned(w.at)-w.at {
		return nil
	}
	return w.align()
}

// Add writes a body and says where it is. One that is there already is not
// written again.
func (w *Writer) Add(body []byte) (Body, error) {
	sum := sha256.Sum256(body)
	if b, ok := w.have[sum]; ok {
		return b, nil
	}
	if err := w.place(int64(len(body))); err != nil {
		return Body{}, err
	}
	b := Body{w.at, int64(len(body)), sum}
	w.have[sum] = b
	return b, w.write(body)
}

// Copy is Add for what is too large to hold, size bytes of it. Fewer of them
// are io.ErrUnexpectedEOF.
func (w *Writer) Copy(r io.Reader, size int64) (Body, error) {
	if err := w.place(size); err != nil {
		return Body{}, err
	}
	b := Body{Offset: w.at, Size: size}
	sum := sha256.New()
	if err := w.copy(io.TeeReader(r, sum), size); err != nil {
		return Body{}, err
	}
	b.Sum = [sha256.Size]byte(sum.Sum(nil))
	w.have[b.Sum] = b
	return b, nil
}

// Finish writes the index and the trailer. The files of each root must be
// sorted by name. It returns the length of the whole in bytes.
func (w *Writer) Finish(x Index) (int64, error) {
	if err := w.align(); err != nil {
		return 0, err
	}
	x.Base = w.base
	index := x.encode()
	t := trailer{w.base.Size, w.at, int64(len(index)), w.at + int64(len(index)) + trailerSize, sha256.Sum256(index)}
	if err := w.write(index); err != nil {
		return 0, err
	}
	if err := w.write(t.bytes()); err != nil {
		return 0, err
	}
	return w.at, w.out.Flush()
}
