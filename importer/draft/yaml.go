// Package draft is a config of Millrace that is being written from somebody
// else's: the files that are read, its YAML, with comments, and what became of each
// line of the original.
package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Node is a value of YAML: a text, a list or a map.
type Node struct {
	kind  kind
	text  string // of a scalar, ready to be written
	plain string // of a text, as it was
	items []item
	flow  bool // on one line

	anchor string // its name, for others that are the same
	alias  bool   // it is the one with that name
}

type kind int

const (
	scalar kind = iota
	list
	mapping
)

// item is an entry of a list, or of a map by its key.
type item struct {
	key     string
	value   *Node
	comment []string // lines above it
}

// Text is a text. A dollar sign is itself; variables of the environment are those of
// [Environment].
func Text(s string) *Node {
	n := &Node{text: quote(variables().Replace(s)), plain: s}
	return n
}

// What stands around the name of a variable of the environment in a text: no config has
// these characters, which are of a private use area of Unicode.
const variableOpens, variableIs, variableCloses = "\ue000", "\ue001", "\ue002"

// Environment is a variable of the environment in a text, with a value that it has where it
// is not set.
func Environment(name, value string) string {
	if value != "" {
		value = variableIs + value
	}
	return variableOpens + name + value + variableCloses
}

// HasEnvironment reports whether a text has such variables.
func HasEnvironment(s string) bool { return strings.Contains(s, variableOpens) }

// Held is a text in which the variables that have a value where they are not set have that.
func Held(s string) string {
	return regexp.MustCompile(variableOpens+"[^"+variableIs+variableCloses+"]*"+variableIs+"([^"+variableCloses+"]*)"+variableCloses).ReplaceAllString(s, "$1")
}

func variables() *strings.Replacer {
	return strings.NewReplacer("$", "$$", variableOpens, "${", variableIs, ":-", variableCloses, "}")
}

// Shown is a text as people read it.
func Shown(s string) string {
	return strings.NewReplacer(variableOpens, "{$", variableIs, ":", variableCloses, "}").Replace(s)
}

// Verbatim is a text for a key in which dollar signs are themselves.
func Verbatim(s string) *Node { return &Node{text: quote(Shown(s)), plain: s} }

// Number is a number, or true and false, or a size.
func Number(v any) *Node { return &Node{text: fmt.Sprint(v), plain: fmt.Sprint(v)} }

// Texts is a list of texts on one line.
func Texts(texts ...string) *Node {
	l := List()
	for _, t := range texts {
		l.Add(Text(t))
	}
	return l.Flow()
}

// OneOrMore is a text, or a list of them where there are several.
func OneOrMore(texts ...string) *Node {
	if len(texts) == 1 {
		return Text(texts[0])
	}
	return Texts(texts...)
}

// List is an empty list.
func List() *Node { return &Node{kind: list} }

// Map is an empty map.
func Map() *Node { return &Node{kind: mapping} }

// Flow writes the node on one line, as long as nothing in it has a comment.
func (n *Node) Flow() *Node {
	n.flow = true
	return n
}

// Len is the number of entries.
func (n *Node) Len() int {
	if n == nil {
		return 0
	}
	return len(n.items)
}

// Add appends to a list.
func (n *Node) Add(value *Node, comment ...string) {
	n.items = append(n.items, item{value: value, comment: comment})
}

// Set sets a key of a map; one that is there keeps its place.
func (n *Node) Set(key string, value *Node, comment ...string) *Node {
	for i := range n.items {
		if n.items[i].key == key {
			n.items[i].value = value
			n.items[i].comment = append(n.items[i].comment, comment...)
			return n
		}
	}
	n.items = append(n.items, item{key, value, comment})
	return n
}

// Fill is Set for a value that is not empty.
func (n *Node) Fill(key string, value *Node) *Node {
	if value.Len() > 0 {
		n.Set(key, value)
	}
	return n
}

// FillTexts is Set for a list that is not empty.
func (n *Node) FillTexts(key string, list []string) *Node { return n.Fill(key, Texts(list...)) }

// Put is Set, in front of all other keys.
func (n *Node) Put(key string, value *Node) {
	n.items = append([]item{{key: key, value: value}}, n.items...)
}

// Get is the value of a key, nil if there is none.
func (n *Node) Get(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.items {
		if n.items[i].key == key {
			return n.items[i].value
		}
	}
	return nil
}

// Clone is a copy that shares nothing.
func (n *Node) Clone() *Node {
	c := *n
	c.items = nil
	for _, i := range n.items {
		c.items = append(c.items, item{i.key, i.value.Clone(), append([]string(nil), i.comment...)})
	}
	return &c
}

// String is the node as YAML.
func (n *Node) String() string {
	if n.kind == scalar {
		return n.text
	}
	var b strings.Builder
	n.block(&b, 0)
	return b.String()
}

// oneLine is how long a line in flow style may be.
const oneLine = 110

func (n *Node) block(b *strings.Builder, depth int) {
	indent := strings.Repeat("  ", depth)
	for _, i := range n.items {
		for _, line := range i.comment {
			b.WriteString(indent + "# " + oneLineOf(line) + "\n")
		}
		head := indent + "-"
		if n.kind == mapping {
			head = indent + quote(i.key) + ":"
		}
		if line, ok := i.value.inline(); ok && (i.value.kind == scalar || i.value.alias || i.value.Len() == 0 || i.value.flow && len(head)+len(line) < oneLine) {
			b.WriteString(head + " " + line + "\n")
			continue
		}
		b.WriteString(i.value.named(head))
		if n.kind == mapping || i.value.kind == list || i.value.anchor != "" {
			b.WriteString("\n")
			i.value.block(b, depth+1)
			continue
		}
		// A map in a list begins on the line of the dash.
		var inner strings.Builder
		i.value.block(&inner, depth+1)
		text := inner.String()
		if strings.HasPrefix(strings.TrimLeft(text, " "), "#") {
			b.WriteString("\n" + text)
			continue
		}
		b.WriteString(" " + strings.TrimLeft(text, " "))
	}
}

// inline is the node on one line; false where a comment forbids it.
func (n *Node) inline() (string, bool) {
	switch {
	case n.alias:
		return "*" + n.anchor, true
	case n.kind == scalar:
		return n.text, true
	}
	parts := make([]string, 0, len(n.items))
	for _, i := range n.items {
		text, ok := i.value.inline()
		if !ok || len(i.comment) > 0 {
			return "", false
		}
		if n.kind == mapping {
			text = quote(i.key) + ": " + text
		}
		parts = append(parts, text)
	}
	inner := strings.Join(parts, ", ")
	if n.kind == mapping {
		return n.named("{" + inner + "}"), true
	}
	return n.named("[" + inner + "]"), true
}

// quote writes a text so that YAML reads it as just that.
func quote(s string) string {
	plain := regexp.MustCompile(`^[A-Za-z/_.][A-Za-z0-9/_.=+;-]*(:[A-Za-z0-9/_.=+-]+)*$|^\d+(ms|s|m|h|B|KiB|MiB|GiB)$`)
	word := strings.ToLower(s)
	switch {
	case word == "true", word == "false", word == "null", word == "yes", word == "no", word == "on", word == "off", word == "y", word == "n", word == ".nan", word == ".inf":
	case plain.MatchString(s) && !strings.HasPrefix(s, ".") || s == "." || strings.HasPrefix(s, "./") && plain.MatchString(s):
		return s
	}
	if strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0xfffd || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff
	}) {
		return strconv.QuoteToASCII(s) // YAML's double quotes know the same escapes
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// oneLineOf is a text without line ends, for a comment.
func oneLineOf(s string) string {
	s = Shown(s)
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
			return ' '
		}
		return r
	}, s)
}

// Remove removes a key.
func (n *Node) Remove(key string) {
	n.items = slices.DeleteFunc(n.items, func(i item) bool { return i.key == key })
}

// CopyTo sets all keys of the map in another, but some.
func (n *Node) CopyTo(to *Node, but ...string) {
	for _, i := range n.items {
		if !slices.Contains(but, i.key) {
			to.Set(i.key, i.value, i.comment...)
		}
	}
}

// Each goes through the entries.
func (n *Node) Each(visit func(value *Node, comment []string)) {
	if n == nil {
		return
	}
	for _, i := range n.items {
		visit(i.value, i.comment)
	}
}

// Keys are those of a map, in its order.
func (n *Node) Keys() (keys []string) {
	for _, i := range n.items {
		keys = append(keys, i.key)
	}
	return keys
}

// Plain is a text as it was, without quotes.
func (n *Node) Plain() string {
	if n == nil {
		return ""
	}
	return n.plain
}

// Text is the node as YAML; of nil, none.
func (n *Node) Text() string {
	if n == nil {
		return ""
	}
	return n.String()
}

// On adds the entries of the map to those of another, and returns that.
func (n *Node) On(to *Node) *Node {
	n.CopyTo(to)
	return to
}

// Entry is an entry of a list or a map.
type Entry struct {
	in *Node
	at int
}

// Key is that of a map, "" in a list.
func (e Entry) Key() string { return e.in.items[e.at].key }

// Value is its value.
func (e Entry) Value() *Node { return e.in.items[e.at].value }

// Comment is the first line above it, "" if there is none.
func (e Entry) Comment() string {
	return strings.Join(e.in.items[e.at].comment[:min(1, len(e.in.items[e.at].comment))], "")
}

// Set gives it another value.
func (e Entry) Set(value *Node) { e.in.items[e.at].value = value }

// Remove takes it out.
func (e Entry) Remove() { e.in.items = slices.Delete(e.in.items, e.at, e.at+1) }

// EntriesAt are the entries that a line of [Node.String] is in, from 0, the outermost first.
func (n *Node) EntriesAt(line int) []Entry { return n.entriesAt(line, 0) }

func (n *Node) entriesAt(line, depth int) []Entry {
	for i := range n.items {
		one := &Node{kind: n.kind, items: n.items[i : i+1]}
		var text strings.Builder
		one.block(&text, depth)
		if lines := strings.Count(text.String(), "\n"); line >= lines {
			line -= lines
			continue
		}
		value := n.items[i].value
		inside := line - len(n.items[i].comment)
		if n.kind == mapping || value.kind == list || len(value.items) > 0 && len(value.items[0].comment) > 0 {
			inside-- // the key, or the dash, has a line of its own
		}
		found := []Entry{{n, i}}
		if inside < 0 {
			return found
		}
		return append(found, value.entriesAt(inside, depth+1)...)
	}
	return nil
}
