package draft

// This file reads the files of another server's config and those that they
// include, within bounds, and says where in them a mistake stands.

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is read: configs of thousands of sites are within them.
const (
	maxFile  = 4 << 20 // bytes of one file
	maxFiles = 10_000  // files, included ones counted each time

	// MaxDepth is how deep includes, and a config's blocks, may be nested.
	MaxDepth = 32
	// MaxLines is how many directives a config may have, with all it includes.
	MaxLines = 500_000
)

// Files reads files and expands patterns; os.ReadFile, filepath.Glob and os.Getenv do.
type Files struct {
	Read func(name string) ([]byte, error)
	Glob func(pattern string) ([]string, error)
	Env  func(name string) string // variables of the environment; nil: none is known
}

// Reader reads the files of one config.
type Reader struct {
	Files Files
	read  int // files
}

// Text is what a file says, without a mark of its byte order, and without what stands for
// variables of the environment.
func (r *Reader) Text(name string) (string, error) {
	if r.read++; r.read > maxFiles {
		return "", fmt.Errorf("more than %d files are included: does one include itself?", maxFiles)
	}
	data, err := r.Files.Read(name)
	if err != nil {
		return "", fmt.Errorf("reading the config: %w", err)
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("%s is larger than %d bytes: it is no config", name, maxFile)
	}
	return strings.NewReplacer("\ufeff", "", variableOpens, "?", variableIs, "?", variableCloses, "?").Replace(string(data)), nil
}

// Names are the files that an include's pattern names, in order. A relative one
// is in dir. One without wildcards names a file, whether or not it exists.
func (r *Reader) Names(pattern, dir string) ([]string, error) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(dir, pattern)
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	names, err := r.Files.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("include %s: %w", pattern, err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(n string) bool { // nobody's wildcards match hidden files
		return strings.HasPrefix(filepath.Base(n), ".") && !strings.HasPrefix(filepath.Base(pattern), ".")
	}), nil
}

// Include is what stands in the files that a line names, which load reads; in is how deep
// the line's own file is included.
func (r *Reader) Include(d *Directive, dir string, in int, load func(name string, in int) ([]*Directive, error)) (all []*Directive, err error) {
	if len(d.Args) != 1 || d.Opens {
		return nil, fmt.Errorf("%s takes one file", d.Name)
	}
	if in >= MaxDepth {
		return nil, fmt.Errorf("includes are nested more than %d deep: does %s include itself?", MaxDepth, d.File)
	}
	names, err := r.Names(d.Arg(0), dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		list, err := load(name, in+1)
		if err != nil {
			return nil, includedError{err}
		}
		all = append(all, list...)
	}
	return all, nil
}

// includedError is that of an included file, which names its place already.
type includedError struct{ error }

func (e includedError) Unwrap() error { return e.error }

// At is an error with its place, file:line, or with the place of the include
// that led to it. Nil stays nil.
func At(err error, name string, line int) error {
	var included includedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &included):
		return fmt.Errorf("%w (included in %s:%d)", included.error, name, line)
	}
	return fmt.Errorf("%s:%d: %w", name, line, err)
}
