package packfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/negotiate"
)

// Listed is a file as programs list it.
type Listed struct {
	Root     string           `json:"root"`
	Name     string           `json:"name"`
	Type     string           `json:"type"`
	Modified string           `json:"modified"` // RFC 3339
	SHA256   string           `json:"sha256"`
	Bytes    map[string]int64 `json:"bytes"` // by encoding
}

// Files is how many there are.
func (s *Site) Files() (n int) {
	for _, r := range s.Roots {
		n += len(r.Files)
	}
	return n
}

// Listed are all files.
func (s *Site) Listed() []Listed {
	all := make([]Listed, 0, s.Files())
	for _, r := range s.Roots {
		for _, f := range r.Files {
			one := Listed{
				r.Name, f.Name, f.Type, time.Unix(f.Modified, 0).UTC().Format(time.RFC3339),
				fmt.Sprintf("%x", f.Bodies[negotiate.Identity].Sum),
				map[string]int64{},
			}
			for c, b := range f.Bodies {
				if b.Offset != 0 {
					one.Bytes[negotiate.Coding(c).String()] = b.Size
				}
			}
			all = append(all, one)
		}
	}
	return all
}

// WriteList lists all files for people.
func (s *Site) WriteList(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, r := range s.Roots {
		if len(s.Roots) > 1 {
			_, _ = fmt.Fprintf(out, "%s:\n", r.Name) // Flush tells
		}
		for _, f := range r.Files {
			_, _ = fmt.Fprintf(out, "%10d  %s", f.Bodies[negotiate.Identity].Size, Shown(f.Name))
			for c := negotiate.Gzip; c < negotiate.Codings; c++ {
				if b := f.Bodies[c]; b.Offset != 0 {
					_, _ = fmt.Fprintf(out, "  %s %d", c, b.Size)
				}
			}
			_ = out.WriteByte('\n')
		}
	}
	return out.Flush()
}

// Shown is a name as a terminal may print it: quoted, as Go writes a string, where it
// has characters that would not be seen or that a terminal obeys.
func Shown(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// ErrNotEmpty says that Unpack writes only to a folder of its own.
var ErrNotEmpty = errors.New("the folder is not empty")

// Unpack writes all files below dir, with their dates, and the config as a file
// of that name, unless it is [FolderConfig]. A root that is no path below the config's folder
// gets a folder with a name made of its own.
func (s *Site) Unpack(dir, config string) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at %s: %w", dir, err)
	}
	if len(list) > 0 {
		return ErrNotEmpty
	}
	for _, r := range s.Roots {
		to := within(dir, r.Name)
		if to == "" {
			to = filepath.Join(dir, "root-"+strings.ReplaceAll(strings.Trim(filepath.ToSlash(r.Name), "/."), "/", "-"))
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", to, err)
		}
		folder := s.Folder(r.Name)
		for _, f := range r.Files {
			if err := folder.unpack(f, to); err != nil {
				return fmt.Errorf("unpacking %s: %w", Shown(f.Name), err)
			}
		}
	}
	if string(s.Config) == FolderConfig {
		return nil
	}
	return copyConfig(filepath.Join(dir, config), s.Config)
}

// within is where a name belongs below a folder; "" is nowhere.
func within(dir, name string) string {
	if local := filepath.FromSlash(name); filepath.IsLocal(local) {
		return filepath.Join(dir, local)
	}
	return ""
}

// unpack writes one file below dir.
func (f *Folder) unpack(file File, dir string) error {
	name := within(dir, file.Name)
	if name == "" {
		return errors.New("no file of this system can have that name")
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	in, err := f.Open(file.Name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	if err := copyOut(name, in); err != nil {
		return err
	}
	at := time.Unix(file.Modified, 0)
	return os.Chtimes(name, at, at)
}

// copyOut writes all of r to a new file.
func copyOut(name string, r io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, r); err != nil {
		_ = f.Close() // the first error says more
		return err
	}
	return f.Close()
}
