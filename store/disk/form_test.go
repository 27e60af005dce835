//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"millrace/store"
)

// TestForm: a folder of the first form is read, and an object is written, as it always was.
// Another form needs another number.
func TestForm(t *testing.T) {
	folder := func() string {
		dir := filepath.Join(t.TempDir(), "kept")
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "form"))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	d := openTest(t, folder(), 0)
	if head, body, err := getBytes(d, "a key"); err != nil || string(head) != "a head" || string(body) != "a body" {
		t.Errorf("%q, %q, %v", head, body, err)
	}
	kept, err := os.ReadFile(filepath.Join("testdata", "form", idOf("a key").path()))
	if err != nil {
		t.Fatal(err)
	}
	d.epoch = 7
	if err := putBytes(d, "a key", 6, []byte("a head"), []byte("a body")); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(filepath.Join(d.options.Dir, idOf("a key").path())); err != nil || !bytes.Equal(again, kept) {
		t.Errorf("it is written as %q, and was %q; %v", again, kept, err)
	}

	index, err := os.ReadFile(filepath.Join("testdata", "form", indexName))
	if err != nil {
		t.Fatal(err)
	}
	if again := appendRecord([]byte(indexMagic), idOf("a key"), 1); !bytes.Equal(again, index) {
		t.Errorf("the index is %q, and was %q", again, index)
	}
	if s := parseState("millrace state 1 7 boot\n"); s != (state{7, "boot"}) {
		t.Errorf("the state is %+v", s)
	}

	// What a later version has written is refused as a folder, and not there as an object.
	later := folder()
	if err := os.WriteFile(filepath.Join(later, markerName), []byte("millrace store 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: later}); err == nil {
		t.Error("a folder of the next form is opened")
	}
	later = folder()
	kept[len("mrstore")]++
	if err := os.WriteFile(filepath.Join(later, idOf("a key").path()), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openTest(t, later, 0).Get(context.Background(), "a key"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an object of the next form: %v", err)
	}
}
