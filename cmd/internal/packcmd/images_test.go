package packcmd

import (
	"context"
	"io"
	"os"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/static/packer"
)

// Who stops the conversion of images gets an error, and no folder stays behind.
func TestImagesStopped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	end, err := new(Pack).images(ctx, &packer.Plan{}, cli.Streams{Out: io.Discard, Err: io.Discard})
	if err == nil || end != nil {
		t.Errorf("an end: %t, %v", end != nil, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
