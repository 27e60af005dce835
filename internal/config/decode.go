package config

import (
	"encoding"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxNodes bounds the work of decoding: aliases of aliases would make a short
// file mean an endless one.
const maxNodes = 2 * maxTokens

// expandTag marks a field whose dollar signs are themselves: hashes and regular
// expressions are full of them.
const expandTag = "expand"

// decoder puts a document into Go values by reflection. It goes on after a
// finding, so that one run shows all.
type decoder struct {
	doc      *document
	snippets map[string]snippet
	using    []string        // snippets that are being put in
	parts    []part          // files that are included
	treeText int             // bytes of their text
	included map[string]bool // their names
	includes []string        // what the config names for that
	nodes    int
	env      func(string) (string, bool)
	// verbatim: values mean what they say, a dollar sign included.
	verbatim bool
}

func newDecoder(doc *document) *decoder {
	return &decoder{doc: doc, snippets: map[string]snippet{}, included: map[string]bool{}, env: os.LookupEnv}
}

// document decodes a whole file into the struct that into points at.
func (d *decoder) document(body ast.Node, into any) {
	if d.doc.now.anchors == nil {
		d.collectAnchors(body)
	}
	if _, ok := body.(*ast.MappingNode); !ok {
		if body = d.unwrap(body); body == nil {
			return
		}
		if _, ok := body.(*ast.MappingNode); !ok {
			d.doc.at(d.doc.place(body), "a config starts with a key such as \"sites:\", not with "+kindOf(body), "`millrace init -` prints one to start from")
			d.doc.broken = true
			return
		}
	}
	d.value(body, reflect.ValueOf(into).Elem(), "", 0)
}

func (d *decoder) collectAnchors(body ast.Node) {
	d.doc.now.anchors = map[string]ast.Node{}
	ast.Walk(anchorCollector(d.doc.now.anchors), body)
}

// anchorCollector notes every &name of a document.
type anchorCollector map[string]ast.Node

// Visit implements [ast.Visitor].
func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		c[a.Name.GetToken().Value] = a.Value
	}
	return c
}

// unwrap follows anchors and aliases to the node that holds the value. It is
// nil where there is none; then that has been reported.
func (d *decoder) unwrap(n ast.Node) ast.Node {
	for hops := 0; ; hops++ {
		d.nodes++
		if d.nodes > maxNodes || hops > maxDepth {
			if !d.doc.broken {
				d.doc.found = nil // the same over and over
				d.doc.at(d.doc.place(n), "the aliases (*name) of this file make it endless", "")
				d.doc.broken = true
			}
			return nil
		}
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.AliasNode:
			name := t.Value.GetToken().Value
			target, ok := d.doc.now.anchors[name]
			if !ok {
				d.doc.at(d.doc.place(t.Value), fmt.Sprintf("nothing is named &%s", name), meant(name, sortedKeys(d.doc.now.anchors)))
				return nil
			}
			n = target
		case *ast.TagNode:
			d.doc.at(d.doc.place(t), fmt.Sprintf("the tag %s has no place in a config", t.Start.Value), "leave it out")
			return nil
		default:
			return n
		}
		if n == nil {
			return nil
		}
	}
}

// value decodes one node into v. path is what v is called in the config.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, depth int) {
	if n == nil {
		return
	}
	at := d.doc.place(n)
	d.doc.values[path] = at
	if n = d.unwrap(n); n == nil {
		d.doc.unread[path] = true
		return
	}
	if depth > maxDepth {
		d.doc.at(at, fmt.Sprintf("nested more than %d levels deep", maxDepth), "")
		return
	}
	_, null := n.(*ast.NullNode)
	if v.Kind() == reflect.Pointer && (!null || v.Type().Elem().Kind() == reflect.Struct) {
		// A job without options ("deny:") is that job with its defaults; a
		// value that is not there ("ttl:") is none at all.
		if v.IsNil() || null { // else a snippet has set it, and this is put on top
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if null {
		return
	}
	if text, plain, ok := scalar(n); ok && takesText(v) {
		d.text(v, written{text: text, plain: plain, path: path, at: at})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path, depth)
	case reflect.Map:
		d.mapping(n, v, path, depth)
	case reflect.Slice:
		d.list(n, v, path, depth)
	default:
		d.mismatch(n, v, path, at)
	}
}

// structure decodes a map into the fields that its keys name.
func (d *decoder) structure(n ast.Node, v reflect.Value, path string, depth int) {
	fields := d.doc.fieldsOf(v.Type())
	if named(fields, useKey).index != nil {
		d.use(n, v, path, depth)
	}
	d.pairs(n, v, path, func(key string, at place, value ast.Node) {
		if path == "" && v.Type() == reflect.TypeFor[Config]() && slices.Contains(gathered, key) {
			return // was read before
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			where := ""
			if path != "" {
				where = " in " + lastKey(path)
			}
			hint, meant := keyHint(key, fields)
			d.doc.at(at, fmt.Sprintf("unknown key %q%s", key, where), hint)
			d.doc.unread[path+unknownKey], d.doc.unread[join(path, meant)] = true, true
			return
		}
		was := d.verbatim
		d.verbatim = was || v.Type().FieldByIndex(fields[i].index).Tag.Get(expandTag) == "no"
		d.value(value, v.FieldByIndex(fields[i].index), join(path, key), depth+1)
		d.verbatim = was
	})
}

// keyHint names the key that was meant, or all there are.
func keyHint(key string, fields []field) (hint, meant string) {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	if len(names) == 0 {
		return "it has none: write {}", unknownKey
	}
	if hint = foreign[strings.ToLower(key)]; hint != "" {
		return hint, unknownKey
	}
	if meant = Nearest(key, names); meant != "" {
		return fmt.Sprintf("did you mean %q?", meant), meant
	}
	return "known here: " + strings.Join(names, ", "), unknownKey
}

// mapping decodes a map with keys of the user's choice.
func (d *decoder) mapping(n ast.Node, v reflect.Value, path string, depth int) {
	out := reflect.MakeMap(v.Type())
	for it := v.MapRange(); it.Next(); { // of a snippet
		out.SetMapIndex(it.Key(), it.Value())
	}
	d.pairs(n, v, path, func(key string, at place, value ast.Node) {
		element := reflect.New(v.Type().Elem()).Elem()
		if before := out.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())); before.IsValid() {
			element.Set(before)
		}
		inner := path + "[" + key + "]"
		d.doc.keys[inner] = at
		d.value(value, element, inner, depth+1)
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), element)
	})
	v.Set(out)
}

// pairs calls f for each key of a map, once.
func (d *decoder) pairs(n ast.Node, v reflect.Value, path string, f func(key string, at place, value ast.Node)) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.mismatch(n, v, path, d.doc.place(n))
		return
	}
	lines := map[string]int{}
	for _, pair := range values {
		key, at, ok := d.keyText(pair.Key)
		if !ok {
			d.doc.unread[path+unknownKey] = true
			continue
		}
		if line, twice := lines[key]; twice {
			d.doc.at(at, fmt.Sprintf("the key %q stands here a second time", key), fmt.Sprintf("first in line %d", line))
			continue
		}
		lines[key] = at.line
		if v.Kind() == reflect.Struct {
			d.doc.keys[join(path, key)] = at
		}
		f(key, at, pair.Value)
	}
}

// keyText is a map's key as it was written.
func (d *decoder) keyText(n ast.Node) (string, place, bool) {
	if k, ok := n.(*ast.MappingKeyNode); ok {
		n = k.Value
	}
	at := d.doc.place(n)
	if _, merge := n.(*ast.MergeKeyNode); merge {
		d.doc.at(at, "\"<<\" cannot merge maps here", "an alias (*name) can stand for a whole value")
		return "", at, false
	}
	text, _, ok := scalar(n)
	if !ok {
		d.doc.at(at, "a key is plain text, not "+kindOf(n), "")
	}
	return text, at, ok
}

// list decodes a sequence, or one value where a list of text is wanted.
func (d *decoder) list(n ast.Node, v reflect.Value, path string, depth int) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		if _, _, one := scalar(n); one && v.Type().Elem().Kind() == reflect.String {
			out := reflect.MakeSlice(v.Type(), 1, 1)
			d.value(n, out.Index(0), path+"[0]", depth+1)
			v.Set(out)
			return
		}
		d.mismatch(n, v, path, d.doc.place(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(sequence.Values), len(sequence.Values))
	for i, one := range sequence.Values {
		d.value(one, out.Index(i), path+"["+strconv.Itoa(i)+"]", depth+1)
	}
	v.Set(out)
}

// mismatch reports a node of the wrong kind.
func (d *decoder) mismatch(n ast.Node, v reflect.Value, path string, at place) {
	name := "this"
	if path != "" {
		name = strconv.Quote(lastKey(path))
	}
	d.doc.unread[path] = true
	message := fmt.Sprintf("%s must be %s, not %s", name, wanted(v.Type()), kindOf(n))
	hint := ""
	if s, _, ok := scalar(n); ok && v.Kind() == reflect.Struct {
		switch fields := d.doc.fieldsOf(v.Type()); {
		case len(fields) == 0:
			hint = "it has no options: write {}"
		case s != "":
			hint = fmt.Sprintf("for example {%s: …}", fields[0].name)
		}
	}
	if isMap(n) && v.Kind() == reflect.String && at.line <= len(d.doc.now.lines) && strings.Contains(d.doc.now.lines[at.line-1], "://") {
		hint = "inside [ ], an address needs quotes: \"http://…\""
	}
	d.doc.at(at, message, hint)
}

func isMap(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// scalar is the text of a node that is one value. plain says that it was
// written without quotes.
func scalar(n ast.Node) (text string, plain, ok bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, s.Token.Type != token.DoubleQuoteType && s.Token.Type != token.SingleQuoteType, true
	case *ast.LiteralNode:
		return s.Value.Value, false, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		return n.GetToken().Value, true, true
	}
	return "", false, false
}

// kindOf says what a node is, for "must be …, not …".
func kindOf(n ast.Node) string {
	switch s := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode:
		const shown = 30
		if r := []rune(s.Value); len(r) > shown {
			return strconv.Quote(string(r[:shown]) + "…")
		}
		return strconv.Quote(s.Value)
	case *ast.LiteralNode:
		return "a block of text"
	}
	return "this"
}

// field is one key that a struct has.
type field struct {
	name  string
	index []int
}

// fieldsOf lists the keys of a struct in its order; "-" leaves a field out,
// ",inline" takes an embedded struct's keys in.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case options == "inline":
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append(slices.Clone(f.Index), inner.index...)
				out = append(out, inner)
			}
		case name != "":
			out = append(out, field{name, f.Index})
		default:
			out = append(out, field{strings.ToLower(f.Name), f.Index})
		}
	}
	return out
}

// fieldOf is the field of a struct that a key names, the zero field if none.
func fieldOf(t reflect.Type, key string) field {
	return named(fieldsOf(t), key)
}

// named is fieldOf among fields.
func named(fields []field, key string) field {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.name == key }); i >= 0 {
		return fields[i]
	}
	return field{}
}

// fieldsOf is the function of that name, called once for each type.
func (d *document) fieldsOf(t reflect.Type) []field {
	fields, ok := d.fields[t]
	if !ok {
		fields = fieldsOf(t)
		d.fields[t] = fields
	}
	return fields
}

// takesText reports whether v is read from one value.
func takesText(v reflect.Value) bool {
	if v.CanAddr() {
		if _, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return true
		}
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice:
		return false
	}
	return true
}

// wanted says what a key takes.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration like 10s"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && t.Kind() == reflect.Int64:
		return "a size like 64MiB"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a map, or one text"
		}
		return "a map"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "text or a list of texts"
		}
		return "a list"
	}
	return "text"
}

// join adds a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// lastKey is the end of a path as a person would call it: static, /old.
func lastKey(path string) string {
	if strings.HasSuffix(path, "]") {
		open := strings.LastIndexByte(path, '[')
		inner := path[max(0, open)+1 : len(path)-1]
		if _, err := strconv.Atoi(inner); err == nil && open > 0 {
			return lastKey(path[:open]) // an element of a list: the list's name
		}
		return inner
	}
	return path[strings.LastIndexByte(path, '.')+1:]
}
