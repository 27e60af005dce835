package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/observe/accesslog"
	"millrace/internal/process/servertest"
)

// logged waits until the log has a text, and returns all of it.
func logged(t *testing.T, path, text string) string {
	t.Helper()
	var b []byte
	servertest.Eventually(t, fmt.Sprintf("the log says %q", text), func() bool {
		b, _ = os.ReadFile(path) // it may not be there yet
		return strings.Contains(string(b), text)
	})
	return string(b)
}

// What is not to be logged is not, whoever answers: hot answers, 304 and large files
// among them.
func TestNoLog(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := folder(t, map[string]string{"a.txt": "a", "large.bin": strings.Repeat("x", 600<<10)})
	path := filepath.Join(t.TempDir(), "access.log")
	everyWayWith(t, fmt.Sprintf("sites:\n- routes:\n    /: {static: {root: %[1]q}}\n    /quiet/: {static: {root: %[1]q}, no_log: true}\n", dir), func(cfg *config.Config) {
		cfg.Log = accesslog.Options{Format: "json", File: path}
	}, func(w *way) {
		for _, file := range []string{"a.txt", "large.bin", "none"} {
			var etag string
			for range 4 {
				res, _ := w.ask("GET", "/quiet/"+file, "")
				etag = res.Header.Get("Etag")
			}
			if etag != "" {
				w.ask("GET", "/quiet/"+file, "", "If-None-Match", etag)
			}
			w.ask("HEAD", "/quiet/"+file, "")
		}
		mark := strings.ReplaceAll(w.Name(), "/", "-")
		for range 3 {
			w.ask("GET", "/a.txt?"+mark, "")
		}
		text := logged(w.T, path, mark)
		if strings.Contains(text, "/quiet/") {
			w.Errorf("the log has\n%s", text)
		}
	})
}
