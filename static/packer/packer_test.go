package packer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/static/packfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// plan packs dir behind an empty program. Everything is compressed.
func plan(t testing.TB, dir string) Plan {
	t.Helper()
	temp := t.TempDir()
	write(t, temp, map[string]string{"base": ""})
	return Plan{
		Base: filepath.Join(temp, "base"), Out: filepath.Join(temp, "site"),
		Folders: []Folder{{Name: ".", Dir: dir, Type: func(string) (string, bool) { return "text/plain", true }}},
	}
}

func names(t testing.TB, file string) (all []string) {
	t.Helper()
	s, err := packfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, f := range s.Roots[0].Files {
		all = append(all, f.Name)
	}
	return all
}

// TestNamesAreShown: what a terminal obeys is not printed as it is, and what is no
// file is named.
func TestNamesAreShown(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"\x1b[31m.txt": "red"})
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skip(err)
	}
	defer ln.Close()
	p := plan(t, dir)
	var said []string
	p.Warn = func(text string) { said = append(said, text) }
	if _, err := Make(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.HasSuffix(said[0], "s is no file: left out") {
		t.Errorf("said %q", said)
	}
	s, err := packfile.Open(p.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var list bytes.Buffer
	if err := s.WriteList(&list); err != nil || !strings.Contains(list.String(), `"\x1b[31m.txt"`) {
		t.Errorf("listed %q (%v)", list.String(), err)
	}
}

// leftOver are the files beside the packed one.
func leftOver(t testing.TB, p Plan) (all []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(p.Out))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != "base" {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestTwiceTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("d%d/f%d.txt", i%7, i)] = strings.Repeat(fmt.Sprint("text ", i, " "), i)
	}
	write(t, dir, files)
	p := plan(t, dir)
	done := 0
	p.Progress = func(d, total int) {
		done++
		if d != done || total != 200 {
			t.Errorf("%d of %d after %d", d, total, done)
		}
	}
	sum, err := Make(t.Context(), p)
	if err != nil || sum.Files != 200 || done != 200 {
		t.Fatalf("%+v, %d steps, %v", sum, done, err)
	}
	first, err := os.ReadFile(p.Out)
	if err != nil || int64(len(first)) != sum.Size {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	p.Progress = nil
	if _, err := Make(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(p.Out); !bytes.Equal(first, again) {
		t.Error("packed twice, other bytes")
	}
	if info, err := os.Stat(p.Out); err != nil || info.Mode().Perm() != executable {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestOddFolders(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/x.txt": "x", "bad\xffname": "x", `back\slash`: "x", "ünïcode ☃/%2e": "x"})
	for link, to := range map[string]string{"a/loop": "..", "self": "self", "in": "a", "out": "..", "dangling": "nothing", "file": "a/x.txt"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	p := plan(t, dir)
	var warnings []string
	p.Warn = func(text string) { warnings = append(warnings, text) }
	if _, err := Make(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(names(t, p.Out), " ")
	if got != "a/x.txt file in/x.txt ünïcode ☃/%2e" {
		t.Errorf("packed %q", got)
	}
	if len(warnings) != 7 { // a/loop, in/loop, self, out, dangling, two names
		t.Errorf("%d warnings: %q", len(warnings), warnings)
	}
	// The file that is replaced is not packed into itself.
	p.Out = filepath.Join(dir, "a", "site")
	for range 2 {
		if _, err := Make(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(names(t, p.Out), " "); strings.Contains(got, "site") {
		t.Errorf("packed %q", got)
	}
}

func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "x", "b.txt": "x"})
	if err := os.Chmod(filepath.Join(dir, "a.txt"), 0); err != nil {
		t.Fatal(err)
	}
	p := plan(t, dir)
	if _, err := Make(t.Context(), p); err == nil || !strings.Contains(err.Error(), "a.txt: permission denied") {
		t.Errorf("%v", err)
	}
	if left := leftOver(t, p); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// A file that never holds still is an error, and what was there stays.
func TestAFileThatChanges(t *testing.T) {
	for _, size := range []int{1 << 20, maxCompressed + 1} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"log.bin": strings.Repeat("x", size)})
		p := plan(t, dir)
		p.Folders[0].NoCompress = true
		write(t, filepath.Dir(p.Out), map[string]string{"site": "as it was"})
		var stop atomic.Bool
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for n := 0; !stop.Load(); n++ {
				at := time.Unix(1e9+int64(n), 0)
				_ = os.Chtimes(filepath.Join(dir, "log.bin"), at, at)
			}
		}()
		var err error
		for deadline := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(deadline); {
			if _, err = Make(t.Context(), p); err == nil { // it held still by chance
				write(t, filepath.Dir(p.Out), map[string]string{"site": "as it was"})
			}
		}
		stop.Store(true)
		<-gone
		if !errors.Is(err, errMoving) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if b, _ := os.ReadFile(p.Out); string(b) != "as it was" {
			t.Errorf("%d bytes: what was there is gone", size)
		}
		if left := leftOver(t, p); len(left) != 1 {
			t.Errorf("left over: %v", left)
		}
	}
}

func TestStopped(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": strings.Repeat("x", 1000), "b.txt": strings.Repeat("y", 1000)})
	ctx, cancel := context.WithCancel(t.Context())
	p := plan(t, dir)
	p.Progress = func(int, int) { cancel() }
	if _, err := Make(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := leftOver(t, p); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
