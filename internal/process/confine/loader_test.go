package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

func TestLoader(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("\x7fELF and nothing more"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{text, text + ".missing"} {
		if got := Loader(name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if sh, err := exec.LookPath("sh"); err == nil && runtime.GOOS == "linux" {
		if got := Loader(sh); got != "" && !filepath.IsAbs(got) {
			t.Errorf("%s: %q is no path", sh, got)
		} else if _, err := os.Stat(got); got != "" && err != nil {
			t.Errorf("%s: %v", sh, err)
		}
	}
}
