// Package apacheconf reads the configs of Apache and its .htaccess files: lines,
// sections between tags, continued lines, includes in their place. It knows
// nothing of what directives mean, so none stops it. ${NAME} is put in where
// Define has given it a value, and stays as it is elsewhere.
package apacheconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/importer/draft"
)

// Bounds of what is read: configs of thousands of sites are within them.
const (
	maxFile  = 4 << 20 // bytes of one file
	maxFiles = 10_000  // files, included ones counted each time
	maxLines = 500_000
	maxDepth = 32 // of sections, and of includes
)

// Files reads files and expands patterns; os.ReadFile and filepath.Glob do.
type Files struct {
	Read func(name string) ([]byte, error)
	Glob func(pattern string) ([]string, error)
}

// Parse reads a config and what it includes. Relative names are in root, as
// ServerRoot is for Apache; "" is the config's own folder.
func Parse(name, root string, files Files) ([]*draft.Directive, error) {
	if root == "" {
		root = filepath.Dir(name)
	}
	r := &reader{files: files, root: root, defined: map[string]string{}}
	return r.load(name, 0)
}

// reader follows includes.
type reader struct {
	files   Files
	root    string
	defined map[string]string
	read    int // files
	lines   int
}

func (r *reader) load(name string, depth int) ([]*draft.Directive, error) {
	if r.read++; r.read > maxFiles {
		return nil, fmt.Errorf("more than %d files are included: does one include itself?", maxFiles)
	}
	data, err := r.files.Read(name)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes: it is no config", name, maxFile)
	}
	p := &parser{reader: r, name: name, rest: strings.TrimPrefix(string(data), "\ufeff"), includes: depth}
	list, err := p.section("", 0)
	var nested nestedError
	switch {
	case errors.As(err, &nested):
		return nil, fmt.Errorf("%w (included in %s:%d)", nested.error, name, p.line)
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %w", name, p.line, err)
	}
	return list, nil
}

// nestedError is that of an included file, which names it already.
type nestedError struct{ error }

// parser reads one file.
type parser struct {
	*reader
	name     string
	rest     string
	line     int // the last one that was read
	start    int // the first of what is read, where lines are continued
	includes int // how deep
}

// next is the next line with the lines that continue it; false at the end.
func (p *parser) next() (string, bool) {
	for p.rest != "" {
		var text strings.Builder
		p.start = p.line + 1
		for more := true; more && p.rest != ""; {
			line, rest, _ := strings.Cut(p.rest, "\n")
			p.rest = rest
			p.line++
			line = strings.TrimSuffix(line, "\r")
			line, more = strings.CutSuffix(line, `\`)
			text.WriteString(line)
		}
		if line := strings.TrimSpace(text.String()); line != "" && line[0] != '#' {
			return line, true
		}
	}
	return "", false
}

// section reads lines up to the tag that closes one; "" reads up to the end.
func (p *parser) section(name string, depth int) (list []*draft.Directive, err error) {
	opened := p.start
	for {
		line, ok := p.next()
		switch {
		case !ok && name == "":
			return list, nil
		case !ok:
			return nil, fmt.Errorf("<%s> of line %d is not closed: </%s> is missing", name, opened, name)
		}
		if p.lines++; p.lines > maxLines {
			return nil, fmt.Errorf("the config has more than %d lines", maxLines)
		}
		if closing, is := strings.CutPrefix(line, "</"); is {
			closing = strings.TrimSpace(strings.TrimSuffix(closing, ">"))
			if !strings.EqualFold(closing, name) || name == "" {
				return nil, fmt.Errorf("</%s> closes nothing", closing)
			}
			return list, nil
		}
		more, err := p.directive(line, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
}

// directive is one line, or a section: with an include all that is in the files.
func (p *parser) directive(line string, depth int) ([]*draft.Directive, error) {
	d := &draft.Directive{File: p.name, Line: p.start}
	inner, tag := strings.CutPrefix(line, "<")
	if tag {
		var closed bool
		if line, closed = strings.CutSuffix(inner, ">"); !closed {
			return nil, fmt.Errorf("%q is not closed by \">\"", "<"+inner)
		}
		if depth >= maxDepth {
			return nil, fmt.Errorf("sections are nested more than %d deep", maxDepth)
		}
		d.Opens, d.Tag = true, true
	}
	var err error
	if d.Name, d.Args, err = words(p.expand(line)); err != nil {
		return nil, err
	}
	if d.Name == "" {
		return nil, errors.New("a section without a name")
	}
	if tag {
		d.Block, err = p.section(d.Name, depth+1)
		return []*draft.Directive{d}, err
	}
	switch strings.ToLower(d.Name) {
	case "include", "includeoptional":
		return p.include(d)
	case "define":
		if len(d.Args) == 2 {
			p.defined[d.Arg(0)] = d.Arg(1)
		}
	case "serverroot":
		if filepath.IsAbs(d.Arg(0)) {
			p.root = d.Arg(0)
		}
	}
	return []*draft.Directive{d}, nil
}

// expand puts in what Define has said.
func (p *parser) expand(line string) string {
	if len(p.defined) == 0 || !strings.Contains(line, "${") {
		return line
	}
	return regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(line, func(v string) string {
		if value, ok := p.defined[v[2:len(v)-1]]; ok {
			return value
		}
		return v
	})
}

// include is what stands in the files that a pattern names.
func (p *parser) include(d *draft.Directive) ([]*draft.Directive, error) {
	if len(d.Args) != 1 {
		return nil, fmt.Errorf("%s takes one file", d.Name)
	}
	if p.includes >= maxDepth {
		return nil, fmt.Errorf("includes are nested more than %d deep: does a file include itself?", maxDepth)
	}
	pattern := d.Arg(0)
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(p.root, pattern)
	}
	names := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		var err error
		if names, err = p.files.Glob(pattern); err != nil {
			return nil, fmt.Errorf("%s %s: %w", d.Name, pattern, err)
		}
		slices.Sort(names)
	} else if strings.EqualFold(d.Name, "IncludeOptional") {
		if _, err := p.files.Read(pattern); err != nil {
			return nil, nil
		}
	}
	var all []*draft.Directive
	for _, name := range names {
		list, err := p.load(name, p.includes+1)
		if err != nil {
			return nil, nestedError{err}
		}
		all = append(all, list...)
	}
	return all, nil
}
