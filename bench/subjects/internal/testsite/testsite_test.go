package testsite

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteMakesTheSameSiteEachTime(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	for _, f := range Files {
		a, err := os.ReadFile(filepath.Join(one, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(two, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if len(a) != f.Size {
			t.Errorf("%s has %d bytes, want %d", f.Name, len(a), f.Size)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from one run to the next", f.Name)
		}
		if other, ok := seen[string(a)]; ok {
			t.Errorf("%s and %s are the same: a mix-up would pass unseen", f.Name, other)
		}
		seen[string(a)] = f.Name
	}
}
