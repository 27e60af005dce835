package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"millrace/internal/observe/redact"
)

// Bounds of a config. The parser recurses, and its time grows with the square of
// a map's size, so it only gets what is within them.
const (
	maxBytes  = 1 << 20 // some ten thousand routes
	maxTokens = 100_000 // half a second of parsing for a file of routes
	maxDepth  = 32      // the deepest key of a config has 7
)

// splitHint is what to do with a config of very many sites.
const splitHint = "put the sites into files of their own, one or some hundred in each, and name them: include: [sites/*.yaml]"

// place is where something was written.
type place struct {
	line, column, width int
	from                string  // a flag, instead of a line
	in                  *source // the file; nil is the config itself
}

// source is one file of a config.
type source struct {
	name    string
	lines   []string
	shown   []string // lines with their secrets masked, made when one is to be shown
	anchors map[string]ast.Node
}

// unknownKey is added to a map's path in unread when it has an unknown key.
const unknownKey = ".?"

// document is a config file that is being read, with the mistakes found so far.
type document struct {
	source         // the config itself
	now    *source // what is being decoded: it, or a file that it includes
	broken bool    // not YAML: nothing that follows from it is worth saying

	// Where each value and each key was written, by its path in the config
	// such as sites[0].routes[/old].redirect.to.
	values, keys map[string]place

	// unread are the paths whose value could not be read, or whose key was
	// mistyped: what else is wrong with them is not worth a second finding.
	unread map[string]bool

	fields map[reflect.Type][]field // what fieldsOf has said
	found  Findings
}

func newDocument(name string) *document {
	d := &document{source: source{name: name}, values: map[string]place{}, keys: map[string]place{}, unread: map[string]bool{}, fields: map[reflect.Type][]field{}}
	d.now = &d.source
	return d
}

// readAll reads a config, and one byte more than it may have so that parse
// sees that it is too large.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxBytes+1)) }

// at adds a finding, unless the document is broken already.
func (d *document) at(p place, message, hint string) {
	if d.broken {
		return
	}
	f := Finding{From: p.from, Message: redact.Text(message), Hint: redact.Text(hint)}
	if p.from == "" && p.line > 0 {
		in := p.in
		if in == nil {
			in = &d.source
		}
		f.File, f.Line, f.Column, f.Width = in.name, p.line, max(1, p.column), p.width
		if p.line <= len(in.lines) {
			if in.shown == nil {
				in.shown = withoutSecrets(in.lines)
			}
			f.Source = in.shown[p.line-1]
		}
	}
	d.found = append(d.found, f)
}

// line says in which line something is, and of which file if that is not the config itself.
func (d *document) line(p place) string {
	if p.in == nil || p.in == &d.source || p.in.name == d.name {
		return fmt.Sprintf("in line %d", p.line)
	}
	return fmt.Sprintf("in %s, line %d", p.in.name, p.line)
}

// value is where the value at path was written, or else the nearest value that contains it.
func (d *document) value(path string) place { return d.lookup(d.values, path) }

// key is where the key at path was written, or else the nearest key above it.
func (d *document) key(path string) place { return d.lookup(d.keys, path) }

func (d *document) lookup(in map[string]place, path string) place {
	for path != "" {
		if p, ok := in[path]; ok {
			return p
		}
		if p, ok := d.keys[path]; ok {
			return p
		}
		// A route may hold dots: its brackets are one step.
		if strings.HasSuffix(path, "]") {
			path = path[:max(0, strings.LastIndexByte(path, '['))]
		} else {
			path = path[:max(0, strings.LastIndexByte(path, '.'))]
		}
	}
	if d.name == "" {
		return place{}
	}
	return place{line: 1, column: 1, width: 1}
}

// parse reads YAML. The body is nil when there is none or it is broken; then
// the document says why.
func parse(name string, data []byte) (*document, ast.Node) {
	doc := newDocument(name)
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	doc.lines = strings.Split(string(data), "\n")
	refuse := func(p place, message, hint string) (*document, ast.Node) {
		doc.at(p, message, hint)
		doc.broken = true
		return doc, nil
	}
	if len(data) > maxBytes {
		doc.lines, doc.shown = nil, nil
		return refuse(place{line: 1, column: 1}, fmt.Sprintf("the file is larger than %d MiB, too large for a config", maxBytes>>20), splitHint)
	}
	if i := notText(data); i >= 0 {
		p := place{line: 1 + bytes.Count(data[:i], []byte("\n")), width: 1}
		p.column = 1 + utf8.RuneCount(data[bytes.LastIndexByte(data[:i], '\n')+1:i])
		return refuse(p, fmt.Sprintf("byte 0x%02x does not belong into a text file", data[i]), "save the file as UTF-8 text")
	}
	tokens := lexer.Tokenize(string(data))
	if p, why := tooDeep(tokens); why != "" {
		hint := ""
		if len(tokens) > maxTokens {
			hint = splitHint
		}
		return refuse(p, why, hint)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // the decoder finds those, all of them
	if err != nil {
		p, message := doc.syntax(err)
		return refuse(p, message, doc.syntaxHint(p, message))
	}
	var body ast.Node
	for _, part := range file.Docs {
		if part.Body == nil || part.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return refuse(doc.place(part.Body), "a second YAML document: a config is one", "remove the line ---")
		}
		body = part.Body
	}
	return doc, body
}

// notText is the offset of the first byte that no text file has, or -1.
func notText(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' && r != '\t' && r != '\n' && r != '\r' {
			return i
		}
		i += n
	}
	return -1
}

// tooDeep says why the tokens are too much for the parser, which recurses; "" if they are
// not.
func tooDeep(tokens token.Tokens) (p place, why string) {
	flow, onLine, line := 0, 0, 0
	for i, t := range tokens {
		p = place{line: t.Position.Line, column: t.Position.Column, width: 1}
		if i == maxTokens {
			return p, fmt.Sprintf("the file has more than %d words and signs, too many for a config", maxTokens)
		}
		if t.Position.Line != line {
			line, onLine = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
			continue
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			onLine++ // "- - - -" nests as well
		case token.CollectEntryType:
			onLine = 0
		default:
			continue
		}
		if flow > maxDepth || onLine > maxDepth {
			return p, fmt.Sprintf("nested more than %d levels deep", maxDepth)
		}
	}
	return place{}, ""
}

// syntax turns a parser's error into a finding.
func (d *document) syntax(err error) (place, string) {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return place{line: 1, column: 1}, "this is not YAML: " + err.Error()
	}
	t := at.GetToken()
	message, ok := syntaxMessages[at.GetMessage()]
	if !ok {
		message = at.GetMessage()
	}
	return place{line: t.Position.Line, column: t.Position.Column, width: 1}, message
}

// syntaxMessages are the parser's most common errors in plain words.
var syntaxMessages = map[string]string{
	"value is not allowed in this context":                   "this does not fit what stands before it",
	"mapping value is not allowed in this context":           "a key inside a value",
	"unexpected key name":                                    "a key without its \":\"",
	"non-map value is specified":                             "a key is expected here, with \":\" behind it",
	"found character '\t' that cannot start any token":       "a tab: YAML indents with spaces",
	"',' or ']' must be specified":                           "the list that was opened with \"[\" is not closed",
	"',' or '}' must be specified":                           "the map that was opened with \"{\" is not closed",
	"could not find flow mapping end token '}'":              "the map that is opened here with \"{\" is never closed",
	"sequence end token ']' not found":                       "the list that is opened here with \"[\" is never closed",
	"could not find end character of double-quoted text":     "the text that starts here with \" never ends",
	"could not find end character of single-quoted text":     "the text that starts here with ' never ends",
	"unexpected directive value. document not started":       "a value cannot start with \"%\"",
	"could not find '[' character corresponding to ']'":      "\"]\" without \"[\"",
	"could not find '{' character corresponding to '}'":      "\"}\" without \"{\"",
	"block sequence entries are not allowed in this context": "a list cannot start here",
}

// syntaxHint says how to mend the most common mistakes.
func (d *document) syntaxHint(p place, message string) string {
	if p.line < 1 || p.line > len(d.lines) {
		return ""
	}
	line := d.lines[p.line-1]
	switch {
	case strings.Contains(message, "a tab"):
		return "use two spaces for each level"
	case strings.Contains(line, "${") && strings.ContainsAny(line, "{["):
		return "inside { } and [ ], a variable needs quotes: \"${NAME}\""
	case strings.Contains(line, "[::"):
		return "an IPv6 address needs quotes: \"[::1]:8080\""
	case strings.Contains(message, "inside a value"):
		return "put quotes around the value, or begin the next key on a line of its own, in the column of this one"
	case strings.Contains(message, "does not fit"):
		return "keys of one map start in the same column"
	case strings.Contains(message, "reserved character"), strings.Contains(message, "cannot start with"):
		return "put quotes around the value"
	}
	return ""
}

// place is where a node was written.
func (d *document) place(n ast.Node) place {
	n = first(n)
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return place{line: 1, column: 1, width: 1}
	}
	p := place{line: t.Position.Line, column: max(1, t.Position.Column), width: utf8.RuneCountInString(t.Value), in: d.now}
	switch t.Type {
	case token.DoubleQuoteType, token.SingleQuoteType:
		p.width += 2
	}
	if _, null := n.(*ast.NullNode); null && t.Value == "null" && p.line <= len(d.now.lines) && !strings.Contains(d.now.lines[p.line-1], "null") {
		p.width = 1 // a value that is not there
	}
	return p
}

// first is the node whose token stands first: a map's own is the colon.
func first(n ast.Node) ast.Node {
	for {
		switch m := n.(type) {
		case *ast.MappingNode:
			if m.IsFlowStyle || len(m.Values) == 0 {
				return n
			}
			n = m.Values[0].Key
		case *ast.MappingValueNode:
			n = m.Key
		default:
			return n
		}
	}
}
