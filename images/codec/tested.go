package codec

import (
	"fmt"
	"os"
	"time"
)

// Tested is what the self-test of an installed command has found out, for
// another process: see ToolOptions.Tested. It goes through JSON.
type Tested struct {
	Name    string // such as "cwebp"
	File    string // absolute
	Version string
	// Size and Modified of the file: a command that was replaced since is
	// tested again.
	Size     int64
	Modified time.Time
	// Scale and Tuned are those of Tools, of avifenc.
	Scale, Tuned bool
}

// Tested are the commands that work.
func (t *Tools) Tested() []Tested {
	var all []Tested
	for _, c := range []*command{t.cwebp, t.gif2webp, t.avifenc} {
		if c == nil {
			continue
		}
		k := Tested{Name: c.name, File: c.file, Version: c.version, Size: c.size, Modified: c.modified}
		if c == t.avifenc {
			k.Scale, k.Tuned = t.scale, t.tuned
		}
		all = append(all, k)
	}
	return all
}

// stat notes which file it is that is tested.
func (c *command) stat() error {
	info, err := os.Stat(c.file)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", c.name, err)
	}
	c.size, c.modified = info.Size(), info.ModTime()
	return nil
}

// known takes over what another process has found out. It reports whether that
// holds still.
func (t *Tools) known(c *command, all []Tested) bool {
	for _, k := range all {
		if k.Name != c.name {
			continue
		}
		c.file, c.version = k.File, k.Version
		if c.stat() != nil || c.size != k.Size || !c.modified.Equal(k.Modified) {
			return false
		}
		if c.name == "avifenc" {
			t.scale, t.tuned = k.Scale, k.Tuned
		}
		return true
	}
	return false
}
