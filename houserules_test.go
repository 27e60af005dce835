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
var globals = map[string]string{
	"examples/embedded-site.gitHash": "the linker sets it",
	"..inherited":                    "descriptors are of the whole process, and may be taken once",
	"internal/wire/field.claims":     "a table with an index, made of constants",
	"internal/wire/field.addresses":  "a table with an index, made of constants",
	"internal/wire/field.overrides":  "a table with an index, made of constants",
	"internal/wire/field.traces":     "a table with an index, made of constants",
}

// sentinelCalls make errors that callers compare with.
var sentinelCalls = []string{"errors.New", "fmt.Errorf"}

// basicTypes may stand beside the tables in a struct that is one.
var basicTypes = []string{"bool", "byte", "rune", "string", "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64"}

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
	excused := map[string]bool{}
	for _, p := range modulePackages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.files {
			f, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		for _, fault := range newTopLevel(files).faults(files) {
			name := p.dir + "." + fault.name
			if globals[name] != "" {
				excused[name] = true
				continue
			}
			t.Errorf("%v: %s", fset.Position(fault.pos), fault.what)
		}
	}
	for _, name := range sortedKeys(globals) {
		if !excused[name] {
			t.Errorf("globals in houserules_test.go excuses %s, which needs it no more: delete the line", name)
		}
	}
}

// A fault is a declaration that breaks the rule.
type fault struct {
	pos  token.Pos
	name string
	what string
}

// topLevel is what a package declares, as far as the rule asks.
type topLevel struct {
	funcs map[string]*ast.FuncType
	types map[string]ast.Expr
}

func newTopLevel(files []*ast.File) topLevel {
	top := topLevel{funcs: map[string]*ast.FuncType{}, types: map[string]ast.Expr{}}
	for _, f := range files {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					top.funcs[d.Name.Name] = d.Type
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						top.types[ts.Name.Name] = ts.Type
					}
				}
			}
		}
	}
	return top
}

// faults lists what the files of one package declare against the rule.
func (top topLevel) faults(files []*ast.File) []fault {
	var faults []fault
	for _, f := range files {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					faults = append(faults, fault{
						d.Pos(), "init",
						"func init runs before anyone asked for it: let a constructor do the work, and main call it",
					})
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && !hasEmbed(d.Doc) {
					faults = append(faults, top.variables(d)...)
				}
			}
		}
	}
	return faults
}

func (top topLevel) variables(d *ast.GenDecl) []fault {
	var faults []fault
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if name.Name == "_" || hasEmbed(v.Doc) || i < len(v.Values) && top.allowed(v.Values[i]) {
				continue
			}
			faults = append(faults, fault{name.Pos(), name.Name, fmt.Sprintf(
				"package-level variable %s: only error sentinels, tables, pools of buffers and go:embed may be one. Put it into a struct "+
					"that its user makes, or add it with the reason to globals in houserules_test.go", name.Name)})
		}
	}
	return faults
}

func hasEmbed(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// allowed reports whether a variable with this value is an error sentinel, a
// table, or a pool, which remembers nothing that anyone could see.
func (top topLevel) allowed(value ast.Expr) bool {
	switch value := value.(type) {
	case *ast.CompositeLit:
		return top.table(value.Type) || qualified(value.Type) == "sync.Pool"
	case *ast.CallExpr:
		switch fun := value.Fun.(type) {
		case *ast.ArrayType: // []byte("…")
			return true
		case *ast.FuncLit: // func() [256]bool { … }(): computed on the spot
			return top.makesTable(fun.Type)
		case *ast.Ident: // makeTable(…)
			return top.funcs[fun.Name] != nil && top.makesTable(top.funcs[fun.Name])
		case *ast.SelectorExpr:
			return slices.Contains(sentinelCalls, qualified(fun)) || slices.Contains(tableCalls, qualified(fun))
		}
	}
	return false
}

func (top topLevel) makesTable(f *ast.FuncType) bool {
	return f.Results != nil && f.Results.NumFields() == 1 && top.table(f.Results.List[0].Type)
}

// table reports whether a type is that of a table: an array, a slice, a map, a
// named one of them, or a struct of nothing but tables and basic values.
func (top topLevel) table(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	case *ast.Ident:
		return top.types[e.Name] != nil && top.table(top.types[e.Name])
	case *ast.StructType:
		for _, field := range e.Fields.List {
			if id, ok := field.Type.(*ast.Ident); ok && slices.Contains(basicTypes, id.Name) {
				continue
			}
			if !top.table(field.Type) {
				return false
			}
		}
		return true
	}
	return false
}

// qualified writes an imported name as pkg.Name; anything else is "".
func qualified(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := sel.X.(*ast.Ident); ok {
			return pkg.Name + "." + sel.Sel.Name
		}
	}
	return ""
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
		{`var bits = make8(); func make8() (t [8]bool) { return }`, 0},
		{`type set struct { low byte; in [8]bool }; var bits = makeSet(); func makeSet() set { return set{} }`, 0},
		{`type names []string; var all = names{"x"}`, 0},
		{`var buffers = sync.Pool{New: f}`, 0},
		{`var _ http.Handler = (*T)(nil)`, 0},
		{"//go:embed ui\nvar ui embed.FS", 0},
		{`func init() {}`, 1},
		{`func (t T) init() {}`, 0},
		{`var count int`, 1},
		{`var a, b = 1, []int{}`, 1},
		{`type state struct { mu sync.Mutex }; var s = state{}`, 1},
		{`type state struct { n *int }; var s = makeState(); func makeState() state { return state{} }`, 1},
		{`var s = makeState(); func makeState() *int { return nil }`, 1},
		{`var s, err = makeBoth(); func makeBoth() ([]int, error) { return nil, nil }`, 2},
		{`var pool sync.Map`, 1},
		{`var client = &http.Client{}`, 1},
		{`var m map[string]int`, 1},
		{`var now = time.Now`, 1},
		{`var f = func() {}`, 1},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package p\n"+c.code, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files := []*ast.File{f}
		if faults := newTopLevel(files).faults(files); len(faults) != c.refused {
			t.Errorf("%s\nfaults %v, want %d", c.code, faults, c.refused)
		}
	}
}
