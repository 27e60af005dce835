package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"millrace/static/packfile"
)

const (
	includeKey  = "include"
	snippetsKey = "snippets"
	useKey      = "use"
	sitesKey    = "sites"
	tablesKey   = "tables"

	// maxIncluded bounds the files of one config.
	maxIncluded = 20_000
	// maxTreeText bounds the text, in bytes, of the included files that are held as
	// trees of YAML, which take some forty times its memory. The others are parsed again
	// when it is their turn.
	maxTreeText = 128 << 10
)

// gathered are the keys of a config that are read first.
var gathered = []string{includeKey, snippetsKey}

// snippet is a map that can be put in elsewhere.
type snippet struct {
	node ast.Node
	in   *source
	at   place
}

// part is a file that a config includes.
type part struct {
	source *source
	body   ast.Node // nil: beyond maxTreeText, or decoded
	data   []byte
}

// gather reads what the config includes, and takes the snippets of all its files.
func (d *decoder) gather(body ast.Node, dir string) {
	d.collectAnchors(body)
	d.takeSnippets(body)
	n := d.child(body, includeKey)
	if n == nil {
		return
	}
	var names []string
	v := reflect.ValueOf(&names).Elem()
	d.value(n, v, includeKey, 1)
	d.includes = names
	for i, name := range names {
		at := d.doc.value(fmt.Sprintf("%s[%d]", includeKey, i))
		for _, file := range d.matches(name, dir, at) {
			if len(d.parts) == maxIncluded {
				d.doc.at(at, fmt.Sprintf("more than %d files", maxIncluded), "")
				return
			}
			d.include(file, at)
		}
	}
}

// gatherPacked is gather for a packed site: it has the files that were there when
// it was packed.
func (d *decoder) gatherPacked(body ast.Node, files []packfile.ConfigFile) {
	d.collectAnchors(body)
	d.takeSnippets(body)
	for _, f := range files {
		d.add(filepath.FromSlash(f.Name), f.Data)
	}
}

// Included are the files that a config includes, by their names below its folder.
// The config must be free of mistakes.
func Included(name string, data []byte) (files []packfile.ConfigFile, err error) {
	doc, body := parse(name, data)
	if body == nil {
		return nil, nil
	}
	d := newDecoder(doc)
	dir := filepath.Dir(name)
	d.gather(body, dir)
	for _, p := range d.parts {
		rel, err := filepath.Rel(dir, p.source.name)
		if err != nil || !filepath.IsLocal(rel) {
			return nil, fmt.Errorf("%s is not below the folder of %s: put it there, and name it relative to that", p.source.name, name)
		}
		files = append(files, packfile.ConfigFile{Name: filepath.ToSlash(rel), Data: p.data})
	}
	return files, nil
}

// matches are the files that an entry of include matches, sorted.
func (d *decoder) matches(name, dir string, at place) []string {
	if name == "" {
		d.doc.at(at, "an empty name includes nothing", "for example conf.d/*.yaml")
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if !strings.ContainsAny(name, "*?[") {
		return []string{name}
	}
	files, err := filepath.Glob(name)
	if err != nil {
		d.doc.at(at, fmt.Sprintf("%q is not a pattern for files: %v", name, err), "for example conf.d/*.yaml")
		return nil
	}
	folder := filepath.Dir(name)
	for strings.ContainsAny(folder, "*?[") {
		folder = filepath.Dir(folder)
	}
	f, err := os.Open(folder)
	if errors.Is(err, fs.ErrPermission) { // which Glob says nothing of
		d.doc.at(at, fmt.Sprintf("cannot look for files in %s: this user has no permission", folder), "")
	} else if err == nil {
		_ = f.Close() // nothing was read
	}
	return files // sorted
}

// include reads one file.
func (d *decoder) include(file string, at place) {
	if file == d.doc.name || d.included[file] {
		d.doc.at(at, fmt.Sprintf("%s is included already", file), "")
		return
	}
	info, err := os.Stat(file)
	var data []byte
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // a pipe could keep us waiting
		d.doc.at(at, file+" is not a file", "for a folder: "+filepath.Join(file, "*.yaml"))
		return
	default:
		data, err = readFile(file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.doc.at(at, fmt.Sprintf("there is no file %s", file), nearHint(file))
		return
	case err != nil:
		if path := (*os.PathError)(nil); errors.As(err, &path) {
			err = errors.New(reason(path))
		}
		d.doc.at(at, "cannot include "+err.Error(), "")
		return
	}
	d.add(file, data)
}

// add takes the text of a file that is included.
func (d *decoder) add(file string, data []byte) {
	own, body := parse(file, data)
	if own.broken {
		d.doc.found = append(d.doc.found, own.found...)
		d.doc.broken = true
		return
	}
	if body == nil {
		return
	}
	p := part{&own.source, body, data}
	if d.treeText += len(data); d.treeText > maxTreeText {
		p.body = nil
	}
	d.included[file] = true
	d.parts = append(d.parts, p)
	d.within(p.source, func() {
		d.collectAnchors(body)
		d.takeSnippets(body)
	})
}

// within calls f while another file is being decoded.
func (d *decoder) within(s *source, f func()) {
	was := d.doc.now
	d.doc.now = s
	f()
	d.doc.now = was
}

// child is the value of a key of a map, nil if there is none.
func (d *decoder) child(body ast.Node, key string) (value ast.Node) {
	for _, pair := range pairsOf(d.unwrap(body)) {
		if text, _, ok := scalar(keyNode(pair.Key)); ok && text == key {
			return pair.Value
		}
	}
	return nil
}

func keyNode(n ast.Node) ast.Node {
	if k, ok := n.(*ast.MappingKeyNode); ok {
		return k.Value
	}
	return n
}

// pairsOf are the entries of a map, none of anything else.
func pairsOf(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

// takeSnippets collects the snippets of a file.
func (d *decoder) takeSnippets(body ast.Node) {
	n := d.child(body, snippetsKey)
	if n == nil {
		return
	}
	if n = d.unwrap(n); n == nil {
		return
	}
	d.pairs(n, reflect.ValueOf(map[string]Snippet{}), snippetsKey, func(key string, at place, value ast.Node) {
		if first, twice := d.snippets[key]; twice {
			d.doc.at(at, fmt.Sprintf("a second snippet %s", key), "the first is "+d.doc.line(first.at))
			return
		}
		d.snippets[key] = snippet{value, d.doc.now, at}
	})
}

// use puts the snippets that a map names into v.
func (d *decoder) use(n ast.Node, v reflect.Value, path string, depth int) {
	named := d.child(n, useKey)
	if named == nil {
		return
	}
	var names []string
	into := reflect.ValueOf(&names).Elem()
	d.value(named, into, join(path, useKey), depth+1)
	for i, name := range names {
		at := d.doc.value(fmt.Sprintf("%s[%d]", join(path, useKey), i))
		s, ok := d.snippets[name]
		switch {
		case !ok:
			hint := meant(name, sortedKeys(d.snippets))
			if hint == "" {
				hint = "snippets: {" + name + ": {…}} at the top of the config is one"
			}
			d.doc.at(at, fmt.Sprintf("there is no snippet %s", name), hint)
			d.doc.unread[path+unknownKey] = true
			continue
		case slices.Contains(d.using, name):
			d.doc.at(at, fmt.Sprintf("the snippet %s leads to itself: %s", name, strings.Join(append(d.using, name), ", ")), "")
			continue
		}
		d.using = append(d.using, name)
		d.within(s.in, func() {
			if node := d.unwrap(s.node); node != nil {
				d.structure(node, v, path, depth+1)
			}
		})
		d.using = d.using[:len(d.using)-1]
	}
}

// decodeIncluded decodes the sites and tables of the included files.
func (d *decoder) decodeIncluded(cfg *Config) {
	for i, p := range d.parts {
		if p.body == nil {
			_, p.body = parse(p.source.name, p.data) // without a fault, as before
		}
		d.within(p.source, func() { d.part(p.body, cfg) })
		d.parts[i].body = nil // nobody needs the tree any more
	}
}

func (d *decoder) part(body ast.Node, cfg *Config) {
	body = d.unwrap(body)
	if body == nil {
		return
	}
	if !isMap(body) {
		d.doc.at(d.doc.place(body), "an included file starts with \"sites:\", \"tables:\" or \"snippets:\", not with "+kindOf(body), "")
		return
	}
	d.pairs(body, reflect.ValueOf(map[string]string{}), "", func(key string, at place, value ast.Node) {
		switch key {
		case snippetsKey:
		case sitesKey:
			d.sites(value, cfg)
		case tablesKey:
			d.tables(value, cfg)
		case includeKey:
			d.doc.at(at, "an included file cannot include others", "name them in "+d.doc.name)
		default:
			d.doc.at(at, fmt.Sprintf("%q is not for an included file", key), "sites, tables and snippets are; all else belongs into "+d.doc.name)
		}
	})
}

// tables adds those of an included file.
func (d *decoder) tables(n ast.Node, cfg *Config) {
	before := cfg.Tables
	n = d.unwrap(n)
	for _, pair := range pairsOf(n) {
		if text, _, ok := scalar(keyNode(pair.Key)); ok {
			if _, twice := before[text]; twice {
				d.doc.at(d.doc.place(pair.Key), "a second table "+text, "the first is "+d.doc.line(d.doc.key(tablesKey+"["+text+"]")))
			}
		}
	}
	if n != nil {
		d.mapping(n, reflect.ValueOf(&cfg.Tables).Elem(), tablesKey, 1)
	}
}

// sites adds those of an included file.
func (d *decoder) sites(n ast.Node, cfg *Config) {
	n = d.unwrap(n)
	if n == nil {
		return
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.mismatch(n, reflect.ValueOf(&cfg.Sites).Elem(), sitesKey, d.doc.place(n))
		return
	}
	for _, one := range list.Values {
		path := fmt.Sprintf("%s[%d]", sitesKey, len(cfg.Sites))
		cfg.Sites = append(cfg.Sites, Site{})
		d.value(one, reflect.ValueOf(cfg).Elem().FieldByName("Sites").Index(len(cfg.Sites)-1), path, 2)
	}
}
