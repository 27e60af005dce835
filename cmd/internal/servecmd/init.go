package servecmd

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
)

// starter is the config that init writes.
//
//go:embed starter.yaml
var starter string

// starterRoot is the folder that the starter serves.
const starterRoot = "./public"

// Init is `millrace init`.
type Init struct {
	File     string `arg:"" optional:"" default:"millrace.yaml" complete:"file" help:"Where to write it; - is the standard output. Default millrace.yaml."`
	Force    bool   `short:"f" help:"Overwrite the file if it exists."`
	FromJSON string `name:"from-json" placeholder:"FILE" complete:"file" help:"Write one that does what this config of the published comment cache says."`
}

// Run writes the starter, which serves the folder of pages that is there.
func (c *Init) Run(s cli.Streams) error {
	dir := filepath.Dir(c.File)
	text, about := Starter(dir), "which serves the folder "+filepath.Join(dir, pagesIn(dir))
	if c.FromJSON != "" {
		var err error
		if text, err = config.FromPublished(c.FromJSON); err != nil {
			return cli.BadConfig(c.FromJSON, err)
		}
		about = "which does what " + c.FromJSON + " says"
	}
	if c.File == "-" {
		_, err := io.WriteString(s.Out, text)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.File, flags, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return cli.Failure(fmt.Errorf("%s exists already", c.File), "to overwrite it: millrace init --force "+c.File)
	case errors.Is(err, fs.ErrNotExist):
		return cli.Failure(fmt.Errorf("there is no folder %s", dir), "`mkdir -p "+dir+"` makes it")
	case err != nil:
		return fmt.Errorf("writing the config: %w", err)
	}
	if _, err = io.WriteString(f, text); err == nil {
		err = f.Close()
	} else {
		_ = f.Close() // the first error says more
	}
	if err != nil {
		return fmt.Errorf("writing the config: %w", err)
	}
	s.Print("wrote %s, %s\n", c.File, about)
	if c.FromJSON == "" && config.CheckDir(filepath.Join(dir, pagesIn(dir))) != nil {
		s.Print("  make that folder and put pages there: mkdir %s\n", filepath.Join(dir, pagesIn(dir)))
	}
	name := ""
	if c.File != config.FileName {
		name = " " + c.File
	}
	option := strings.Replace(name, " ", " --config ", 1)
	s.Print("  next: millrace check%s && millrace serve%s\n", name, option)
	return nil
}

// Starter is the starter for a folder.
func Starter(dir string) string {
	return strings.ReplaceAll(starter, starterRoot, pagesIn(dir))
}

// pagesIn is the folder below dir that site builders put pages into, if there
// is one. It is never dir itself: the config would be served with it.
func pagesIn(dir string) string {
	for _, name := range []string{"public", "dist", "_site", "site", "build", "html", "www"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			return "./" + name
		}
	}
	return starterRoot
}
