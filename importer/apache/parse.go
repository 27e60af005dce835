package apache

// This file reads the configs of Apache and its .htaccess files: lines, sections between
// tags, continued lines, includes in their place. ${NAME} is put in where Define has given it
// a value, and stays as it is elsewhere.

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"millrace/importer/draft"
)

// Parse reads a config and what it includes. Relative names are in root, as
// ServerRoot is for Apache; "" is the config's own folder.
func Parse(name, root string, files draft.Files) ([]*draft.Directive, error) {
	if root == "" {
		root = filepath.Dir(name)
	}
	r := &reader{Reader: draft.Reader{Files: files}, root: root, defined: map[string]string{}}
	return r.load(name, 0)
}

// reader follows includes.
type reader struct {
	draft.Reader
	root    string
	defined map[string]string
	lines   int
}

func (r *reader) load(name string, depth int) ([]*draft.Directive, error) {
	text, err := r.Text(name)
	if err != nil {
		return nil, err
	}
	p := &parser{reader: r, name: name, remaining: text, includes: depth}
	list, err := p.section("", 0)
	return list, draft.At(err, name, p.line)
}

// parser reads one file.
type parser struct {
	*reader
	name      string
	remaining string
	line      int // the last one that was read
	start     int // the first of what is read, where lines are continued
	includes  int // how deep
}

// next is the next line with the lines that continue it; false at the end.
func (p *parser) next() (string, bool) {
	for p.remaining != "" {
		var text strings.Builder
		p.start = p.line + 1
		for more := true; more && p.remaining != ""; {
			line, rest, _ := strings.Cut(p.remaining, "\n")
			p.remaining = rest
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
		if p.lines++; p.lines > draft.MaxLines {
			return nil, fmt.Errorf("the config has more than %d lines", draft.MaxLines)
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
		if depth >= draft.MaxDepth {
			return nil, fmt.Errorf("sections are nested more than %d deep", draft.MaxDepth)
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
	if strings.EqualFold(d.Name, "require") && !tag {
		if m := expressionLine().FindStringSubmatch(p.expand(line)); m != nil { // Apache takes it as it stands: %{HTTP_HOST} == 'a'
			d.Args = append(strings.Fields(m[1]), strings.TrimSuffix(strings.TrimPrefix(m[2], `"`), `"`))
		}
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

// expressionLine is a line that ends with an expression, whose quotes belong to it.
func expressionLine() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^require\s+((?:not\s+)?expr)\s+(.+)$`)
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
	if name := d.Arg(0); len(d.Args) == 1 && strings.EqualFold(d.Name, "IncludeOptional") && !strings.ContainsAny(name, "*?[") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.root, name)
		}
		if _, err := p.Files.Read(name); err != nil {
			return nil, nil
		}
	}
	return p.Include(d, p.root, p.includes, p.load)
}
