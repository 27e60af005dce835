package nginx

// This file reads the configs of nginx: their words as nginx splits them, each directive
// with its file and line, includes in their place.

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"millrace/importer/draft"
)

// Parse reads a config and all that it includes. Relative includes are in the
// config's folder, as with nginx.
func Parse(name string, files draft.Files) ([]*draft.Directive, error) {
	l := &loader{Reader: draft.Reader{Files: files}, dir: filepath.Dir(name)}
	return l.load(name, 0)
}

// loader follows includes.
type loader struct {
	draft.Reader
	dir        string
	directives int
}

func (l *loader) load(name string, depth int) ([]*draft.Directive, error) {
	text, err := l.Text(name)
	if err != nil {
		return nil, err
	}
	p := &parser{lexer: lexer{name: name, remaining: text, line: 1}, loader: l, includes: depth}
	list, err := p.block(0)
	return list, draft.At(err, name, p.line)
}

// parser reads one file.
type parser struct {
	lexer
	loader   *loader
	includes int // how deep
}

func (p *parser) block(depth int) (list []*draft.Directive, err error) {
	for {
		d, end, err := p.directive(depth)
		switch {
		case err != nil:
			return nil, err
		case end:
			return list, nil
		case d.Name == "include":
			more, err := p.loader.Include(d, p.loader.dir, p.includes, p.loader.load)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		default:
			list = append(list, d)
		}
	}
}

// directive reads the next one; end: the block, or the file, is over.
func (p *parser) directive(depth int) (d *draft.Directive, end bool, err error) {
	var words, written []string
	line := 0
	for {
		text, kind, err := p.next()
		if err != nil {
			return nil, false, err
		}
		if kind == isWord {
			if len(words) == 0 {
				line = p.start
			}
			words, written = append(words, text), append(written, strings.Join(strings.Fields(p.raw), " "))
			continue
		}
		if len(words) == 0 {
			return nil, true, p.closes(kind, depth)
		}
		if p.loader.directives++; p.loader.directives > draft.MaxLines {
			return nil, false, fmt.Errorf("the config has more than %d directives", draft.MaxLines)
		}
		d = &draft.Directive{Name: words[0], Args: words[1:], File: p.name, Line: line, Written: strings.Join(written, " ")}
		switch kind {
		case isSemicolon:
			return d, false, nil
		case isOpen:
			d.Opens = true
			return d, false, p.body(d, depth)
		}
		return nil, false, fmt.Errorf("%q is not ended by \";\" or a block", d.Name)
	}
}

// closes checks that a block may end here.
func (p *parser) closes(kind tokenKind, depth int) error {
	switch {
	case kind == isEnd && depth > 0:
		return errors.New("a block is not closed: \"}\" is missing")
	case kind == isClose && depth == 0:
		return errors.New("\"}\" closes nothing")
	case kind == isSemicolon, kind == isOpen:
		return errors.New("a name is missing before \";\" or \"{\"")
	}
	return nil
}

func (p *parser) body(d *draft.Directive, depth int) (err error) {
	if strings.HasSuffix(d.Name, "_by_lua_block") {
		d.Code, err = p.code()
		return err
	}
	if depth >= draft.MaxDepth {
		return fmt.Errorf("blocks are nested more than %d deep", draft.MaxDepth)
	}
	d.Block, err = p.block(depth + 1)
	return err
}
