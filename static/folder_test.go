package static

import (
	"os"
	"path/filepath"
	"testing"
)

// A folder that is open for a few looks shows what the tree shows: also behind links
// that lead out of it, and never behind those that lead out of the tree.
func TestFolderShowsWhatTheTreeShows(t *testing.T) {
	top := t.TempDir()
	write(t, top, map[string]string{
		"secret.txt": "secret", "site/a/own.txt": "own", "site/b/page.txt": "page", "site/top.txt": "top", "site/a/c/deep.txt": "deep",
	})
	dir := filepath.Join(top, "site")
	for link, target := range map[string]string{
		"a/beside.txt": "../b/page.txt", "a/up.txt": "../top.txt", "a/out.txt": "../../secret.txt", "a/gone.txt": "../b/gone.txt",
		"a/absolute.txt": filepath.Join(top, "secret.txt"), "a/loop.txt": "loop.txt", "way": "a", "outside": "..", "a/in.txt": "own.txt",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
	}
	tree, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	seen := 0
	for _, folder := range []string{".", "a", "a/c", "b", "way", "way/c", "outside", "none", "none/x", "top.txt"} {
		in := tree.enter(folder)
		defer in.leave()
		if got, want := in.stamp(), tree.stampOf(folder); got != want {
			t.Errorf("%s: stamp %v, want %v", folder, got, want)
		}
		for _, base := range []string{
			"own.txt", "page.txt", "top.txt", "deep.txt", "secret.txt", "beside.txt", "up.txt", "out.txt", "gone.txt",
			"absolute.txt", "loop.txt", "in.txt", "c", "none", "c/deep.txt",
		} {
			name := base
			if folder != "." {
				name = folder + "/" + base
			}
			got, err := in.stat(name)
			want, wantErr := tree.stat(name)
			if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || err == nil && !os.SameFile(got, want) {
				t.Errorf("%s: %v, want %v", name, err, wantErr)
			}
			if err == nil {
				seen++
			}
		}
	}
	if seen != 16 {
		t.Errorf("%d names lead to something", seen)
	}
}

// TestMissingNamesCostOneLook: what a scanner asks for is not there, and that is all that
// has to be found out: nothing else is looked at.
func TestMissingNamesCostOneLook(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "a"})
	h := open(t, dir, Options{})
	tree := h.trees[0]
	look := testing.AllocsPerRun(100, func() { _, _ = tree.stat("none.txt") })
	probe := testing.AllocsPerRun(100, func() {
		if _, _, err := h.probe("none.txt"); err == nil {
			t.Error("found")
		}
	})
	if probe > look+2 { // for the folder that is entered
		t.Errorf("a look allocates %v times, and one for a name that is not there %v times", look, probe)
	}
}
