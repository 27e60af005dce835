// Package pgo works with the profiles of profile-guided optimisation: it
// records them from a running server, merges them with weights, says
// beforehand how much they can bring at best, shows what changed between two,
// and builds with one, with proof that it was used.
//
// What it knows of profile-guided optimisation is that of the Go compiler
// (go.dev/doc/pgo): hot calls are inlined beyond the usual budget, hot calls
// through interfaces and function values get a direct branch. Both happen in
// compiled Go code only; see [Predict] for what follows from that.
package pgo

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// The errors of a file that is no use here. They come wrapped, with the name
// of the file and what it is instead.
var (
	// ErrNotCPU is a profile of something else (heap, goroutines), or no
	// profile at all.
	ErrNotCPU = errors.New("not a CPU profile")
	// ErrEmpty is a CPU profile without a sample: the server did nothing.
	ErrEmpty = errors.New("the profile holds no samples")
)

const (
	// maxFile is the largest profile that is read, as it lies on the disk. A
	// busy server's profile of five minutes has some 2 MB.
	maxFile = 16 << 20
	// maxData is the largest after decompression: a few bytes of gzip must not
	// become all of the memory.
	maxData = 64 << 20
)

// A Profile is a CPU profile that was read and found usable: it has samples,
// and they name functions. Make it with [Read] or [Parse]. It is not changed by
// any function of this package.
type Profile struct {
	Name string // of the file, for errors and tables

	p   *profile.Profile
	cpu int // which of a sample's values is CPU time in ns
}

// Read reads the profile in a file.
func Read(file string) (*Profile, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s: %w", file, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	defer f.Close()
	return Parse(file, f)
}

// Parse reads a profile in pprof's format (profile.proto, with or without
// gzip). Errors wrap [ErrNotCPU] or [ErrEmpty] where that is what is wrong.
func Parse(name string, r io.Reader) (*Profile, error) {
	data, err := readAtMost(r, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", name, ErrNotCPU)
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) { // RFC 1952, 2.3.1
		if data, err = gunzip(data); err != nil {
			return nil, fmt.Errorf("%s is damaged (%w): %w", name, err, ErrNotCPU)
		}
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a profile (%w): %w", name, err, ErrNotCPU)
	}
	return check(name, p)
}

func gunzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return readAtMost(z, maxData)
}

func readAtMost(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d MB", most>>20)
	}
	return data, err
}

// check takes only what the functions of this package can work with, so that
// none of them has to look again.
func check(name string, p *profile.Profile) (*Profile, error) {
	cpu := -1
	var types []string
	for i, t := range p.SampleType {
		types = append(types, t.Type)
		if t.Type == "cpu" && t.Unit == "nanoseconds" {
			cpu = i
		}
	}
	if cpu < 0 {
		return nil, fmt.Errorf("%s is %s: %w", name, kindOf(types), ErrNotCPU)
	}
	out := &Profile{Name: name, p: p, cpu: cpu}
	named := false
	for _, s := range p.Sample {
		if s.Value[cpu] < 0 {
			return nil, fmt.Errorf("%s has negative samples, it is the difference of two profiles: %w", name, ErrNotCPU)
		}
		for _, l := range s.Location {
			if l == nil {
				return nil, fmt.Errorf("%s has a sample without a place: %w", name, ErrNotCPU)
			}
			named = named || len(l.Line) > 0 && l.Line[0].Function != nil
		}
	}
	switch total := out.total(); {
	case total == 0:
		return nil, fmt.Errorf("%s: %w", name, ErrEmpty)
	case total < 0: // an overflow
		return nil, fmt.Errorf("%s claims more CPU time than there is: %w", name, ErrNotCPU)
	case !named:
		return nil, fmt.Errorf("%s names no functions, only addresses: %w", name, ErrNotCPU)
	}
	return out, nil
}

// kindOf says what a profile is, by the types of its samples.
func kindOf(types []string) string {
	all := " " + strings.Join(types, " ") + " "
	switch {
	case strings.Contains(all, " inuse_space ") || strings.Contains(all, " alloc_space "):
		return "a heap profile"
	case strings.Contains(all, " contentions "):
		return "a profile of mutexes or blocking"
	case strings.Contains(all, " goroutine "):
		return "a profile of goroutines"
	case len(types) == 0:
		return "without any sample type"
	}
	return "a profile of" + strings.TrimRight(all, " ")
}

// total is the CPU time of all samples in ns, negative when it overflows.
func (p *Profile) total() int64 {
	var sum int64
	for _, s := range p.p.Sample {
		if sum += s.Value[p.cpu]; sum < 0 {
			return -1
		}
	}
	return sum
}

// CPU is the CPU time of all samples.
func (p *Profile) CPU() time.Duration { return time.Duration(p.total()) }

// Samples is how often a running thread was looked at; what is seen in one
// sample of a hundred is known to within a few.
func (p *Profile) Samples() int64 {
	if period := p.p.Period; period > 0 {
		return max(1, p.total()/period)
	}
	return int64(len(p.p.Sample))
}

// Span is how long the profile took by the clock; 0 where it does not say.
func (p *Profile) Span() time.Duration { return time.Duration(max(0, p.p.DurationNanos)) }

// A frame is one function in a stack, as far as it is known.
type frame struct {
	name string
	file string
	line int64
	// inlined means that its caller holds its code: no call happens.
	inlined bool
}

// frames are a sample's functions, innermost first.
func frames(s *profile.Sample) []frame {
	out := make([]frame, 0, len(s.Location))
	for _, l := range s.Location {
		for i, ln := range l.Line {
			if ln.Function == nil {
				continue
			}
			out = append(out, frame{ln.Function.Name, ln.Function.Filename, ln.Line, i < len(l.Line)-1})
		}
		if len(l.Line) == 0 {
			out = append(out, frame{name: unnamed(l)})
		}
	}
	return out
}

// unnamed is code that has no name in the profile: C, mostly.
func unnamed(l *profile.Location) string {
	if m := l.Mapping; m != nil && m.File != "" {
		return "[" + m.File[strings.LastIndexByte(m.File, '/')+1:] + "]"
	}
	return "[unknown]"
}
