package packfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"millrace/internal/wire/negotiate"
)

// signed is a packed file with any index, whose sums are right: what somebody
// makes who knows the format and means harm.
func signed(bodies, index []byte) []byte {
	b := make([]byte, Align, Align+len(bodies)+len(index)+trailerSize)
	copy(b, program)
	b = append(append(b, bodies...), index...)
	t := trailer{
		base: int64(len(program)), index: int64(Align + len(bodies)), length: int64(len(index)),
		total: int64(len(b) + trailerSize), sum: sha256.Sum256(index),
	}
	return append(b, t.bytes()...)
}

// hostile are indexes over the given bodies that lie in one way each.
func hostile(bodies []byte) map[string][]byte {
	body := func(offset, size int64) Body {
		b := Body{Offset: offset, Size: size}
		if offset >= Align && offset-Align <= int64(len(bodies)) && size >= 0 && size <= int64(len(bodies))-(offset-Align) {
			b.Sum = sha256.Sum256(bodies[offset-Align:][:size])
		}
		return b
	}
	site := func(files ...File) []byte {
		x := Index{Config: []byte("c"), Roots: []Root{{Name: ".", Files: files}}}
		return x.encode()
	}
	file := func(name string, b Body) File {
		return File{Name: name, Bodies: [negotiate.Codings]Body{negotiate.Identity: b}}
	}
	rooted := func(name string) []byte {
		x := Index{Roots: []Root{{Name: name, Files: []File{file("f", body(Align, 3))}}, {Name: name, Files: []File{file("f", body(Align, 3))}}}}
		return x.encode()
	}
	huge := binary.AppendUvarint([]byte{0, 0}, 0)
	huge = append(huge, make([]byte, 1+sha256.Size)...)
	huge = binary.AppendUvarint(huge, math.MaxUint64)
	return map[string][]byte{
		"overlapping":        site(file("a", body(Align, 5)), file("b", body(Align+2, 5))),
		"behind the bodies":  site(file("a", body(Align+int64(len(bodies))-1, 2))),
		"in the program":     site(file("a", body(1, 3))),
		"negative size":      site(file("a", body(Align, -1))),
		"negative offset":    site(file("a", body(-Align, 3))),
		"largest size":       site(file("a", body(Align, math.MaxInt64))),
		"largest offset":     site(file("a", body(math.MaxInt64, math.MaxInt64))),
		"upwards":            site(file("../a", body(Align, 3))),
		"absolute":           site(file("/a", body(Align, 3))),
		"file and folder":    site(file("a", body(Align, 3)), file("a/b", body(Align, 3))),
		"twice":              site(file("a", body(Align, 3)), file("a", body(Align, 3))),
		"not sorted":         site(file("b", body(Align, 3)), file("a", body(Align, 3))),
		"no body":            site(file("a", Body{})),
		"wrong sum":          site(file("a", Body{Offset: Align, Size: 3})),
		"roots of one name":  rooted("."),
		"root upwards":       rooted("../../x"),
		"root of the system": rooted("/etc"),
		"root with a null":   rooted("a\x00b"),
		"countless roots":    huge,
		"odd names":          site(file("a\nb\x1b[2J", body(Align, 3)), file("a\xff", body(Align, 3)), file("con", body(Align, 3))),
	}
}

// use does with a packed file what programs do.
func use(t *testing.T, name string) {
	s, err := Open(name)
	if err != nil {
		return
	}
	defer s.Close()
	if err := s.CheckAll(context.Background()); err != nil && !errors.Is(err, ErrAltered) {
		t.Errorf("checking: %v", err)
	}
	_ = s.Verify(func() {})
	if err := s.WriteList(io.Discard); err != nil || len(s.Listed()) != s.Files() {
		t.Errorf("listing: %v", err)
	}
	var total int64
	for _, r := range s.Roots {
		folder := s.Folder(r.Name)
		for _, f := range r.Files {
			total += f.Bodies[negotiate.Identity].Size
			in, err := folder.Open(f.Name)
			if err != nil {
				continue // another root has the name, or it was altered
			}
			text, err := io.ReadAll(io.LimitReader(in, 1<<20))
			if at, ok := folder.find(f.Name); err != nil || ok && len(text) < 1<<20 && sha256.Sum256(text) != folder.files[at].Bodies[negotiate.Identity].Sum {
				t.Errorf("%q is not what its sum says: %v", f.Name, err)
			}
			if _, err := folder.ReadDir("."); err != nil {
				t.Errorf("the root cannot be listed: %v", err)
			}
		}
	}
	if total > 1<<20 {
		return
	}
	around := t.TempDir()
	dir := filepath.Join(around, "deep", "in")
	_ = s.Unpack(dir, "config.yaml")
	_ = filepath.WalkDir(around, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if in, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(in) {
				t.Errorf("%s was written, outside of the folder", path)
			}
		}
		return nil
	})
}

// TestHostile: whoever makes a packed file whose sums are right can make neither
// memory nor files outside of the folder out of it, and what lies outside of the
// bodies is never served.
func TestHostile(t *testing.T) {
	bodies := []byte("hello, world")
	refused := 0
	for what, index := range hostile(bodies) {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(name, signed(bodies, index), 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err := Open(name); err != nil {
				refused++
			} else {
				_ = s.eachBody(func(file string, b Body) error {
					if b.Offset < int64(len(program)) || b.Size < 0 || b.Offset+b.Size > Align+int64(len(bodies)) {
						t.Errorf("%s lies at %d with %d bytes", file, b.Offset, b.Size)
					}
					return nil
				})
				s.Close()
			}
			use(t, name)
		})
	}
	if refused < 12 {
		t.Errorf("only %d were refused", refused)
	}
}

// TestIndexOfCounts: an index that promises many files takes memory in
// proportion to its own length.
func TestIndexOfCounts(t *testing.T) {
	index := append([]byte{0, 0}, make([]byte, 2+sha256.Size)...) // no config, no plan, no base
	index = append(index, 1, 0)                                   // one root without a name
	const rest = 1 << 20
	index = binary.AppendUvarint(index, rest/4) // files
	index = append(index, make([]byte, rest)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decode(string(index))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 8*rest {
		t.Errorf("%d bytes for an index of %d: %v", took, len(index), err)
	}
}

func FuzzHostile(f *testing.F) {
	bodies := []byte("hello, world")
	for _, index := range hostile(bodies) {
		f.Add(index, bodies)
	}
	f.Fuzz(func(t *testing.T, index, bodies []byte) {
		if len(index)+len(bodies) > 1<<16 || bytes.Contains(bodies, []byte(Magic)) {
			return
		}
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, signed(bodies, index), 0o600); err != nil {
			t.Fatal(err)
		}
		use(t, name)
	})
}
