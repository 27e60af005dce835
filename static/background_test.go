package static

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
	"millrace/internal/process/servertest"
)

// shared opens n folders with one Background, each with the files.
func shared(t *testing.T, b *Background, n int, files map[string]string) (handlers []*Handler, dirs []string) {
	t.Helper()
	top := t.TempDir()
	for i := range n {
		dir := filepath.Join(top, fmt.Sprint(i))
		write(t, dir, files)
		h, err := Open(dir, Options{Background: b})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		handlers, dirs = append(handlers, h), append(dirs, dir)
	}
	return handlers, dirs
}

func background(t *testing.T, descriptors int) *Background {
	t.Helper()
	b := NewBackground(descriptors, nil)
	t.Cleanup(func() { b.Close() })
	return b
}

func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	return len(entries)
}

// Folders cost no descriptor before they are visited, and few afterwards.
func TestFoldersShareDescriptors(t *testing.T) {
	before := descriptorsOpen(t)
	b := background(t, 1024)
	large := strings.Repeat("x", heldBytes+1)
	handlers, _ := shared(t, b, 300, map[string]string{"index.html": "page", "large.bin": large})
	if now := descriptorsOpen(t); now > before+10 {
		t.Errorf("%d descriptors for 300 folders that nobody has visited", now-before)
	}
	for range 2 {
		for i, h := range handlers {
			if w := ask(h, "GET", "/"); w.Code != 200 || w.Body.String() != "page" {
				t.Fatalf("folder %d: %d %q", i, w.Code, w.Body)
			}
			if w := ask(h, "GET", "/large.bin"); w.Code != 200 || w.Body.Len() != len(large) {
				t.Fatalf("folder %d: %d, %d bytes", i, w.Code, w.Body.Len())
			}
		}
	}
	if files := b.files.Load(); files > 1024/fileShare {
		t.Errorf("%d files are open", files)
	}
	if most := 1024/folderShare + 1024/fileShare + maxWatched*4 + 10; descriptorsOpen(t) > before+most {
		t.Errorf("%d descriptors, of at most %d", descriptorsOpen(t)-before, most)
	}
}

// A folder whose directory was closed meanwhile is as good as another: also while it is
// closed again and again.
func TestDirectoriesAreOpenedAgain(t *testing.T) {
	b := background(t, 0)
	b.maxFolders = 2
	handlers, dirs := shared(t, b, 8, map[string]string{"a.txt": "a", "b/c.txt": "c"})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				for i, h := range handlers {
					if w := ask(h, "GET", "/none"); w.Code != 404 {
						t.Errorf("folder %d: %d for what is not there", i, w.Code)
						return
					}
					if w := ask(h, "GET", "/b/c.txt"); w.Code != 200 || w.Body.String() != "c" {
						t.Errorf("folder %d: %d %q", i, w.Code, w.Body)
						return
					}
				}
			}
		})
	}
	all.Wait()
	write(t, dirs[0], map[string]string{"a.txt": "changed", "new.txt": "new"})
	servertest.Eventually(t, "the change shows", func() bool {
		return ask(handlers[0], "GET", "/a.txt").Body.String() == "changed" && ask(handlers[0], "GET", "/new.txt").Code == 200
	})
}

// A link that leads elsewhere while the directory is not open is followed all the same.
func TestLinkIsSwitchedWhileClosed(t *testing.T) {
	top := t.TempDir()
	write(t, top, map[string]string{"one/index.html": "one", "two/index.html": "two"})
	link := filepath.Join(top, "current")
	if err := os.Symlink("one", link); err != nil {
		t.Skip("needs symbolic links")
	}
	b := background(t, 0)
	h, err := Open(link, Options{Background: b})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if w := ask(h, "GET", "/"); w.Body.String() != "one" {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	h.trees[0].shut()
	if err := os.Symlink("two", link+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".new", link); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the link's new folder shows", func() bool { return ask(h, "GET", "/").Body.String() == "two" })
}

// That is told as well where a request has opened the new directory before the sweep
// has looked: watches are on the old one.
func TestDirectoryThatIsAnotherOne(t *testing.T) {
	top := t.TempDir()
	write(t, top, map[string]string{"one/a": "", "two/a": ""})
	link := filepath.Join(top, "current")
	if err := os.Symlink("one", link); err != nil {
		t.Skip("needs symbolic links")
	}
	one, err := openTree(link)
	if err != nil {
		t.Fatal(err)
	}
	defer one.close()
	for i, to := range []string{"one", "two", "two"} {
		if err := errors.Join(os.Remove(link), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
		if _, err := one.directory(); err != nil {
			t.Fatal(err)
		}
		if changed := one.refresh(); changed != (i == 1) {
			t.Errorf("step %d: changed %v", i, changed)
		}
		one.shut()
	}
}

// Nothing is swept before the first visitor.
func TestNothingIsSweptForNobody(t *testing.T) {
	b := background(t, 0)
	handlers, _ := shared(t, b, 3, map[string]string{"a.txt": "a"})
	if b.sweeping {
		t.Error("folders that nobody has visited are swept")
	}
	ask(handlers[0], "GET", "/a.txt")
	if !b.sweeping {
		t.Error("a file that is held is not swept")
	}
}

// TestSweepWithoutClients: while no client is connected nothing is swept, and the first one
// that comes finds no answer of before a change.
func TestSweepWithoutClients(t *testing.T) {
	long := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.txt")
	save := func(text string, age time.Duration) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{file, dir} {
			if err := os.Chtimes(name, long.Add(-age), long.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
	}
	save("old", 2*time.Hour)
	synctest.Test(t, func(t *testing.T) {
		var clients meter.Presence
		b := NewBackground(0, &clients)
		defer b.Close()
		h := opener(swept)(t, dir, Options{Background: b})
		defer h.Close()
		clients.Add(1)
		ask(h, "GET", "/a.txt")
		e := h.table.all()[0]
		held := e.snapshot.Load()
		time.Sleep(time.Hour)
		if looked := time.Since(time.Unix(0, held.checked.Load())); !held.valid() || looked > sweepEvery {
			t.Fatalf("with a client, the file was looked at %v ago, valid %t", looked, held.valid())
		}
		clients.Add(-1)
		time.Sleep(time.Hour)
		if looked := time.Since(time.Unix(0, held.checked.Load())); looked < time.Hour-2*sweepEvery {
			t.Errorf("without a client, the file was looked at %v ago", looked)
		}
		save("other", time.Hour)
		if !held.valid() {
			t.Fatal("the change was noticed without a sweep: the test proves nothing")
		}
		clients.Add(1)
		if held.valid() {
			t.Error("the first client may get an answer of before the change")
		}
	})
}

// Closing waits for the work on this folder, and for nothing of the others.
func TestCloseLeavesTheOthers(t *testing.T) {
	b := background(t, 0)
	css := strings.Repeat("a { color: red }\n", 200)
	handlers, _ := shared(t, b, 4, map[string]string{"a.css": css})
	for _, h := range handlers {
		ask(h, "GET", "/a.css")
	}
	if err := handlers[0].Close(); err != nil {
		t.Fatal(err)
	}
	if w := ask(handlers[0], "GET", "/a.css"); w.Code != 503 {
		t.Errorf("the closed one: %d", w.Code)
	}
	servertest.Eventually(t, "the others are compressed", func() bool {
		for _, h := range handlers[1:] {
			if ask(h, "GET", "/a.css", "Accept-Encoding", "gzip").Header().Get("Content-Encoding") != "gzip" {
				return false
			}
		}
		return true
	})
	if b.files.Load() != 0 {
		t.Errorf("%d files are open", b.files.Load())
	}
}
