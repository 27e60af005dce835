package codec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"millrace/images/picture"
)

const (
	// defaultMemory of a command: avifenc codes some 40 megapixels in it.
	defaultMemory = 1 << 30
	// testTime bounds the self-test of one command, which takes milliseconds:
	// one that hangs must not keep the server from starting.
	testTime = 10 * time.Second
)

// ToolOptions of NewTools.
type ToolOptions struct {
	// Memory bounds the address space of one command in bytes (Linux).
	// Default 1 GiB.
	Memory int64
	// Path replaces the environment's PATH; for tests.
	Path string
	// Tested are the commands that Tools.Tested said work, in another process:
	// they are not tested again unless their files have changed, and others are
	// not looked for. nil: all are.
	Tested []Tested
}

// Tools is the level of installed commands. Each image is a process of its
// own, fed and read through pipes, that is killed with its context.
type Tools struct {
	cwebp, gif2webp, avifenc *command // nil: not installed, or not working
	// scale says that avifenc has -q (1.0 and later) instead of quantizers;
	// tuned, that its quality is that of the embedded level's library.
	scale, tuned bool
	problems     []error
}

// NewTools looks the commands up in PATH and tests them on an 8×8 image, ten
// seconds each at most. Those that are missing or fail are left out; with none
// at all it returns ErrUnsupported.
func NewTools(ctx context.Context, o ToolOptions) (*Tools, error) {
	return newTools(ctx, o, testTime)
}

func newTools(ctx context.Context, o ToolOptions, limit time.Duration) (*Tools, error) {
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	if o.Path == "" {
		o.Path = os.Getenv("PATH")
	}
	t := &Tools{}
	for _, tool := range []struct {
		name  string
		field **command
		test  func(context.Context, *command) error
	}{
		{"cwebp", &t.cwebp, t.testCWebP},
		{"gif2webp", &t.gif2webp, t.testGIF2WebP},
		{"avifenc", &t.avifenc, t.testAVIFEnc},
	} {
		c := &command{name: tool.name, path: o.Path, memory: o.Memory}
		if o.Tested != nil && !slices.ContainsFunc(o.Tested, func(k Tested) bool { return k.Name == c.name }) {
			t.problems = append(t.problems, fmt.Errorf("%s: did not work in another process", c.name))
			continue
		}
		if t.known(c, o.Tested) {
			*tool.field = c
			continue
		}
		var ok bool
		if c.file, ok = lookUp(tool.name, o.Path); !ok {
			t.problems = append(t.problems, fmt.Errorf("%s: not found in PATH", tool.name))
			continue
		}
		*tool.field = c
		ctx, cancel := context.WithTimeout(ctx, limit)
		err := c.stat()
		if err == nil {
			err = tool.test(ctx, c)
		}
		cancel()
		if err != nil {
			*tool.field = nil
			t.problems = append(t.problems, fmt.Errorf("self-test of %s: %w", c.file, err))
		}
	}
	if t.cwebp == nil && t.gif2webp == nil && t.avifenc == nil {
		return nil, fmt.Errorf("%w: none of the commands works: %w", ErrUnsupported, errors.Join(t.problems...))
	}
	return t, nil
}

// Problems tells which commands are left out, and why.
func (t *Tools) Problems() []error { return t.problems }

// Level is "tools".
func (*Tools) Level() string { return "tools" }

// Formats are those whose commands passed the self-test. WebP is cwebp's;
// animations need gif2webp, too.
func (t *Tools) Formats() map[Format]string {
	formats := map[Format]string{}
	if t.cwebp != nil {
		formats[WebP] = "cwebp " + t.cwebp.version
	}
	if t.avifenc != nil {
		formats[AVIF] = "avifenc " + t.avifenc.version
	}
	return formats
}

// Encode writes one image.
func (t *Tools) Encode(ctx context.Context, p *picture.Picture, o Params) ([]byte, error) {
	if err := check(p, o); err != nil {
		return nil, err
	}
	c, prepare := t.cwebp, cwebpJob
	if o.Format == AVIF {
		c, prepare = t.avifenc, t.avifencJob
	}
	if c == nil {
		return nil, fmt.Errorf("no command that writes %s: %w", o.Format, ErrUnsupported)
	}
	return t.result(ctx, c, prepare(p, o), o.Format)
}

// Animate converts a GIF to an animated WebP, as it is.
func (t *Tools) Animate(ctx context.Context, gif []byte, o Params, shape Shape) ([]byte, error) {
	if shape != nil || !bytes.HasPrefix(gif, []byte("GIF8")) {
		return nil, fmt.Errorf("an animation that is no GIF, or in another size: %w", ErrUnsupported)
	}
	if o.Format != WebP {
		return nil, fmt.Errorf("an animation as %q: %w", o.Format, ErrUnsupported)
	}
	if t.gif2webp == nil {
		return nil, fmt.Errorf("no command that converts animations: %w", ErrUnsupported)
	}
	return t.result(ctx, t.gif2webp, gif2webpJob(gif, o), WebP)
}

// result runs a command and looks at what came out.
func (t *Tools) result(ctx context.Context, c *command, j job, f Format) ([]byte, error) {
	file, err := c.run(ctx, j)
	if err != nil {
		return nil, err
	}
	if err := checkResult(f, file); err != nil {
		return nil, c.failed(err, "")
	}
	return file, nil
}

// Commands are the files that NewTools tries, of those that are there.
func Commands(path string) (files []string) {
	for _, name := range []string{"cwebp", "gif2webp", "avifenc"} {
		if file, ok := lookUp(name, path); ok {
			files = append(files, file)
		}
	}
	return files
}

// lookUp finds an executable file in the folders of path. Relative ones are
// passed over: what runs must not depend on the folder we are started in.
func lookUp(name, path string) (string, bool) {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// numbers is the first version number in a command's own words.
var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

// askVersion fills in the version; flag is how the command is asked for it.
func (c *command) askVersion(ctx context.Context, flag string) error {
	out, err := c.run(ctx, job{args: []string{flag}})
	if err != nil {
		return err
	}
	c.version = string(numbers.Find(out))
	if c.version == "" {
		return c.failed(fmt.Errorf("no version number in what it answers to %s: %q", flag, firstLine(out)), "")
	}
	return nil
}

// firstLine is for messages.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b[:min(len(b), maxMessage)])), "\n")
	return line
}
