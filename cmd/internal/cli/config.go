package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/config"
)

// BadConfig puts a headline over the findings in a config.
func BadConfig(file string, err error) error {
	if found, ok := errors.AsType[config.Findings](err); ok {
		if file == "" {
			return found
		}
		return fmt.Errorf("%s has %s\n\n%w", file, Count(len(found), "mistake"), found)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if near := config.Near(file); near != "" {
			return Failure(fmt.Errorf("there is no file %s", file), "did you mean "+near+"?")
		}
		return Failure(fmt.Errorf("there is no file %s", file), "`millrace init "+file+"` writes one to start from")
	}
	return err
}

// CheckDir says why a folder on the command line cannot be served. verb is what
// was typed before it: "millrace serve".
func CheckDir(verb, dir string) error {
	err := config.CheckDir(dir)
	if err == nil {
		return nil
	}
	hint := "name a folder with files: " + verb + " DIR"
	switch info, statErr := os.Stat(dir); {
	case statErr == nil && !info.IsDir() && (strings.HasSuffix(dir, ".yaml") || strings.HasSuffix(dir, ".yml")):
		hint = fmt.Sprintf("to serve what that config says: %s --config %s", verb, dir)
	case statErr == nil && !info.IsDir():
		hint = fmt.Sprintf("to serve the folder it is in: %s %s", verb, filepath.Dir(dir))
	case errors.Is(statErr, fs.ErrNotExist):
		if near := config.Near(dir); near != "" {
			hint = "did you mean: " + verb + " " + near
		}
	}
	return Failure(err, hint)
}
