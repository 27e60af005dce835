package embed

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	experiment "millrace/lab/experiment/former"
)

// overlay writes the file for go build's -overlay that puts files, which lie in
// dir, into the folder that the subjects embed: so megabytes of noise can be in
// an executable without being in the repository.
func overlay(name, dir, into string, files []experiment.File) error {
	replace := map[string]string{}
	for _, f := range files {
		at := filepath.FromSlash(f.Name)
		replace[filepath.Join(into, at)] = filepath.Join(dir, at)
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return fmt.Errorf("writing the overlay of the embedded files: %w", err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return fmt.Errorf("writing the overlay of the embedded files: %w", err)
	}
	return nil
}

// ldflags put every file into a variable of package main: text as it is,
// images in base64, since a flag can hold no zero byte.
func ldflags(files []experiment.File, hash string) string {
	var b strings.Builder
	set := func(name, value string) {
		// The go command splits at white space outside quotes and knows no
		// escapes; no text of the site holds this quote (a test sees to it).
		fmt.Fprintf(&b, " -X 'main.%s=%s'", name, value)
	}
	for _, f := range files {
		if f.Binary() {
			set(f.Variable, base64.StdEncoding.EncodeToString(f.Content()))
		} else {
			set(f.Variable, string(f.Content()))
		}
	}
	set("gitHash", hash)
	return "-ldflags=" + b.String()[1:]
}
