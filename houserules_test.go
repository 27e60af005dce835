package millrace_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The house rules that no linter checks as we mean them. CONTRIBUTING.md gives
// the reasons; the limits on functions are in .golangci.yml.

// maxFileLines is the longest a file may get. Past that it holds two ideas.
const maxFileLines = 600

// vagueNames are package names that say nothing, and so collect everything.
var vagueNames = []string{"base", "common", "helper", "helpers", "lib", "misc", "shared", "tools", "types", "util", "utils"}

// globals are the package-level variables that break the rule and may, by
// package and name, each with its reason.
var globals = map[string]string{}

// tableCalls are calls whose result is a table: it is built once from
// constants and never changes.
var tableCalls = []string{"regexp.MustCompile", "strings.NewReplacer"}

// TestFileLength holds every file that people write against maxFileLines.
func TestFileLength(t *testing.T) {
	for _, p := range modulePackages(t) {
		for _, name := range slices.Concat(p.files, p.testFiles) {
			path := filepath.Join(p.dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Count(text, []byte("\n"))
			if lines > maxFileLines && !generated(t, path, text) {
				t.Errorf("%s has %d lines, the limit is %d: split it by idea", path, lines, maxFileLines)
			}
		}
	}
}

func generated(t *testing.T, path string, text []byte) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.PackageClauseOnly|parser.ParseComments)
	return err == nil && ast.IsGenerated(f)
}

// TestPackageNames refuses packages that are named for what they are not.
func TestPackageNames(t *testing.T) {
	for _, p := range modulePackages(t) {
		if slices.Contains(vagueNames, p.name) {
			t.Errorf("package %s in %s: name it for the one idea it holds", p.name, p.dir)
		}
	}
}

// TestGlobals refuses init functions and package-level variables, which make
// a package's behaviour depend on what else is linked in or has run before.
func TestGlobals(t *testing.T) {
	for _, p := range modulePackages(t) {
		fset := token.NewFileSet()
		for _, name := range p.files {
			f, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, fault := range globalFaults(fset, f, p.dir) {
				t.Error(fault)
			}
		}
	}
}

// globalFaults lists what one file of package dir declares against the rule.
func globalFaults(fset *token.FileSet, f *ast.File, dir string) []string {
	var faults []string
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				faults = append(faults, fmt.Sprintf("%v: func init runs before anyone asked for it: let a constructor do the work and main call it", fset.Position(d.Pos())))
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				if hasEmbed(d.Doc) || hasEmbed(v.Doc) {
					continue
				}
				for i, name := range v.Names {
					if name.Name == "_" || globals[dir+"."+name.Name] != "" || allowedValue(v, i) {
						continue
					}
					faults = append(faults, fmt.Sprintf("%v: package-level variable %s: only error sentinels, tables and go:embed may be one. "+
						"Put it into a struct that its user makes, or add %q with the reason to globals in houserules_test.go",
						fset.Position(name.Pos()), name.Name, dir+"."+name.Name))
				}
			}
		}
	}
	return faults
}

func hasEmbed(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// allowedValue reports whether the i-th name of a declaration is an error
// sentinel or a table.
func allowedValue(v *ast.ValueSpec, i int) bool {
	if i >= len(v.Values) {
		return false // no value: it exists to be changed
	}
	switch value := v.Values[i].(type) {
	case *ast.CompositeLit:
		return tableType(value.Type)
	case *ast.CallExpr:
		switch fun := value.Fun.(type) {
		case *ast.ArrayType: // []byte("…")
			return true
		case *ast.FuncLit: // func() [256]bool { … }(): computed once, on the spot
			results := fun.Type.Results
			return results != nil && len(results.List) == 1 && tableType(results.List[0].Type)
		case *ast.SelectorExpr:
			pkg, ok := fun.X.(*ast.Ident)
			if !ok {
				return false
			}
			call := pkg.Name + "." + fun.Sel.Name
			return call == "errors.New" || call == "fmt.Errorf" || slices.Contains(tableCalls, call)
		}
	}
	return false
}

func tableType(e ast.Expr) bool {
	switch e.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// TestGlobalFaults shows what the rule lets through and what it does not.
func TestGlobalFaults(t *testing.T) {
	for _, c := range []struct {
		code    string
		refused int
	}{
		{`var ErrGone = errors.New("gone")`, 0},
		{`var ( a = []string{"x"}; b = map[string]int{}; c = [...]byte{1}; d = []byte("x") )`, 0},
		{`var pattern = regexp.MustCompile("x")`, 0},
		{`var bits = func() [256]bool { return [256]bool{} }()`, 0},
		{`var _ http.Handler = (*T)(nil)`, 0},
		{"//go:embed ui\nvar ui embed.FS", 0},
		{`func init() {}`, 1},
		{`func (t T) init() {}`, 0},
		{`var count int`, 1},
		{`var a, b = 1, []int{}`, 1},
		{`var pool sync.Pool`, 1},
		{`var pool = sync.Pool{New: f}`, 1},
		{`var client = &http.Client{}`, 1},
		{`var m map[string]int`, 1},
		{`var now = time.Now`, 1},
		{`var f = func() {}`, 1},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package p\n"+c.code, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if faults := globalFaults(fset, f, "p"); len(faults) != c.refused {
			t.Errorf("%s\nfaults %q, want %d", c.code, faults, c.refused)
		}
	}
}
