package caddy

// This file reads Caddyfiles: words, blocks, snippets and imports. Variables of the
// environment ({$NAME:default}) are those of [draft.Environment].

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
)

// Bounds of a config.
const (
	maxDepth = 16      // imports within imports
	maxLines = 100_000 // lines after all imports
)

// Config is what a Caddyfile says.
type Config struct {
	Global   *draft.Directive   // the options of the block without a name; nil if there is none
	Sites    []*draft.Directive // Args are the addresses, Name is empty
	Snippets []*draft.Directive // (name) and &(name), as they were written
	Imports  []*draft.Directive // import lines whose place others have taken
	Unset    []*draft.Directive // lines that a variable of the environment would be, which is not set
}

// Lines are all lines, for a report.
func (c *Config) Lines() []*draft.Directive {
	var all []*draft.Directive
	if c.Global != nil {
		all = append(all, c.Global)
	}
	return slices.Concat(all, c.Unset, c.Snippets, c.Sites)
}

// Parse reads a Caddyfile and what it imports.
func Parse(name string, files draft.Files) (*Config, error) {
	p := &parser{Reader: draft.Reader{Files: files}, config: &Config{}, snippets: map[string]*draft.Directive{}}
	if err := p.file(name, 0); err != nil {
		return nil, err
	}
	if len(p.config.Sites) == 0 && p.config.Global == nil {
		return nil, fmt.Errorf("%s: no site in it", name)
	}
	return p.config, nil
}

type parser struct {
	draft.Reader
	config   *Config
	snippets map[string]*draft.Directive
	lines    int

	unset []*draft.Directive

	name   string // of the file
	tokens []token
	at     int
}

func (p *parser) file(name string, depth int) error {
	list, err := p.read(name)
	if err != nil {
		return err
	}
	return p.top(list, depth)
}

// read reads the blocks of a file.
func (p *parser) read(name string) ([]*draft.Directive, error) {
	text, err := p.Text(name)
	if err != nil {
		return nil, err
	}
	text = p.heads(p.wholeLines(text))
	text = regexp.MustCompile(`\{\$([A-Za-z_][A-Za-z0-9_]*)(?::([^{}\s]*))?\}`).ReplaceAllStringFunc(text, func(v string) string {
		variable, value, _ := strings.Cut(v[2:len(v)-1], ":")
		return draft.Environment(variable, value)
	})
	tokens, err := lex(name, text)
	if err != nil {
		return nil, err
	}
	inner := &parser{name: name, tokens: tokens}
	list, err := inner.block(0)
	p.config.Unset = append(p.config.Unset, inner.unset...)
	p.lines += inner.lines
	if err == nil && p.lines > maxLines {
		err = fmt.Errorf("%s: more than %d lines", name, maxLines)
	}
	return list, err
}

// wholeLines puts what a variable of the environment holds in the place of a line that is
// nothing but it, as in {$CADDY_EXTRA_CONFIG}: that are lines, too.
func (p *parser) wholeLines(text string) string {
	if p.Files.Env == nil {
		return text
	}
	return regexp.MustCompile(`(?m)^[ \t]*\{\$([A-Za-z_][A-Za-z0-9_]*)(?::([^{}\s]*))?\}[ \t\r]*$`).ReplaceAllStringFunc(text, func(line string) string {
		name, value, _ := strings.Cut(strings.Trim(line, "{$} \t\r"), ":")
		return cmp.Or(p.Files.Env(name), value, line)
	})
}

// heads puts what variables of the environment hold in their place where that says how a
// line is to be read: in the addresses of a site, which may begin with http://, in tls,
// which has an address of electronic mail or a word, and in the paths of matchers.
func (p *parser) heads(text string) string {
	path := regexp.MustCompile(`(?m)^[ \t]*(?:(?:@\S+[ \t]+)?(?:not[ \t]+)?path|handle|handle_path|route|redir|respond|rewrite|reverse_proxy|file_server|php_fastcgi|header|basic_auth|try_files|uri)[ \t]+(?:strip_prefix[ \t]+)?/[^\n]*$`)
	text = path.ReplaceAllStringFunc(text, func(line string) string {
		return regexp.MustCompile(`[ \t]/\S*\{\$[A-Za-z_]\S*`).ReplaceAllStringFunc(line, func(word string) string { return p.held(word, true) })
	})
	head := regexp.MustCompile(`(?m)^[ \t]*(?:tls[ \t].*|[^\s#]*\{\$[A-Za-z_].*\{[ \t\r]*)$`)
	return head.ReplaceAllStringFunc(text, func(line string) string { return p.held(line, false) })
}

// held is a text with what its variables hold; defaults: or hold where they are not set.
func (p *parser) held(text string, defaults bool) string {
	return regexp.MustCompile(`\{\$([A-Za-z_][A-Za-z0-9_]*)(?::([^{}\s]*))?\}`).ReplaceAllStringFunc(text, func(v string) string {
		name, value, has := strings.Cut(v[2:len(v)-1], ":")
		if p.Files.Env != nil && p.Files.Env(name) != "" {
			return p.Files.Env(name)
		}
		if has && (defaults || strings.Contains(value, "://")) {
			return value
		}
		return v
	})
}

// block reads lines up to the brace that closes, or the end of the file. Where
// a head ends in a comma, the next line belongs to it.
func (p *parser) block(depth int) ([]*draft.Directive, error) {
	var list []*draft.Directive
	if depth > maxDepth*2 {
		return nil, fmt.Errorf("%s:%d: too many blocks in one another", p.name, p.tokens[p.at-1].line)
	}
	for p.at < len(p.tokens) {
		t := p.tokens[p.at]
		if t.text == "}" && !t.quoted {
			if depth == 0 {
				return nil, fmt.Errorf("%s:%d: a brace closes what no other has opened", p.name, t.line)
			}
			p.at++
			return list, nil
		}
		d := &draft.Directive{Name: t.text, File: p.name, Line: t.line}
		p.lines++
		if t.text != "{" || t.quoted {
			p.at++
		} else {
			d.Name = ""
		}
		for p.at < len(p.tokens) {
			t := p.tokens[p.at]
			goesOn := depth == 0 && strings.HasSuffix(lastWord(d), ",")
			if t.first && !goesOn && (d.Name != "" || t.text != "{") {
				break
			}
			p.at++
			ends := p.at == len(p.tokens) || p.tokens[p.at].first
			if t.text == "}" && !t.quoted && depth > 0 && ends {
				p.at-- // a block on one line
				break
			}
			if t.text == "{" && !t.quoted && (ends || p.oneLine()) {
				block, err := p.block(depth + 1)
				if err != nil {
					return nil, err
				}
				d.Opens, d.Block = true, block
				break
			}
			d.Args = append(d.Args, t.text)
		}
		if draft.HasEnvironment(d.Name) && len(d.Args) == 0 && !d.Opens && depth+len(list) > 0 { // the first may be the address of a site
			p.unset = append(p.unset, d)
			continue
		}
		list = append(list, d)
	}
	if depth > 0 {
		return nil, fmt.Errorf("%s: a block is not closed", p.name)
	}
	return list, nil
}

// oneLine reports whether a brace in the middle of a line closes at its end.
func (p *parser) oneLine() bool {
	for i := p.at; i < len(p.tokens) && !p.tokens[i].first; i++ {
		if p.tokens[i].text == "}" && !p.tokens[i].quoted {
			return i+1 == len(p.tokens) || p.tokens[i+1].first
		}
	}
	return false
}

func lastWord(d *draft.Directive) string {
	if len(d.Args) == 0 {
		return d.Name
	}
	return d.Args[len(d.Args)-1]
}

// top sorts the blocks of a file: options, snippets, sites.
func (p *parser) top(list []*draft.Directive, depth int) error {
	for i, d := range list {
		switch {
		case d.Name == "" && d.Opens && len(d.Args) == 0:
			if site := func(o *draft.Directive) bool { return !snippet(o) }; p.config.Global != nil || slices.ContainsFunc(list[:i], site) {
				return fmt.Errorf("%s: the options without a name are the first block of a Caddyfile", d.At())
			}
			block, err := p.expand(d.Block, depth)
			if err != nil {
				return err
			}
			d.Block = block
			p.config.Global = d
		case snippet(d):
			p.snippets[strings.Trim(d.Name, "&()")] = d
			p.config.Snippets = append(p.config.Snippets, d)
		case d.Name == "import":
			if err := p.importTop(d, depth); err != nil {
				return err
			}
		case !d.Opens: // one site, without braces
			site := &draft.Directive{Args: addresses(d), Opens: true, File: d.File, Line: d.Line}
			block, err := p.expand(list[i+1:], depth)
			if err != nil {
				return err
			}
			site.Block = block
			p.config.Sites = append(p.config.Sites, site)
			return nil
		default:
			block, err := p.expand(d.Block, depth)
			if err != nil {
				return err
			}
			p.config.Sites = append(p.config.Sites, &draft.Directive{Args: addresses(d), Block: block, Opens: true, File: d.File, Line: d.Line})
		}
	}
	return nil
}

func snippet(d *draft.Directive) bool {
	name := strings.TrimPrefix(d.Name, "&")
	return d.Opens && len(d.Args) == 0 && len(name) > 2 && name[0] == '(' && strings.HasSuffix(name, ")")
}

// addresses are those of a site's head.
func addresses(d *draft.Directive) (list []string) {
	for _, word := range append([]string{d.Name}, d.Args...) {
		for a := range strings.SplitSeq(word, ",") {
			if a = strings.TrimSpace(a); a != "" {
				list = append(list, a)
			}
		}
	}
	return list
}

// importTop puts in what is imported outside of sites.
func (p *parser) importTop(d *draft.Directive, depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("%s: imports go in a circle", d.At())
	}
	if s := p.snippets[d.Arg(0)]; s != nil {
		return p.top(substitute(s.Block, d), depth+1)
	}
	names, err := p.names(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.file(name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// names are the files that an import is for.
func (p *parser) names(d *draft.Directive) ([]string, error) {
	pattern := d.Arg(0)
	if pattern == "" {
		return nil, fmt.Errorf("%s: import needs the name of a snippet or file", d.At())
	}
	names, err := p.Names(pattern, filepath.Dir(d.File))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.At(), err)
	}
	if len(names) == 1 && !strings.ContainsAny(pattern, "*?[") {
		if found, err := p.Files.Glob(names[0]); err != nil || len(found) == 0 {
			return nil, fmt.Errorf("%s: there is neither a snippet nor a file %s", d.At(), d.Arg(0))
		}
	}
	return names, nil
}

// expand replaces imports by what they stand for.
func (p *parser) expand(list []*draft.Directive, depth int) ([]*draft.Directive, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: imports go in a circle", list[0].At())
	}
	var out []*draft.Directive
	for _, d := range list {
		if d.Name != "import" {
			block, err := p.expand(d.Block, depth)
			if err != nil {
				return nil, err
			}
			d.Block = block
			out = append(out, d)
			continue
		}
		inner, err := p.imported(d)
		if err != nil {
			return nil, err
		}
		if p.lines += len(inner); p.lines > maxLines {
			return nil, fmt.Errorf("%s: more than %d lines", d.At(), maxLines)
		}
		if len(inner) == 0 {
			continue
		}
		if inner, err = p.expand(inner, depth+1); err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}

func (p *parser) imported(d *draft.Directive) ([]*draft.Directive, error) {
	if s := p.snippets[d.Arg(0)]; s != nil {
		return substitute(s.Block, d), nil
	}
	names, err := p.names(d)
	if err != nil {
		return nil, err
	}
	var out []*draft.Directive
	for _, name := range names {
		list, err := p.read(name)
		if err != nil {
			return nil, err
		}
		out = append(out, substitute(list, d)...)
	}
	return out, nil
}

// substitute copies lines with the arguments and the block of an import.
func substitute(list []*draft.Directive, by *draft.Directive) []*draft.Directive {
	var args []string
	if len(by.Args) > 0 {
		args = by.Args[1:]
	}
	one := regexp.MustCompile(`\{args(?:\[(\d+)\]|\.(\d+))\}`)
	several := regexp.MustCompile(`^\{args\[(\d*):(\d*)\]\}$`)
	fill := func(s string) string {
		return one.ReplaceAllStringFunc(s, func(m string) string {
			groups := one.FindStringSubmatch(m)
			i, err := strconv.Atoi(groups[1] + groups[2])
			if err != nil || i >= len(args) {
				return m
			}
			return args[i]
		})
	}
	out := make([]*draft.Directive, 0, len(list))
	for _, d := range list {
		if d.Name == "{block}" {
			for _, b := range by.Block {
				out = append(out, copyOf(b))
			}
			continue
		}
		c := &draft.Directive{Name: fill(d.Name), Opens: d.Opens, File: d.File, Line: d.Line, Block: substitute(d.Block, by)}
		for _, a := range d.Args {
			m := several.FindStringSubmatch(a)
			if m == nil {
				c.Args = append(c.Args, fill(a))
				continue
			}
			from, to := 0, len(args)
			if n, err := strconv.Atoi(m[1]); err == nil {
				from = min(n, len(args))
			}
			if n, err := strconv.Atoi(m[2]); err == nil {
				to = max(from, min(n, len(args)))
			}
			c.Args = append(c.Args, args[from:to]...)
		}
		out = append(out, c)
	}
	return out
}

func copyOf(d *draft.Directive) *draft.Directive {
	c := *d
	c.Args, c.Block = slices.Clone(d.Args), nil
	for _, b := range d.Block {
		c.Block = append(c.Block, copyOf(b))
	}
	return &c
}
