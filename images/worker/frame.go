package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"millrace/images/codec"
	"millrace/images/container"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/images/icc"
	"millrace/images/jpeg"
	"millrace/images/sandbox"
)

// What goes through the pipes, in both directions, is frames: four bytes that
// name the protocol and its version, the length of a header (4 bytes, big
// endian), the length of a body (8 bytes), the header as JSON, the body. A
// parent and a child are one build, mostly: where an upgrade replaced the
// program meanwhile, the version says it before anything is misunderstood.
const (
	magic       = "MRi1"
	prefixBytes = 16

	// maxHeader is far above what a header takes, whose only long parts are
	// an error's text and an image's copyright, which are cut (maxText).
	maxHeader = 64 << 10
	maxText   = 1000

	// maxSource is above every limit that a site may set for its originals
	// (images.Options.MaxSize, 25 MiB by default).
	maxSource = 256 << 20
	// maxResult: a variant that is larger than its original is thrown away,
	// so what is longer than that is not an answer.
	maxResult = maxSource
)

// errGarbage is what a frame is refused with.
var errGarbage = errors.New("that is not what a worker says")

// hello is the first frame a child gets.
type hello struct {
	Level      string
	Background bool  // lowest priority
	Memory     int64 // of all workers, in bytes
	// Network is the parent's (sandbox.NetworkID).
	Network string `json:",omitempty"`
	// Known is what the first worker found: those after it need not test the
	// encoders again. nil asks for the test.
	Known *Abilities `json:",omitempty"`
}

// welcome is what it answers.
type welcome struct {
	Abilities Abilities
	Sandbox   sandbox.Report `json:",omitempty"`
	Priority  string         `json:",omitempty"` // why it could not be lowered
	Failure   *failure
}

// job asks for a conversion; the body is the source.
type job struct {
	Spec   convert.Spec
	Memory int64 // soft limit of the child's heap; 0: what it had at its start
}

// accepted is the frame with which a child accepts a job before the source is sent: a
// child that has died before that did not die of this image.
type accepted struct{}

// answer ends a job; the body is the variant.
type answer struct {
	Result  *convert.Result
	Failure *failure
}

// failure is an error on its way between processes: the text, and which
// sentinels it wraps.
type failure struct {
	Text  string
	Kinds []string
}

// Error implements error, so that failure may be returned as it came.
func (f *failure) Error() string { return f.Text }

// Unwrap gives errors.Is the sentinels back.
func (f *failure) Unwrap() []error {
	var wrapped []error
	for _, k := range kinds() {
		for _, name := range f.Kinds {
			if name == k.name {
				wrapped = append(wrapped, k.err)
			}
		}
	}
	return wrapped
}

func newFailure(err error) *failure {
	f := &failure{Text: cut(err.Error())}
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			f.Kinds = append(f.Kinds, k.name)
		}
	}
	return f
}

// cut shortens a text that an image may have had a hand in.
func cut(text string) string {
	if len(text) > maxText {
		return text[:maxText] + " …"
	}
	return text
}

type kind struct {
	name string
	err  error
}

// kinds are the errors that callers of Convert tell apart.
func kinds() []kind {
	return []kind{
		{"no gain", convert.ErrNoGain},
		{"memory", convert.ErrMemory},
		{"outside", convert.ErrOutside},
		{"svg", convert.ErrSVG},
		{"convert unsupported", convert.ErrUnsupported},
		{"header unknown", header.ErrUnknown},
		{"header broken", header.ErrBroken},
		{"header too large", header.ErrTooLarge},
		{"header unsupported", header.ErrUnsupported},
		{"jpeg format", jpeg.ErrFormat},
		{"jpeg unsupported", jpeg.ErrUnsupported},
		{"jpeg too large", jpeg.ErrTooLarge},
		{"icc broken", icc.ErrBroken},
		{"icc unsupported", icc.ErrUnsupported},
		{"codec unsupported", codec.ErrUnsupported},
		{"codec failed", codec.ErrFailed},
		{"container format", container.ErrFormat},
	}
}

// writeFrame writes all of a frame but its body, which the caller writes next.
func writeFrame(w io.Writer, head any, body int64) error {
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if len(text) > maxHeader {
		return fmt.Errorf("%w: a header of %d bytes", errGarbage, len(text))
	}
	frame := make([]byte, prefixBytes, prefixBytes+len(text))
	copy(frame, magic)
	binary.BigEndian.PutUint32(frame[4:], uint32(len(text)))
	binary.BigEndian.PutUint64(frame[8:], uint64(body))
	_, err = w.Write(append(frame, text...))
	return err
}

// readFrame reads all of a frame but its body, whose length it returns. io.EOF,
// unwrapped, means that no frame begins here; nothing is allocated for lengths
// that are only claimed.
func readFrame(r io.Reader, head any, maxBody int64) (body int64, err error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, err
	}
	if string(prefix[:4]) != magic {
		return 0, fmt.Errorf("%w: it begins with %q", errGarbage, prefix[:])
	}
	length := binary.BigEndian.Uint32(prefix[4:])
	size := binary.BigEndian.Uint64(prefix[8:])
	if length > maxHeader || size > uint64(maxBody) {
		return 0, fmt.Errorf("%w: a header of %d bytes, a body of %d", errGarbage, length, size)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, fmt.Errorf("reading a header of %d bytes: %w", length, noEOF(err))
	}
	if err := json.Unmarshal(text, head); err != nil {
		return 0, fmt.Errorf("%w: %w", errGarbage, err)
	}
	return int64(size), nil
}

// noEOF makes the end in mid-frame an error that nobody takes for a good end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
