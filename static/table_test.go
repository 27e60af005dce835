package static

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/static/original"
)

func TestMemoryIsBounded(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 100 {
		files[fmt.Sprintf("%d.bin", i)] = &fstest.MapFile{Data: make([]byte, 10_000)}
	}
	h := serveFS(t, files, Options{Memory: 200_000})
	first := versionOf(t, h, "/0.bin", string(make([]byte, 10_000)))
	for i := range 100 {
		ask(h, "GET", fmt.Sprintf("/%d.bin", i))
		if h.table.memory.Held() > 200_000 {
			t.Fatalf("%d bytes held", h.table.memory.Held())
		}
	}
	if first.Valid() {
		t.Error("the lane may keep what was evicted, and nobody would look after it")
	}
	if h.table.get("99.bin") == nil || h.table.get("0.bin") != nil {
		t.Error("not the longest unused was evicted")
	}
}

func TestFilesAreBounded(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 50 {
		files[fmt.Sprintf("%d.txt", i)] = &fstest.MapFile{}
	}
	h := serveFS(t, files, Options{Files: 10})
	for i := range 50 {
		ask(h, "GET", fmt.Sprintf("/%d.txt", i))
	}
	if n := len(h.table.entries); n != 10 || h.table.recent.Len() != 10 {
		t.Errorf("%d remembered", n)
	}
}

// What the lane answers does not come by here: a crawler that asks for each file once
// must not evict it.
func TestACrawlLeavesWhatTheLaneAnswers(t *testing.T) {
	files := fstest.MapFS{"hot.bin": {Data: make([]byte, 10_000)}}
	for i := range 500 {
		files[fmt.Sprintf("%d.bin", i)] = &fstest.MapFile{Data: make([]byte, 10_000)}
	}
	for name, hot := range map[string]bool{"hot": true, "cold": false} {
		t.Run(name, func(t *testing.T) {
			h := serveFS(t, files, Options{Memory: 200_000})
			served := versionOf(t, h, "/hot.bin", string(make([]byte, 10_000)))
			e := h.table.get("hot.bin")
			for i := range 500 {
				ask(h, "GET", fmt.Sprintf("/%d.bin", i))
				if hot {
					e.again.Store(true) // as the lane does for lane.Rule.Used
				}
				if i%50 == 0 {
					h.sweep()
				}
				if held := h.table.memory.Held(); held > 200_000 {
					t.Fatalf("%d bytes held", held)
				}
			}
			if served.Valid() != hot {
				t.Errorf("the lane may go on: %t", served.Valid())
			}
		})
	}
}

// When the popular ones of yesterday fill the table, something goes all the same, and
// never what was asked for last.
func TestAllAreSparedForAWhile(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 100 {
		files[fmt.Sprintf("%d.bin", i)] = &fstest.MapFile{Data: make([]byte, 10_000)}
	}
	h := serveFS(t, files, Options{Memory: 200_000})
	for i := range 100 {
		ask(h, "GET", fmt.Sprintf("/%d.bin", i))
		for range maxUses {
			for _, e := range h.table.all() {
				e.again.Store(true)
				e.count()
			}
		}
		if h.table.get(fmt.Sprintf("%d.bin", i)) == nil {
			t.Fatalf("%d.bin was asked for last and has gone", i)
		}
		if held := h.table.memory.Held(); held > 200_000 {
			t.Fatalf("%d bytes held", held)
		}
	}
}

func TestWhatDoesNotExistEvictsNothing(t *testing.T) {
	h := serveFS(t, fstest.MapFS{"a.txt": {Data: []byte("a")}, "b.txt": {Data: []byte("b")}}, Options{Files: 2})
	served := versionOf(t, h, "/a.txt", "a")
	ask(h, "GET", "/b.txt")
	for i := range 100 {
		ask(h, "GET", fmt.Sprintf("/assets/%d", i))
	}
	if !served.Valid() {
		t.Error("a file had to make room for one that does not exist")
	}
}

func TestWhatDoesNotExistIsNotRemembered(t *testing.T) {
	h := open(t, "testdata/site", Options{})
	for i := range 1000 {
		ask(h, "GET", fmt.Sprintf("/no/%d", i))
		ask(h, "GET", fmt.Sprintf("/assets?%d", i))
	}
	if n := len(h.table.entries); n > 1 { // the page that says so
		t.Errorf("%d entries", n)
	}
}

func TestDescriptorsAreBounded(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	large := strings.Repeat("x", heldBytes+1)
	const n = maxOpenFiles + 20
	for i := range n {
		files[fmt.Sprintf("%d.bin", i)] = large
	}
	write(t, dir, files)
	h := open(t, dir, Options{})
	for i := range n {
		if w := ask(h, "GET", fmt.Sprintf("/%d.bin", i), "Range", "bytes=0-0"); w.Code != 206 {
			t.Fatalf("%d: %d", i, w.Code)
		}
	}
	if h.background.files.Load() != maxOpenFiles || h.table.open.Len() != maxOpenFiles {
		t.Errorf("%d descriptors open", h.background.files.Load())
	}
	h.Close()
	if h.background.files.Load() != 0 || h.table.memory.Held() != 0 || h.table.open.Len() != 0 {
		t.Errorf("after Close: %d descriptors, %d bytes", h.background.files.Load(), h.table.memory.Held())
	}
}

// What is made of files lasts when their descriptors are needed elsewhere, and
// ends when they change.
func TestOriginalsOutliveTheirDescriptors(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	large := strings.Repeat("x", heldBytes+1)
	const n = maxOpenFiles + 20
	for i := range n {
		files[fmt.Sprintf("%d.bin", i)] = large
	}
	write(t, dir, files)
	h := open(t, dir, Options{})
	settled(t, h, "/0.bin", large)
	look := func(i int) original.File {
		t.Helper()
		f, err := h.Original(httptest.NewRequest(http.MethodGet, fmt.Sprintf("/%d.bin", i), nil))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := look(0)
	served := h.table.get("0.bin").snapshot.Load().version
	for i := 1; i < n; i++ {
		look(i)
	}
	if h.background.files.Load() > 1 { // that of the one that was served
		t.Fatalf("a look opens files: %d", h.background.files.Load())
	}
	for h.table.get("0.bin").spared() { // it was asked for several times
	}
	for i := 1; i < n; i++ {
		ask(h, "GET", fmt.Sprintf("/%d.bin", i), "Range", "bytes=0-0")
	}
	if s := h.table.get("0.bin").snapshot.Load(); !s.shut || h.background.files.Load() > maxOpenFiles {
		t.Fatalf("%d descriptors open", h.background.files.Load())
	}
	if !first.Generation.Valid() || served.Valid() {
		t.Errorf("the original's generation is valid: %t, that of the lane's copy, which has the descriptor: %t", first.Generation.Valid(), served.Valid())
	}
	h.sweep()
	if again := look(0); !first.Generation.Valid() || again.Generation != first.Generation {
		t.Error("another look makes it another original")
	}
	if w := ask(h, "GET", "/0.bin"); w.Code != 200 || w.Body.String() != large {
		t.Errorf("served again: %d, %d bytes", w.Code, w.Body.Len())
	}
	if !first.Generation.Valid() {
		t.Error("opening the file again makes it another original")
	}
	for i := 1; i < n; i++ { // its descriptor goes again
		ask(h, "GET", fmt.Sprintf("/%d.bin", i), "Range", "bytes=0-0")
	}
	write(t, dir, map[string]string{"0.bin": large + "y"})
	h.sweep()
	if w := ask(h, "GET", "/0.bin"); w.Body.Len() != len(large)+1 {
		t.Errorf("after a change: %d bytes", w.Body.Len())
	}
	if first.Generation.Valid() {
		t.Error("the original has changed and its generation is valid")
	}
}

func TestUnusedWatchesEnd(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/b/c.txt": "c", "x.txt": "x"})
	h := open(t, dir, Options{})
	h.wake()
	if h.watch == nil {
		t.Skip("needs inotify")
	}
	settled(t, h, "/a/b/c.txt", "c")
	for _, d := range []string{".", "a", "a/b"} {
		if !h.watch.has(d) {
			t.Errorf("%s is not watched", d)
		}
	}
	settled(t, h, "/x.txt", "x")
	h.table.drop(h.table.get("a/b/c.txt"))
	h.sweep()
	if h.watch.has("a") || h.watch.has("a/b") || !h.watch.has(".") {
		t.Error("watches did not follow what is held")
	}
}

// What was made of the files has its part of the memory, when it needs it.
func TestMemoryIsShared(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 40 {
		files[fmt.Sprintf("%d.bin", i)] = &fstest.MapFile{Data: make([]byte, 10_000)}
	}
	h := serveFS(t, files, Options{Memory: 200_000})
	for i := range 40 {
		ask(h, "GET", fmt.Sprintf("/%d.bin", i))
	}
	if held := h.table.memory.Held(); held < 150_000 {
		t.Errorf("%d bytes are held while nobody else needs any, of 200,000", held)
	}
	made := h.Memory().Join()
	made.Add(100_000)
	h.sweep()
	if held := h.table.memory.Held(); held > 100_000 || held < 50_000 {
		t.Errorf("%d bytes are held of a half of 200,000", held)
	}
	if h.table.get("39.bin") == nil {
		t.Error("what was asked for last has gone")
	}
}
