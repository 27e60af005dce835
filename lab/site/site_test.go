package site

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

const embeddedFiles = "../bench/subjects/fileserver/files"

func TestSiteIsWhatTheSubjectsEmbed(t *testing.T) {
	for _, f := range Small() {
		content := f.Content()
		if len(content) != f.Size {
			t.Errorf("%s has %d bytes, not %d", f.Name, len(content), f.Size)
		}
		embedded, err := os.ReadFile(filepath.Join(embeddedFiles, filepath.FromSlash(f.Name)))
		if err != nil || !bytes.Equal(embedded, content) {
			t.Errorf("%s is another file in lab/bench/subjects (%v)", f.Name, err)
		}
	}
	count := 0
	err := filepath.WalkDir(embeddedFiles, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			count++
		}
		return err
	})
	if err != nil || count != len(Small()) {
		t.Errorf("lab/bench/subjects embeds %d files, not %d (%v)", count, len(Small()), err)
	}
}

func TestVerifyIsAsEncodingJSONWritesIt(t *testing.T) {
	for _, f := range Small() {
		if f.Variable != "verifyJSON" {
			continue
		}
		var v struct {
			Verified bool   `json:"verified"`
			Note     string `json:"note"`
		}
		if err := json.Unmarshal(f.Content(), &v); err != nil || !v.Verified || v.Note == "" {
			t.Fatalf("%+v, %v", v, err)
		}
		if again, err := json.Marshal(v); err != nil || !bytes.Equal(again, f.Content()) {
			t.Errorf("encoded anew it is %s (%v)", again, err)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	files := append(Small(), Sized(4096))
	for range 2 { // the second time over what is there
		if err := Write(dir, files); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "size", "4096.bin"))
		if err != nil || len(got) != 4096 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := os.WriteFile(filepath.Join(dir, "size", "4096.bin"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCertificate(t *testing.T) {
	if _, _, err := Certificate(t.TempDir()); err != nil {
		t.Error(err)
	}
	if _, _, err := Certificate("/none"); err == nil {
		t.Error("no folder, no error")
	}
}

// TestLarge: the file has its size, no holes, and the same bytes each time; one of
// zeros has its size alone.
func TestLarge(t *testing.T) {
	var all [][]byte
	for range 2 {
		dir := t.TempDir()
		if err := WriteParts(dir, []string{"site", "large 3", "zeros 2", "size 512"}); err != nil {
			t.Fatal(err)
		}
		for name, size := range map[string]int64{"zeros-2.bin": 2 << 20, "size/512.bin": 512, "index.html": 501} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != size {
				t.Errorf("%s: %v", name, err)
			}
		}
		b, err := os.ReadFile(filepath.Join(dir, LargePath))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if len(all[0]) != 3<<20 || !bytes.Equal(all[0], all[1]) || bytes.Contains(all[0], make([]byte, 16)) {
		t.Error("the large file is another one, or has holes")
	}
	if err := WriteParts(t.TempDir(), []string{"nonsense"}); err == nil {
		t.Error("a part that there is not")
	}
}
