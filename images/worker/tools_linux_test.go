package worker

import (
	"bytes"
	"image"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/images/codec"
	"millrace/images/convert"
)

// The commands are tested once, not by each worker again: an image starts one
// command.
func TestToolsAreTestedOnce(t *testing.T) {
	installed, err := exec.LookPath("cwebp")
	if err != nil {
		t.Skip("cwebp is not installed")
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho call >>" + calls + "\nexec " + installed + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "cwebp"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv(coverage, dir) // the one folder that a worker and its commands may write to
	p := newPool(t, Options{Level: "tools", Jobs: 1}, "real")
	count := func() int {
		said, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(said), "\n")
	}
	m := image.NewYCbCr(image.Rect(0, 0, 300, 200), image.YCbCrSubsampleRatio420)
	for i := range m.Y {
		m.Y[i] = byte(i*7 ^ i>>6)
	}
	var file bytes.Buffer
	if err := jpeg.Encode(&file, m, nil); err != nil {
		t.Fatal(err)
	}
	before := count()
	const pictures = 3 // each in a worker of its own
	for range pictures {
		src := Source{Reader: bytes.NewReader(file.Bytes()), Size: int64(file.Len())}
		if _, err := p.Convert(t.Context(), src, convert.Spec{Format: codec.WebP, Width: 100}, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := count() - before; n != pictures || before == 0 {
		t.Errorf("%d pictures started %d commands after %d tests", pictures, n, before)
	}
}
