package s3

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestForm: an object of the first form is read, and written, as it always was. Machines of
// two versions share a bucket while they are upgraded: another form needs another number.
func TestForm(t *testing.T) {
	kept, err := os.ReadFile(filepath.Join("testdata", "form", "object"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := readFront(bytes.NewReader(kept), int64(len(kept)))
	if err != nil || string(f.key) != "a key" || string(f.head) != "a head" || f.size != int64(len("a body")) || f.sum != checksum(0, []byte("a body")) {
		t.Errorf("%+v, %v", f, err)
	}
	if again := append(appendFront(nil, f), "a body"...); !bytes.Equal(again, kept) {
		t.Errorf("it is written as %q, and was %q", again, kept)
	}
	next := bytes.Clone(kept)
	next[3]++
	if _, err := readFront(bytes.NewReader(next), int64(len(next))); err == nil {
		t.Error("an object of the next form is read")
	}
}
