package millrace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tickers are the files that may have a ticker, with what ends it. A server without
// clients has no timer pending: what only clients need done is a [meter.Upkeep].
var tickers = map[string]string{
	"cmd/internal/cachecmd/warm.go":    "the command",
	"cmd/internal/servecmd/service.go": "runs only under systemd's watchdog",
	"images/worker/process.go":         "the conversion",
	"internal/access/admit/lists.go":   "runs only with lists in files",
	"internal/access/admit/shared.go":  "runs only with limits that several machines share",
	"internal/server/h3/h3.go":         "the drain",
	"internal/server/server.go":        "the drain",
	"internal/server/slots.go":         "a place for the client",
	"internal/server/successor.go":     "the upgrade",
	"internal/server/tls_ocsp.go":      "once an hour, with certificates of files",
	"internal/upstream/health.go":      "runs only with health checks",
	"store/bus/nats/connect.go":        "runs only with NATS",
	"store/bus/nats/members.go":        "runs only with NATS",
}

// TestTickers: nothing else in the program has a ticker.
func TestTickers(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		file = filepath.ToSlash(file)
		switch top, _, _ := strings.Cut(file, "/"); {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"lab", "examples", "packaging", "testdata"}, top) || path.Base(file) == "testdata" || len(file) > 1 && path.Base(file)[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "NewTicker" || s.Sel.Name == "Tick") {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
					found[file] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if tickers[file] == "" {
			t.Errorf("%s has a ticker, which goes on without clients: let it be an Upkeep of meter.Presence", file)
		}
	}
	for file := range tickers {
		if !found[file] {
			t.Errorf("%s is on the list and has no ticker", file)
		}
	}
}
