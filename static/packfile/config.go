package packfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ConfigFile is a file that the config of a packed site includes.
type ConfigFile struct {
	Name string // below the config's folder, with slashes
	Data []byte
}

// beginsFile begins the line before each file behind the first: to YAML it is a
// comment.
const beginsFile = "# --- millrace pack: the file "

// JoinConfig puts the files that a config includes behind it.
func JoinConfig(config []byte, files []ConfigFile) ([]byte, error) {
	out := bytes.Clone(config)
	for _, f := range append([]ConfigFile{{Name: "the config", Data: config}}, files...) {
		if bytes.HasPrefix(f.Data, []byte(beginsFile)) || bytes.Contains(f.Data, []byte("\n"+beginsFile)) {
			return nil, fmt.Errorf("%s has a line that begins with %q, which is what packing writes between files: remove it", f.Name, beginsFile)
		}
	}
	for _, f := range files {
		if !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, "\r\n") {
			return nil, fmt.Errorf("%s is not below the config's folder: a packed site has its files there", f.Name)
		}
		out = append(out, "\n"+beginsFile+f.Name+"\n"...)
		out = append(out, f.Data...)
	}
	return out, nil
}

// SplitConfig takes apart what JoinConfig has put together.
func SplitConfig(data []byte) (config []byte, files []ConfigFile) {
	parts := bytes.Split(data, []byte("\n"+beginsFile))
	for _, p := range parts[1:] {
		name, text, _ := bytes.Cut(p, []byte("\n"))
		files = append(files, ConfigFile{string(name), text})
	}
	return parts[0], files
}

// copyConfig writes the config of a site and what it includes below a folder.
func copyConfig(to string, data []byte) error {
	config, files := SplitConfig(data)
	if err := copyOut(to, bytes.NewReader(config)); err != nil {
		return err
	}
	for _, f := range files {
		at := within(filepath.Dir(to), f.Name)
		if at == "" {
			continue // never: JoinConfig refuses them
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as for all that is unpacked
			return fmt.Errorf("unpacking the config: %w", err)
		}
		if err := copyOut(at, bytes.NewReader(f.Data)); err != nil {
			return err
		}
	}
	return nil
}
