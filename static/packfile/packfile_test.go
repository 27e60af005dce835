package packfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/internal/wire/negotiate"
)

const program = "not really a program"

// pack writes a small site and returns the file's name.
func pack(t testing.TB, base string) string {
	t.Helper()
	dir := t.TempDir()
	from, err := os.Create(filepath.Join(dir, "base"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := from.WriteString(base); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "site")
	if err := os.WriteFile(name, write(t, from), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func write(t testing.TB, base *os.File) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, base)
	if err != nil {
		t.Fatal(err)
	}
	add := func(text string) Body {
		b, err := w.Add([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	file := func(name, text string) File {
		return File{Name: name, Type: "text/plain", Modified: 1e9, Bodies: [negotiate.Codings]Body{negotiate.Identity: add(text)}}
	}
	root := Root{Name: ".", Files: []File{file("a-b", "x"), file("a/b", "first"), file("a/c/d", "first"), file("empty", ""), file("z", strings.Repeat("z", 5000))}}
	root.Files[4].Bodies[negotiate.Brotli] = add("packed z")
	large, err := w.Copy(strings.NewReader("streamed"), 8)
	if err != nil {
		t.Fatal(err)
	}
	other := Root{Name: "other", Files: []File{{Name: "s", Bodies: [negotiate.Codings]Body{negotiate.Identity: large}}}}
	if n, err := w.Finish(Index{Config: []byte("config"), Roots: []Root{root, other}}); err != nil || n != int64(out.Len()) {
		t.Fatalf("%d bytes of %d, %v", n, out.Len(), err)
	}
	return out.Bytes()
}

func open(t testing.TB, name string) *Site {
	t.Helper()
	s, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRoundTrip(t *testing.T) {
	s := open(t, pack(t, program))
	if err := fstest.TestFS(s.Folder("."), "a-b", "a/b", "a/c/d", "empty", "z"); err != nil {
		t.Error(err)
	}
	if s.Files() != 6 || string(s.Config) != "config" || s.Folder("none") != nil {
		t.Errorf("%d files, config %q", s.Files(), s.Config)
	}
	one, _ := s.Folder(".").Body("a/b", negotiate.Identity)
	two, _ := s.Folder(".").Body("a/c/d", negotiate.Identity)
	if one != two {
		t.Errorf("the same content is at %d and %d", one.Offset, two.Offset)
	}
	if _, ok := s.Folder(".").Body("a/b", negotiate.Gzip); ok {
		t.Error("an encoding that was not packed")
	}
	if b, _ := s.Folder(".").Body("z", negotiate.Brotli); b.Size != 8 {
		t.Errorf("brotli: %v", b)
	}
	steps := 0
	if err := s.Verify(func() { steps++ }); err != nil || steps != 6 {
		t.Errorf("%v after %d files", err, steps)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := s.Unpack(dir, "c.yaml"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a/b": "first", "a/c/d": "first", "empty": "", "other/s": "streamed", "c.yaml": "config"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := s.Unpack(dir, ""); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("unpacked twice: %v", err)
	}
	var list bytes.Buffer
	if err := s.WriteList(&list); err != nil || !strings.Contains(list.String(), "5000  z  br 8\n") || len(s.Listed()) != 6 {
		t.Errorf("%v\n%s", err, &list)
	}
}

// A packed file as a base gives its program alone, so that packing behind it
// makes what packing behind the program does.
func TestPackingAgainReplacesTheSite(t *testing.T) {
	name := pack(t, program)
	was, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if again := write(t, f); !bytes.Equal(was, again) {
		t.Error("other bytes")
	}
}

// Every body lies on as few pages as it can, and small ones share them.
func TestPages(t *testing.T) {
	base, err := os.Open(pack(t, program))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	var out bytes.Buffer
	w, err := NewWriter(&out, base)
	if err != nil {
		t.Fatal(err)
	}
	used := map[int64]bool{}
	for i, size := range []int{100, 4000, 1, 5000, 3000, 4096, 300, 8192, 0, 12_000, 200, 4095, 1} {
		body := bytes.Repeat([]byte{byte(i)}, size)
		var b Body
		if i%2 == 0 {
			b, err = w.Add(body)
		} else {
			b, err = w.Copy(bytes.NewReader(body), int64(size))
		}
		if err != nil {
			t.Fatal(err)
		}
		first, last := b.Offset/Align, (b.Offset+b.Size-1)/Align
		if pages, least := last-first+1, (b.Size+Align-1)/Align; b.Size > 0 && pages != least {
			t.Errorf("%d bytes at %d lie on %d pages", size, b.Offset, pages)
		}
		for page := first; page <= last; page++ {
			used[page] = true
		}
	}
	if _, err := w.Finish(Index{Roots: []Root{{}}}); err != nil {
		t.Fatal(err)
	}
	if len(used) != 12 { // 17 if each body began on a page
		t.Errorf("%d pages", len(used))
	}
}

// Whatever byte is altered, and wherever it is cut off: nothing of it is served.
func TestAltered(t *testing.T) {
	name := pack(t, program)
	all, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, name)
	padding := func(at int) bool { // which no sum covers, and nobody reads
		if at < len(program) {
			return false
		}
		inBody := false
		_ = s.eachBody(func(_ string, b Body) error {
			inBody = inBody || int64(at) >= b.Offset && int64(at) < b.Offset+b.Size
			return nil
		})
		return !inBody && at < len(all)-trailerSize-len(s.encode())
	}
	tried := 0
	altered := filepath.Join(t.TempDir(), "altered")
	for at := len(program); at < len(all); at++ {
		if padding(at) || at%7 != 0 && at < len(all)-2*trailerSize && at > 8*Align/2 {
			continue
		}
		b := bytes.Clone(all)
		b[at] ^= 1
		if err := os.WriteFile(altered, b, 0o600); err != nil {
			t.Fatal(err)
		}
		tried++
		if got, err := Open(altered); err == nil {
			got.Close()
			t.Errorf("byte %d of %d was altered, and nobody noticed", at, len(all))
		}
	}
	if tried < trailerSize {
		t.Fatalf("%d bytes were tried", tried)
	}
	for cut := 1; cut < len(all); cut += 101 {
		if err := os.WriteFile(altered, all[:len(all)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Open(altered); err == nil {
			got.Close()
			t.Errorf("%d bytes are missing, and nobody noticed", cut)
		}
	}
	b := bytes.Clone(all)
	b[3] ^= 1 // the program
	if err := os.WriteFile(altered, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, altered).Verify(func() {}); !errors.Is(err, ErrAltered) {
		t.Errorf("the program was altered: %v", err)
	}
}

// Verify notices whatever bit is altered, also where nobody reads.
func TestVerifyCoversEveryByte(t *testing.T) {
	name := pack(t, program)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	flip := func(at int64) {
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << (at % 8)
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	const step = 5 // each takes 100 µs
	for at := int64(0); at < info.Size(); at += step {
		flip(at)
		s, err := Open(name)
		if err == nil {
			err = errors.Join(s.Verify(func() {}), s.Close())
		}
		// What begins the trailer says that there is one. A real program's end says so, too.
		first := at - (info.Size() - trailerSize)
		isTrailer := first >= 0 && first < int64(len(Magic))
		if noticed := errors.Is(err, ErrAltered) || isTrailer && errors.Is(err, ErrNone); !noticed {
			t.Fatalf("byte %d of %d was altered, and verify says %v", at, info.Size(), err)
		}
		flip(at)
	}
	if err := open(t, name).Verify(func() {}); err != nil {
		t.Errorf("nothing was altered: %v", err)
	}
}

// A real program that was packed and then cut off is not taken for a plain one.
func TestCutOffProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if programEnd(f) == 0 {
		t.Skip("not an ELF program")
	}
	if _, err := Open(self); !errors.Is(err, ErrNone) {
		t.Fatalf("a plain program: %v", err)
	}
	all := write(t, f)
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, all[:len(all)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cut); !errors.Is(err, ErrAltered) {
		t.Errorf("%v", err)
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

// Every write's error shows, whichever it is.
func TestFullDisk(t *testing.T) {
	for left := 0; left < 20000; left += 3000 {
		base, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWriter(&full{left}, base)
		if err == nil {
			_, err = w.Copy(io.LimitReader(neverEnding{}, 3<<20), 3<<20)
		}
		if err == nil {
			_, err = w.Finish(Index{})
		}
		base.Close()
		if err == nil {
			t.Errorf("room for %d bytes was enough", left)
		}
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) { return len(b), nil }

func FuzzIndex(f *testing.F) {
	file := File{Name: "a", Bodies: [negotiate.Codings]Body{negotiate.Identity: {Offset: 4096, Size: 3}}}
	x := Index{Config: []byte("c"), Roots: []Root{{Name: ".", Files: []File{file}}}}
	f.Add(x.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decode(string(b))
		if err != nil {
			return
		}
		again, err := decode(string(x.encode()))
		if err != nil || len(again.Roots) != len(x.Roots) {
			t.Errorf("not the same again: %v", err)
		}
	})
}

// TestOpenNamed: where there is no /proc, a program finds itself by its name.
func TestOpenNamed(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "nowhere"), "no-program-of-this-name"} {
		if _, err := openNamed(name); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openNamed(test); !errors.Is(err, ErrNone) { // found, and not packed
		t.Errorf("the test's own program: %v", err)
	}
}
