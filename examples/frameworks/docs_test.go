package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"millrace"
)

// TestDocs: the Go code in docs/library.md compiles, with a router and files that
// are declared around it. "…" stands for what to do about an error.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of Go code", len(blocks))
	}
	module := reflect.TypeFor[millrace.Config]().PkgPath() // it may have been renamed
	var source strings.Builder
	fmt.Fprintf(&source, "package docs\n\nimport (\n\t\"embed\"\n\t\"net/http\"\n\n\t\"github.com/gin-gonic/gin\"\n\n\t%q\n\t%q\n)\n\n", module, module+"/static")
	source.WriteString("var (\n\tembedded embed.FS\n\trouter http.Handler\n\tr *gin.Engine\n)\n")
	for i, block := range blocks {
		code := strings.ReplaceAll(string(block[1]), "…", "if err != nil {\n\treturn err\n}")
		fmt.Fprintf(&source, "\nfunc block%d() error {\n%sreturn err\n}\n\nvar _ = block%d\n", i, code, i)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// It is laid over the module: no file is written into it.
	file, overlay := filepath.Join(t.TempDir(), "docs.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "docs", "docs.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{file: []byte(source.String()), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./docs").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, source.String())
	}
}
