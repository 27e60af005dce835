package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
)

// The schema and the reference are made from the Go types and their comments,
// and checked in: an editor and a reader need no Go.
const (
	schemaFile    = "docs/millrace.schema.json"
	referenceFile = "docs/config.md"
	refresh       = "go test ./internal/config -run TestDocuments -update"
)

func TestDocuments(t *testing.T) {
	t.Chdir("../..")
	comments := readComments(t)
	for file, made := range map[string][]byte{
		schemaFile:    schema(t, comments),
		referenceFile: reference(comments),
		manualFile:    manualPage(comments),
	} {
		if *update {
			if err := os.WriteFile(file, made, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		kept, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(string(kept), string(made)); diff != "" {
			t.Errorf("%s is out of date; run\n\n\t%s\n\n%s", file, refresh, diff)
		}
	}
}

// TestKeysAreReadable: every key of every options type can be decoded and has
// a comment that explains it.
func TestKeysAreReadable(t *testing.T) {
	t.Chdir("../..")
	comments := readComments(t)
	for _, s := range structs(reflect.TypeFor[Config]()) {
		for _, f := range fieldsOf(s) {
			sf := s.FieldByIndex(f.index)
			if _, ok := sf.Tag.Lookup("yaml"); !ok {
				t.Errorf("%s.%s has no yaml tag: name its key, or \"-\"", s, sf.Name)
			}
			if describe(comments, s, f) == "" {
				t.Errorf("%s.%s has no comment: it would be missing in %s", s, sf.Name, referenceFile)
			}
			switch k := base(sf.Type).Kind(); k {
			case reflect.Interface, reflect.Func, reflect.Chan, reflect.Array, reflect.Complex64, reflect.Complex128, reflect.Uintptr, reflect.UnsafePointer:
				t.Errorf("%s.%s is a %s, which no config can hold: tag it yaml:\"-\"", s, sf.Name, k)
			}
		}
	}
}

// base takes pointers, lists and maps off a type.
func base(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// isText reports whether a struct or number is written as text, and as that
// alone: a struct with keys has a short form besides.
func isText(t reflect.Type) bool {
	return readsText(t) && (t.Kind() != reflect.Struct || len(fieldsOf(t)) == 0)
}

// hasShort reports whether one text may stand for a map of options.
func hasShort(t reflect.Type) bool { return readsText(t) && t.Kind() == reflect.Struct && !isText(t) }

func readsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// declaredIn is the struct whose field has a key: s, or one that is inlined.
func declaredIn(s reflect.Type, f field) reflect.Type {
	for _, i := range f.index[:len(f.index)-1] {
		s = s.Field(i).Type
	}
	return s
}

// structs lists a struct and all structs below it, in their order.
func structs(t reflect.Type) []reflect.Type {
	out := []reflect.Type{t}
	for _, f := range fieldsOf(t) {
		if in := declaredIn(t, f); !slices.Contains(out, in) {
			out = append(out, in)
		}
		inner := base(t.FieldByIndex(f.index).Type)
		if inner.Kind() == reflect.Struct && !isText(inner) {
			out = append(out, structs(inner)...)
		}
	}
	return out
}

// readComments reads the comments of all option types from their source.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	r, read := new(jsonschema.Reflector), map[string]bool{}
	for _, s := range structs(reflect.TypeFor[Config]()) {
		dir, ok := strings.CutPrefix(s.PkgPath(), "millrace/")
		if !ok {
			t.Fatalf("%s is not ours", s)
		}
		if read[dir] {
			continue
		}
		read[dir] = true
		if err := r.AddGoComments("millrace", dir, jsonschema.WithFullComment()); err != nil {
			t.Fatal(err)
		}
	}
	return r.CommentMap
}

// describe is the comment of a key as Markdown that calls the fields of its
// struct by their keys. Neighbours may share one comment ("Cert and Key are").
func describe(comments map[string]string, s reflect.Type, f field) string {
	fields := fieldsOf(s)
	i := slices.IndexFunc(fields, func(g field) bool { return g.name == f.name })
	name := s.FieldByIndex(f.index).Name
	comment := func(f field) string {
		in := declaredIn(s, f)
		return comments[in.PkgPath()+"."+in.Name()+"."+s.FieldByIndex(f.index).Name]
	}
	text := comment(f)
	for j := i; text == "" && j > 0; j-- {
		if shared := comment(fields[j-1]); regexp.MustCompile(`^[^.]*\b` + name + `\b`).MatchString(shared) {
			text = shared
		}
	}
	return byKeys(text, s)
}

// byKeys takes links apart and puts keys for the names of Go fields, but not
// for a part of a name ("Combined Log Format", path.Match, Surrogate-Key, the
// Host header).
func byKeys(text string, s reflect.Type) string {
	text = link.ReplaceAllString(text, "$1")
	for _, f := range fieldsOf(s) {
		name := s.FieldByIndex(f.index).Name
		text = regexp.MustCompile(`([A-Z]\w* |\.|-)?\b`+name+`\b( header|-)?`).ReplaceAllStringFunc(text, func(m string) string {
			if m != name {
				return m
			}
			return "`" + f.name + "`"
		})
	}
	return text
}

var (
	link    = regexp.MustCompile(`\[([A-Za-z][\w.]*)\]`)
	nonWord = regexp.MustCompile(`\W+`)
)

func markdown(text string) string {
	var p comment.Parser
	return strings.TrimSpace(string((&comment.Printer{HeadingLevel: 4}).Comment(p.Parse(text))))
}

// schema is the JSON Schema (draft 2020-12) of a config.
func schema(t *testing.T, comments map[string]string) []byte {
	t.Helper()
	name := func(t reflect.Type) string { return nonWord.ReplaceAllString(t.String(), "_") }
	short := map[string]bool{} // definitions that one text may stand for
	for _, s := range structs(reflect.TypeFor[Config]()) {
		short[name(s)] = hasShort(s)
	}
	r := &jsonschema.Reflector{
		Anonymous:                  true,
		RequiredFromJSONSchemaTags: true, // defaults are good: nothing is required that is not said to be
		FieldNameTag:               "yaml",
		ExpandedStruct:             true,
		Namer:                      name,
		Mapper:                     mapType,
		LookupComment: func(s reflect.Type, name string) string {
			if s.Kind() != reflect.Struct {
				return ""
			}
			for _, f := range fieldsOf(s) {
				if s.FieldByIndex(f.index).Name == name {
					return strings.ReplaceAll(describe(comments, s, f), "`", "")
				}
			}
			return strings.ReplaceAll(byKeys(comments[s.PkgPath()+"."+s.Name()], s), "`", "")
		},
	}
	out := r.Reflect(&Config{})
	out.Title = "millrace.yaml"
	for _, d := range out.Definitions {
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if p.Value.Ref != "" { // "deny:" alone is that job with its defaults
				forms := []*jsonschema.Schema{{Ref: p.Value.Ref}, {Type: "null"}}
				if short[strings.TrimPrefix(p.Value.Ref, "#/$defs/")] {
					forms = append(forms, &jsonschema.Schema{Type: "string"})
				}
				p.Value = &jsonschema.Schema{Description: p.Value.Description, AnyOf: forms}
			}
		}
	}
	for _, s := range structs(reflect.TypeFor[Config]()) {
		for _, f := range fieldsOf(s) {
			if s.FieldByIndex(f.index).Tag.Get(negativeTag) != "" {
				p, _ := out.Definitions[name(s)].Properties.Get(f.name)
				p.Pattern = strings.Replace(p.Pattern, "^", "^-?", 1)
			}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// variable is a value that holds an environment variable: it may stand for
// anything.
const variable = `\$\{`

// mapType is the schema of values that are not what their Go type looks like.
func mapType(t reflect.Type) *jsonschema.Schema {
	or := func(s *jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "string", Pattern: variable}}}
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|` + variable, Examples: []any{"10s", "1m30s"}}
	case isText(t) && t.Kind() == reflect.Int64:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0"},
			{Type: "string", Pattern: `^[0-9.]+ ?([KkMmGgTt][Ii]?)?[Bb]?$|` + variable, Examples: []any{"64MiB"}},
		}}
	case isText(t):
		return &jsonschema.Schema{Type: "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return or(&jsonschema.Schema{Type: "boolean"})
	case reflect.Int, reflect.Int64:
		return or(&jsonschema.Schema{Type: "integer", Minimum: "0"})
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			one := &jsonschema.Schema{Type: "string"}
			return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one, {Type: "array", Items: one}}}
		}
	}
	return nil
}

// reference is docs/config.md.
func reference(comments map[string]string) []byte {
	var b bytes.Buffer
	config := reflect.TypeFor[Config]()
	fmt.Fprintf(&b, "# The config, key by key\n\n<!-- Made from the code: %s -->\n\n", refresh)
	b.WriteString(markdown("A c"+strings.TrimPrefix(comments["millrace/internal/config.Config"], "C")) + "\n\n")
	b.WriteString("`millrace init` writes a file to start from, `millrace check` reports all that is wrong with one, and\n" +
		"an editor completes and checks it with [millrace.schema.json](millrace.schema.json):\n\n" +
		"```yaml\n# yaml-language-server: $schema=docs/millrace.schema.json\nlisten: :8080\nsites:\n  - routes:\n      /: {static: {root: ./public}}\n```\n\n")
	section(&b, comments, config, "")
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

// section writes one struct's keys, and then the structs in it. Those of a job
// are written once, where it is a route's.
func section(b *bytes.Buffer, comments map[string]string, s reflect.Type, path string) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(b, "## %s\n\n", title)
	if elsewhere := asJob(s); elsewhere != "" && elsewhere != path {
		fmt.Fprintf(b, "All keys of `%s`.\n\n", elsewhere)
		return
	}
	type inner struct {
		t    reflect.Type
		path string
	}
	var below []inner
	reported := false
	for _, f := range fieldsOf(s) {
		t := s.FieldByIndex(f.index).Type
		if elsewhere := inlined(s, f); elsewhere != "" {
			if !reported {
				fmt.Fprintf(b, "All keys of `%s`, and:\n\n", elsewhere)
			}
			reported = true
			continue
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		fmt.Fprintf(b, "### `%s`\n\n*%s*\n\n%s\n\n", f.name, takes(t), markdown(describe(comments, s, f)))
		in := inner{base(t), strings.TrimPrefix(path+"."+f.name, ".")}
		if in.t.Kind() == reflect.Struct && !isText(in.t) && len(fieldsOf(in.t)) > 0 {
			switch t.Kind() {
			case reflect.Slice:
				in.path += "[]"
			case reflect.Map:
				in.path += ".PATH"
			}
			below = append(below, in)
		}
	}
	for _, in := range below {
		section(b, comments, in.t, in.path)
	}
}

// inlined is the route's job whose keys another job has as well, if f is one of
// them: they are documented there.
func inlined(s reflect.Type, f field) string {
	route := reflect.TypeFor[Route]()
	for _, job := range fieldsOf(route) {
		t := base(route.FieldByIndex(job.index).Type)
		if t != s && len(f.index) > 1 && s.Field(f.index[0]).Type == t {
			return "sites[].routes.PATH." + job.name
		}
	}
	return ""
}

// asJob is what a job's options are called in a route, "" for all else.
func asJob(t reflect.Type) string {
	route := reflect.TypeFor[Route]()
	for _, job := range fieldsOf(route) {
		if of := route.FieldByIndex(job.index).Type; base(of) == t {
			name := "sites[].routes.PATH." + job.name
			if of.Kind() == reflect.Slice {
				name += "[]"
			}
			return name
		}
	}
	return ""
}

// takes says what a key takes, in words.
func takes(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Struct {
			return "a list of maps"
		}
	case reflect.Map:
		return "a map from paths to maps"
	}
	return wanted(t)
}

// TestSchemaKnowsEveryKey: the checked-in schema and the decoder agree.
func TestSchemaKnowsEveryKey(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", schemaFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range structs(reflect.TypeFor[Config]()) {
		for _, f := range fieldsOf(s) {
			if !bytes.Contains(data, fmt.Appendf(nil, "%q: {", f.name)) && !bytes.Contains(data, fmt.Appendf(nil, "%q: true", f.name)) {
				t.Errorf("%s lacks the key %q of %s", schemaFile, f.name, s)
			}
		}
	}
}
