package millrace_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The list of packages in ARCHITECTURE.md stands between these two lines.
const (
	listBegin = "<!-- packages: made from package comments by make docs -->\n"
	listEnd   = "<!-- end of packages -->\n"
)

// TestPackageList: ARCHITECTURE.md lists every package, by room, with the first
// sentence of its comment.
func TestPackageList(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(listBegin))
	_, after, complete := bytes.Cut(rest, []byte(listEnd))
	if !ok || !complete {
		t.Fatalf("ARCHITECTURE.md needs the lines %q and %q", listBegin, listEnd)
	}
	want := fmt.Sprintf("%s%s%s%s%s", before, listBegin, packageList(t), listEnd, after)
	if *update {
		if err := os.WriteFile("ARCHITECTURE.md", []byte(want), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Error("the packages of ARCHITECTURE.md are not those that there are: make docs")
	}
}

// packageList is a table of all packages, a heading for each room.
func packageList(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	packages := modulePackages(t)
	roomOf := func(p goPackage) string { at, _ := placeOf(p.dir); return at.room }
	slices.SortStableFunc(packages, func(a, b goPackage) int { return cmp.Compare(roomOf(a), roomOf(b)) })
	room := ""
	for _, p := range packages {
		at, _ := placeOf(p.dir)
		if at.room != room {
			room = at.room
			fmt.Fprintf(&b, "\n**%s**\n\n| package | |\n|---|---|\n", map[bool]string{true: "millrace", false: room}[room == "."])
		}
		fmt.Fprintf(&b, "| [`%s`](%s) | %s |\n", strings.TrimPrefix(p.dir, room+"/"), p.dir, synopsis(t, p))
	}
	b.WriteString("\n")
	return b.String()
}

// synopsis is the first sentence of a package's comment, without "Package x".
func synopsis(t *testing.T, p goPackage) string {
	t.Helper()
	for _, file := range p.files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if text := f.Doc.Text(); text != "" {
			s := new(doc.Package).Synopsis(text)
			s = strings.TrimPrefix(s, "Package "+p.name+" ")
			return strings.NewReplacer("|", `\|`, "<", `\<`, "[", "", "]", "").Replace(s)
		}
	}
	t.Errorf("package %s has no comment", p.dir)
	return ""
}
