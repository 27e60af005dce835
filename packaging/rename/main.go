// Command rename gives the module another path, in a tree that is then published
// under it:
//
//	go run ./packaging/rename example.org/you/millrace [DIR]
//
// DIR is the tree, this one by default. It changes the module line, imports and
// other strings that are paths of packages, links in comments, the modules below
// that use this one, and the names of functions in profiles (*.pgo), without which
// the compiler would not find them. Whether all was found, the tree's tests say.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || len(args) > 2 || !modulePath.MatchString(args[0]) {
		return fmt.Errorf("which path? Type: go run ./packaging/rename example.org/you/millrace [DIR]")
	}
	dir := "."
	if len(args) == 2 {
		dir = args[1]
	}
	old, err := moduleOf(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	r := renamer{dir: dir, old: old, to: args[0]}
	if err := r.tree(); err != nil {
		return err
	}
	fmt.Printf("%s is now %s: %d files changed\n", old, args[0], r.changed)
	return nil
}

// modulePath is a path that the go command can fetch: it begins with a domain.
var modulePath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$`)

func moduleOf(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("this is not the root of the module: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("%s names no module", file)
}

type renamer struct {
	dir, old, to string
	changed      int
}

// tree changes every file, but those that git does not know by default.
func (r *renamer) tree() error {
	return filepath.WalkDir(r.dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != r.dir && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "dist"):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		case strings.HasSuffix(file, ".go"):
			return r.file(file, r.source)
		case d.Name() == "go.mod":
			return r.file(file, r.module)
		case strings.HasSuffix(file, ".pgo"):
			return r.file(file, r.profile)
		case d.Name() == "run" && filepath.Base(filepath.Dir(file)) == ".ci":
			return r.file(file, r.script)
		}
		return nil
	})
}

func (r *renamer) file(file string, change func(file string, data []byte) ([]byte, error)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	next, err := change(file, data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(data, next) {
		return nil
	}
	r.changed++
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, next, info.Mode())
}

// renamed is a path of this module by its new name. Other strings are not: the
// program's name is the module's old one.
func (r *renamer) renamed(text string) (string, bool) {
	rest, ok := strings.CutPrefix(text, r.old+"/")
	if !ok {
		return "", false
	}
	first, _, _ := strings.Cut(rest, "/")
	if rest != "" {
		if info, err := os.Stat(filepath.Join(r.dir, first)); err != nil || !info.IsDir() {
			return "", false
		}
	}
	return r.to + "/" + rest, true
}

// edit is a piece of a file that is replaced.
type edit struct {
	at, length int
	text       string
}

// source changes imports, strings that are paths of packages, and links to them.
func (r *renamer) source(file string, data []byte) ([]byte, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, data, parser.ParseComments)
	if err != nil {
		if strings.Contains(filepath.ToSlash(file), "/testdata/") {
			return data, nil // the go command does not read it either
		}
		return nil, err
	}
	offset := func(at token.Pos) int { return set.Position(at).Offset }
	edits := slices.Concat(r.links(parsed, offset), r.strings(parsed, offset))
	slices.SortFunc(edits, func(a, b edit) int { return a.at - b.at })
	var out bytes.Buffer
	done := 0
	for _, e := range edits {
		out.Write(data[done:e.at])
		out.WriteString(e.text)
		done = e.at + e.length
	}
	out.Write(data[done:])
	if len(edits) == 0 {
		return data, nil
	}
	return format.Source(out.Bytes()) // imports have another order now
}

func (r *renamer) links(parsed *ast.File, offset func(token.Pos) int) (edits []edit) {
	link := regexp.MustCompile(`\[` + regexp.QuoteMeta(r.old) + `/[A-Za-z0-9/_.-]+\]`)
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			for _, at := range link.FindAllStringIndex(c.Text, -1) {
				from, to := at[0]+1, at[1]-1 // without the brackets
				if text, ok := r.renamed(c.Text[from:to]); ok {
					edits = append(edits, edit{offset(c.Slash) + from, to - from, text})
				}
			}
		}
	}
	return edits
}

func (r *renamer) strings(parsed *ast.File, offset func(token.Pos) int) (edits []edit) {
	name := map[*ast.BasicLit]bool{} // what is the module's own path
	for _, i := range parsed.Imports {
		name[i.Path] = i.Path.Value == strconv.Quote(r.old)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec: // the test of the layers has it in a constant
			if len(n.Names) == 1 && n.Names[0].Name == "module" && len(n.Values) == 1 {
				if lit, ok := n.Values[0].(*ast.BasicLit); ok {
					name[lit] = lit.Value == strconv.Quote(r.old)
				}
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil {
				break
			}
			to, ok := r.renamed(text)
			if name[n] {
				to, ok = r.to, true
			}
			if ok && n.Value[0] == '"' {
				edits = append(edits, edit{offset(n.ValuePos), len(n.Value), strconv.Quote(to)})
			}
		}
		return true
	})
	return edits
}

// module changes the module line, and what modules below require and replace.
func (r *renamer) module(_ string, data []byte) ([]byte, error) {
	var out strings.Builder
	word := regexp.MustCompile(`^((?:module|require|replace)?\s*)` + regexp.QuoteMeta(r.old) + `(\s|/|$)`)
	for line := range strings.Lines(string(data)) {
		out.WriteString(word.ReplaceAllString(line, "${1}"+r.to+"${2}"))
	}
	return []byte(out.String()), nil
}

// script changes what CI reads of the go command.
func (r *renamer) script(_ string, data []byte) ([]byte, error) {
	return bytes.ReplaceAll(data, []byte(`\(`+r.old+`[^`), []byte(`\(`+strings.ReplaceAll(r.to, "/", `\/`)+`[^`)), nil
}

// profile changes the names of functions.
func (r *renamer) profile(_ string, data []byte) ([]byte, error) {
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, err
	}
	for _, f := range p.Function {
		f.Name, f.SystemName = r.function(f.Name), r.function(f.SystemName)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// function is the name of a function of this module by the new path. The linker
// writes a dot in the last element of a path as %2e.
func (r *renamer) function(name string) string {
	var out strings.Builder
	for i := 0; i < len(name); {
		rest, ok := strings.CutPrefix(name[i:], r.old)
		begins := i == 0 || !isPath(name[i-1])
		if !ok || !begins || rest == "" || rest[0] != '/' && rest[0] != '.' {
			out.WriteByte(name[i])
			i++
			continue
		}
		out.WriteString(r.to)
		i += len(r.old)
	}
	return out.String()
}

// isPath reports whether a byte can be within a path: then what follows is not its beginning.
func isPath(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || c == '~' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
