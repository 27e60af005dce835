package static

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"millrace/internal/lane"
	"millrace/internal/process/servertest"
)

// opener opens a directory that learns of changes in one way only.
func opener(how freshness) func(t testing.TB, dir string, o Options) *Handler {
	return func(t testing.TB, dir string, o Options) *Handler {
		t.Helper()
		o.Root = dir
		all, err := openTrees(o.Folders())
		if err != nil {
			t.Fatal(err)
		}
		h, err := start(all, o)
		if err != nil {
			t.Fatal(err)
		}
		h.keepCurrent(how)
		h.wake()
		if how&watched != 0 && h.watch == nil {
			t.Skip("needs inotify")
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
}

// versionOf asks for a file and returns what the lane would have held on to.
func versionOf(t testing.TB, h *Handler, target, want string) lane.Version {
	t.Helper()
	w := ask(h, "GET", target)
	if w.Code != 200 || w.Body.String() != want {
		t.Fatalf("%s: %d %.40q, want %.40q", target, w.Code, w.Body, want)
	}
	return h.table.get(strings.TrimPrefix(target, "/")).snapshot.Load().version
}

// settled asks for a file until its snapshot is no longer racy, so that only a
// change can void it.
func settled(t testing.TB, h *Handler, target, want string) (m lane.Version) {
	t.Helper()
	servertest.Eventually(t, target+" settles", func() bool {
		m = versionOf(t, h, target, want)
		s := h.table.get(strings.TrimPrefix(target, "/")).snapshot.Load()
		if s != nil && s.racy {
			h.sweep()
		}
		return s != nil && !s.racy && !slices.Contains(*s.dirs.Load(), stamp{}) && m.Valid()
	})
	return m
}

// changes are all the ways in which a file's content, or what is served for
// it, can change. want is the content afterwards, empty for 404.
var changes = []struct {
	name, target, want string
	change             func(dir string) error
}{
	{"edited in place", "/sub/a.txt", "new", func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "sub/a.txt"), []byte("new"), 0o644)
	}},
	{"edited with its date put back", "/sub/a.txt", "new", func(dir string) error {
		name := filepath.Join(dir, "sub/a.txt")
		if err := os.WriteFile(name, []byte("new"), 0o644); err != nil {
			return err
		}
		return os.Chtimes(name, past, past)
	}},
	{"replaced by a rename", "/sub/a.txt", "new", func(dir string) error {
		name := filepath.Join(dir, "sub/.tmp")
		if err := os.WriteFile(name, []byte("new"), 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(name, past, past); err != nil {
			return err
		}
		return os.Rename(name, filepath.Join(dir, "sub/a.txt"))
	}},
	{"removed", "/sub/a.txt", "", func(dir string) error { return os.Remove(filepath.Join(dir, "sub/a.txt")) }},
	{"directory removed", "/sub/a.txt", "", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "sub")) }},
	{"directory replaced", "/sub/a.txt", "new", func(dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "next"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "next/a.txt"), []byte("new"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "previous")); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "sub"))
	}},
	{"link above switched", "/link/a.txt", "new", func(dir string) error {
		if err := os.MkdirAll(filepath.Join(dir, "v2"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "v2/a.txt"), []byte("new"), 0o644); err != nil {
			return err
		}
		if err := os.Symlink("v2", filepath.Join(dir, "tmp")); err != nil {
			return err
		}
		return os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "link"))
	}},
	{"another index comes first", "/sub/", "new", func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "sub/first.html"), []byte("new"), 0o644)
	}},
	{"deeper directory removed", "/x/y/z/a.txt", "", func(dir string) error { return os.RemoveAll(filepath.Join(dir, "x")) }},
	{"large one edited", "/large.bin", "new", func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "large.bin"), []byte("new"), 0o644)
	}},
}

func changingSite(t *testing.T) (dir string, contents map[string]string) {
	dir = t.TempDir()
	large := strings.Repeat("l", heldBytes+1)
	write(t, dir, map[string]string{"sub/a.txt": "old", "v1/a.txt": "old", "sub/index.html": "old", "x/y/z/a.txt": "old", "large.bin": large})
	if err := os.Symlink("v1", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir, map[string]string{"/large.bin": large}
}

func testChanges(t *testing.T, how freshness, after func(h *Handler)) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			dir, contents := changingSite(t)
			h := opener(how)(t, dir, Options{Index: []string{"first.html", "index.html"}})
			old := contents[c.target]
			if old == "" {
				old = "old"
			}
			m := settled(t, h, c.target, old)
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			after(h)
			servertest.Eventually(t, "the lane's answer falls", func() bool { return !m.Valid() })
			// Nothing but the last state may be remembered, however soon one asks.
			servertest.Eventually(t, "the new state is served", func() bool {
				w := ask(h, "GET", c.target)
				if c.want == "" {
					return w.Code == 404
				}
				return w.Code == 200 && w.Body.String() == c.want
			})
		})
	}
}

func TestChangesAreWatched(t *testing.T) { testChanges(t, watched, func(*Handler) {}) }

func TestChangesAreSweptWhereNothingIsWatched(t *testing.T) {
	testChanges(t, 0, (*Handler).sweep)
}

// Whoever has the old bytes of a file that was edited in place and given its
// old size and date must get the new ones.
func TestAnEditWithItsDatePutBackHasAnotherTag(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "large.bin")
	old := time.Now().Add(-time.Hour)
	put := func(content string) {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(content); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	first, second := strings.Repeat("a", 100<<10), strings.Repeat("b", 100<<10)
	put(first)
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	tag := ask(open(t, dir, Options{}), "GET", "/large.bin").Header().Get("Etag")
	if stampOf(before).ctime == 0 {
		t.Skip("the system does not tell when an inode was changed")
	}
	put(second)
	// A handler of its own, as after a restart: only the tag tells them apart.
	got := ask(open(t, dir, Options{}), "GET", "/large.bin", "If-None-Match", tag)
	if got.Code != 200 || got.Body.String() != second || got.Header().Get("Etag") == tag {
		t.Errorf("with the old tag %s: %d, tag %s, %d bytes", tag, got.Code, got.Header().Get("Etag"), got.Body.Len())
	}
	got = ask(open(t, dir, Options{}), "GET", "/large.bin", "If-Range", tag, "Range", "bytes=10-19")
	if got.Code != 200 {
		t.Errorf("the rest of the old file: %d", got.Code)
	}
}

func TestSiblingsAppearAndGo(t *testing.T) {
	for kind, how := range map[string]freshness{"watched": watched, "swept": swept} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"a.txt": "plain"})
			h := opener(how)(t, dir, Options{})
			settled(t, h, "/a.txt", "plain")
			write(t, dir, map[string]string{"a.txt.gz": "zipped"})
			servertest.Eventually(t, "the sibling is used", func() bool {
				return ask(h, "GET", "/a.txt", "Accept-Encoding", "gzip").Body.String() == "zipped"
			})
			if err := os.Remove(filepath.Join(dir, "a.txt.gz")); err != nil {
				t.Fatal(err)
			}
			servertest.Eventually(t, "the sibling is gone", func() bool {
				return ask(h, "GET", "/a.txt", "Accept-Encoding", "gzip").Body.String() == "plain"
			})
		})
	}
}

func TestRootThatIsASwitchedLink(t *testing.T) {
	top := t.TempDir()
	write(t, top, map[string]string{"v1/a.txt": "old", "v2/a.txt": "new"})
	current := filepath.Join(top, "current")
	if err := os.Symlink("v1", current); err != nil {
		t.Fatal(err)
	}
	h := open(t, current, Options{})
	m := settled(t, h, "/a.txt", "old")
	if err := os.Symlink("v2", current+"~"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(current+"~", current); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the lane's answer falls", func() bool { return !m.Valid() })
	versionOf(t, h, "/a.txt", "new")
}

func TestAnUnrelatedChangeVoidsNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "a"})
	h := opener(0)(t, dir, Options{})
	m := settled(t, h, "/a.txt", "a")
	write(t, dir, map[string]string{"b.txt": "b"})
	h.sweep()
	h.sweep()
	if !m.Valid() {
		t.Error("another file in the same directory voided it")
	}
}

func TestFreshFilesAreReadTwice(t *testing.T) {
	// A second edit within the same tick of the clock leaves no trace in the
	// stamp, so what was read that early may not be trusted.
	now := time.Now()
	for age, want := range map[time.Duration]bool{0: true, clockTick / 2: true, 2 * clockTick: false, -time.Hour: false} {
		s := stamp{ctime: now.Add(-age).UnixNano() | 1}
		if got := s.racy(now); got != want {
			t.Errorf("%v old: %v", age, got)
		}
	}
	whole := now.Truncate(time.Second)
	if s := (stamp{mtime: whole.UnixNano()}); !s.racy(whole.Add(time.Second)) {
		t.Error("a file system that counts seconds was trusted within one")
	}
	if (stamp{}).racy(now) {
		t.Error("no date is not a young date")
	}
}

func TestLateReadersCannotBringOldBytesBack(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "old"})
	h := opener(0)(t, dir, Options{})
	e := h.table.obtain("a.txt")
	s, err := h.read(e) // a reader is at this point …
	if err != nil {
		t.Fatal(err)
	}
	e.void() // … when the watcher hears of an edit
	if h.table.install(e, s); s.valid() || s.version.Valid() {
		t.Error("what was read before the edit is valid after it")
	}
}

// lockedFS is a file system whose files change under its lock.
type lockedFS struct {
	mu    sync.Mutex
	files fstest.MapFS
}

func (l *lockedFS) Open(name string) (fs.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files.Open(name)
}

func (l *lockedFS) set(name, content string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[name] = &fstest.MapFile{Data: []byte(content), ModTime: at}
}

func TestFileSystemsAreSweptWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &lockedFS{files: fstest.MapFS{}}
		files.set("a.txt", "old", past)
		h := serveFS(t, files, Options{})
		m := versionOf(t, h, "/a.txt", "old")
		time.Sleep(10 * time.Second)
		if !m.Valid() {
			t.Error("voided without a change")
		}
		files.set("a.txt", "new", past.Add(time.Second))
		time.Sleep(time.Second)
		if m.Valid() {
			t.Error("a second later the lane still has the old one")
		}
		versionOf(t, h, "/a.txt", "new")
		h.Close()
	})
}

// moving is a file that is longer whenever one looks.
type moving struct{ n *int64 }

func (m moving) Open(name string) (fs.File, error) {
	if name == "." {
		return fstest.MapFS{}.Open(".")
	}
	if name != "log.txt" {
		return nil, fs.ErrNotExist
	}
	*m.n++
	f, err := fstest.MapFS{name: {Data: []byte(strings.Repeat("x", int(*m.n)))}}.Open(name)
	return f, err
}

func TestAFileThatNeverHoldsStillIsServedButNotRemembered(t *testing.T) {
	h := serveFS(t, moving{new(int64)}, Options{})
	w := ask(h, "GET", "/log.txt")
	if w.Code != 200 || w.Body.Len() == 0 || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("ETag") != "" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	if s := h.table.get("log.txt").snapshot.Load(); s != nil {
		t.Error("remembered")
	}
}

func TestEditsUnderLoadNeverMix(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.txt")
	content := func(i int) string { return strings.Repeat(fmt.Sprintf("%08d\n", i), 200) }
	swap := func(i int) {
		if err := os.WriteFile(name+"~", []byte(content(i)), 0o644); err != nil {
			t.Error(err)
		}
		if err := os.Rename(name+"~", name); err != nil {
			t.Error(err)
		}
	}
	swap(0)
	h := open(t, dir, Options{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				w := ask(h, "GET", "/a.txt", "Accept-Encoding", "identity")
				body := w.Body.String()
				if w.Code != 200 || len(body) != len(content(0)) || strings.Count(body, body[:9]) != 200 {
					t.Errorf("%d, a mix of %d bytes", w.Code, len(body))
					return
				}
			}
		})
	}
	const edits = 200
	for i := range edits {
		swap(i + 1)
	}
	close(stop)
	readers.Wait()
	servertest.Eventually(t, "the last edit is served", func() bool {
		return ask(h, "GET", "/a.txt").Body.String() == content(edits)
	})
	// And nothing older comes back.
	h.sweep()
	if got := ask(h, "GET", "/a.txt").Body.String(); got != content(edits) {
		t.Errorf("went back to %.8s", got)
	}
}
