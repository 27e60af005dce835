// Package packfile is the format of a site in one executable: a base program,
// behind it the bodies of the site's files, an index, and a trailer.
//
//	base           a millrace, byte for byte
//	header         Magic, at the next multiple of 4 KiB
//	bodies         each on as few pages of 4 KiB as can be; equal ones are there once
//	index          names, places, lengths, SHA-256 sums, types, dates, config
//	trailer        128 bytes: where the index is, and its SHA-256
//
// A body begins on a page of its own, unless it fits into what is left of the last
// one: small files and their encodings share pages, so a page of text with three
// encodings takes one page or two instead of four.
//
// A file has a body for each encoding that pays. Nothing is ever unpacked:
// [Folder] reads at offsets, and package send has the kernel send from there.
//
// Open checks the trailer, the index and 4 MiB of bodies. The rest is checked
// while the site is served ([Site.CheckAll]), and each body before it is read for
// the first time ([Site.Check]). So no altered byte is ever sent, and a site of
// any size starts at once.
package packfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"millrace/internal/wire/negotiate"
)

const (
	// Magic begins the header and the trailer.
	Magic = "MILLRACE-PACK-1\n"
	// FolderConfig is the config of a folder that is packed without one.
	FolderConfig = "sites: [{routes: {/: {static: {root: .}}}}]\n"
	// Align is the length of a page in bytes: that of the system's memory on most
	// machines.
	Align = 4096
	// trailerSize is the length of the trailer in bytes.
	trailerSize = 128
	// checkedAtStart is how many bytes of bodies Open reads for their sums: some
	// 10 ms of one core, most of it for the system calls of small ones.
	checkedAtStart = 4 << 20
	// copySize is how much of a body is read at once.
	copySize = 256 << 10
	// maxIndex bounds what Open takes into memory for the index: names and
	// places of some four million files.
	maxIndex = 1 << 30
)

// buffers are for sums: thousands of bodies are read in a row.
var buffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// ErrNone says that the file is a program without a site.
var ErrNone = errors.New("there is no packed site in this file")

// ErrAltered says that the file is not as it was packed.
var ErrAltered = errors.New("the packed site is damaged: the file was altered or cut off after it was packed")

// Body is one encoding of a file: where it lies in the packed file. An Offset
// of 0 is no body.
type Body struct {
	Offset, Size int64 // in bytes
	Sum          [sha256.Size]byte
}

// File is one file of the site.
type File struct {
	Name     string // below the folder, with slashes
	Type     string // its media type, for lists; answers make their own
	Modified int64  // Unix seconds
	Bodies   [negotiate.Codings]Body
}

// Root is one folder that the config names.
type Root struct {
	Name  string // as the config has it
	Files []File // sorted by name
}

// Index is all that is known of a site.
type Index struct {
	Config []byte // YAML
	Plan   []byte // the same for a base that reads no YAML, as JSON; empty where it cannot serve it
	Base   Body   // the base program; its Offset is 0
	Roots  []Root
}

// Site is an open packed file. It is safe for concurrent use.
type Site struct {
	Index
	file *os.File

	mu      sync.Mutex
	checked map[uint64]struct{} // bodies that Check has found to be as they were, by mark
	altered map[uint64]error    // the others
}

// mark tells bodies apart in few bytes: a site with 100,000 files has some
// 300,000. It is as random as a sum.
func (b Body) mark() uint64 {
	return binary.LittleEndian.Uint64(b.Sum[:]) ^ uint64(b.Offset)<<16 ^ uint64(b.Size) //nolint:gosec // any bits will do
}

// trailer is the end of a packed file.
type trailer struct {
	base, index, length, total int64
	sum                        [sha256.Size]byte
}

func (t trailer) bytes() []byte {
	b := append(make([]byte, 0, trailerSize), Magic...)
	for _, n := range []int64{t.base, t.index, t.length, t.total} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n)) //nolint:gosec // lengths are not negative
	}
	b = append(b, t.sum[:]...)
	b = append(b, make([]byte, trailerSize-sha256.Size-len(b))...)
	own := sha256.Sum256(b)
	return append(b, own[:]...)
}

func parseTrailer(b []byte, size int64) (t trailer, err error) {
	signed := len(b) - sha256.Size
	if sha256.Sum256(b[:signed]) != [sha256.Size]byte(b[signed:]) {
		return t, ErrAltered
	}
	for i, p := range []*int64{&t.base, &t.index, &t.length, &t.total} {
		*p = int64(binary.LittleEndian.Uint64(b[len(Magic)+8*i:])) //nolint:gosec // compared below
	}
	copy(t.sum[:], b[len(Magic)+32:])
	if t.total != size || t.base < 0 || t.index < t.base || t.length < 0 || t.length > maxIndex || t.index+t.length+trailerSize != size {
		return t, ErrAltered
	}
	return t, nil
}

// OpenSelf opens the site of the running program. ErrNone: it has none.
func OpenSelf() (*Site, error) {
	if runtime.GOOS == "linux" {
		site, err := Open("/proc/self/exe") // also when the file was replaced meanwhile
		if !errors.Is(err, fs.ErrNotExist) {
			return site, err
		}
		return openNamed(os.Args[0]) // there is no /proc, as in a bare chroot
	}
	name, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own file: %w", err)
	}
	return Open(name)
}

// openNamed opens the site of a program by the name that it was started with.
func openNamed(name string) (*Site, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("finding this program's own file: %w", err)
	}
	return Open(file)
}

// Open opens a packed file and checks it, as the package's comment says.
func Open(name string) (*Site, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the packed file: %w", err)
	}
	s := &Site{file: f, checked: map[uint64]struct{}{}, altered: map[uint64]error{}}
	if err := s.load(); err != nil {
		_ = f.Close() // read only
		return nil, err
	}
	return s, nil
}

// Close closes the file. Answers that are still being sent from it fail.
func (s *Site) Close() error { return s.file.Close() }

// load reads trailer and index.
func (s *Site) load() error {
	t, err := readTrailer(s.file)
	if err != nil {
		return err
	}
	var index strings.Builder // all names are parts of it
	index.Grow(int(t.length))
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(&index, sum), io.NewSectionReader(s.file, t.index, t.length)); err != nil {
		return fmt.Errorf("reading the index: %w", err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != t.sum {
		return ErrAltered
	}
	if s.Index, err = decode(index.String()); err != nil {
		return err
	}
	left := int64(checkedAtStart)
	return s.eachBody(func(name string, b Body) error {
		if b.Offset < t.base || b.Size < 0 || b.Offset > t.index-b.Size {
			return ErrAltered
		}
		if b.Size > left {
			return nil
		}
		left -= b.Size
		if err := s.Check(b); err != nil {
			return fmt.Errorf("%s: %w", Shown(name), err)
		}
		return nil
	})
}

// readTrailer finds out whether a file has a site.
func readTrailer(f *os.File) (t trailer, err error) {
	info, err := f.Stat()
	if err != nil {
		return t, fmt.Errorf("looking at the packed file: %w", err)
	}
	b := make([]byte, trailerSize)
	if at := info.Size() - trailerSize; at >= 0 {
		if _, err := f.ReadAt(b, at); err != nil {
			return t, fmt.Errorf("reading the packed file: %w", err)
		}
	}
	if string(b[:len(Magic)]) == Magic {
		return parseTrailer(b, info.Size())
	}
	// A packed file that was cut off must not pass for a plain program.
	head := make([]byte, len(Magic))
	if _, err := f.ReadAt(head, aligned(programEnd(f))); err == nil && string(head) == Magic {
		return t, ErrAltered
	}
	return t, ErrNone
}

// eachBody calls fn once for every body, in the order of the index.
func (s *Site) eachBody(fn func(name string, b Body) error) error {
	for _, r := range s.Roots {
		for _, f := range r.Files {
			for _, b := range f.Bodies {
				if b.Offset == 0 {
					continue
				}
				if err := fn(f.Name, b); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Check compares a body with its sum, once: later calls know.
func (s *Site) Check(b Body) error {
	mark := b.mark()
	s.mu.Lock()
	_, fine := s.checked[mark]
	err := s.altered[mark]
	s.mu.Unlock()
	if fine || err != nil {
		return err
	}
	err = s.compare(b)
	s.mu.Lock()
	if err == nil {
		s.checked[mark] = struct{}{}
	} else {
		s.altered[mark] = err
	}
	s.mu.Unlock()
	return err
}

// CheckAll checks every body that was not checked yet, until ctx ends. It
// returns the first that was altered.
func (s *Site) CheckAll(ctx context.Context) error {
	return s.eachBody(func(name string, b Body) error {
		if ctx.Err() != nil {
			return nil
		}
		if err := s.Check(b); err != nil {
			return fmt.Errorf("%s: %w", Shown(name), err)
		}
		return nil
	})
}

func (s *Site) compare(b Body) error {
	sum := sha256.New()
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(s.file, b.Offset, b.Size), buf[:]); err != nil {
		return fmt.Errorf("reading the packed file: %w", err)
	}
	if [sha256.Size]byte(sum.Sum(nil)) != b.Sum {
		return ErrAltered
	}
	return nil
}

// Verify compares every byte of the file: program, bodies and index with their
// sums, what lies between them with what was written there. It calls step for each
// file.
func (s *Site) Verify(step func()) error {
	if err := s.compare(s.Base); err != nil {
		return fmt.Errorf("the program itself: %w", err)
	}
	var found []error
	if err := s.checkPadding(); err != nil {
		found = append(found, err)
	}
	for _, r := range s.Roots {
		for _, f := range r.Files {
			for _, b := range f.Bodies {
				if b.Offset == 0 {
					continue
				}
				if err := s.compare(b); err != nil {
					found = append(found, fmt.Errorf("%s: %w", Shown(f.Name), err))
					break
				}
			}
			step()
		}
	}
	return errors.Join(found...)
}

// aligned is n, rounded up to a multiple of Align.
func aligned(n int64) int64 { return (n + Align - 1) / Align * Align }
