package experiment

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

const embeddedFiles = "../bench/subjects/fileserver/files"

func TestSiteIsWhatTheSubjectsEmbed(t *testing.T) {
	for _, f := range Site() {
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
	if err != nil || count != len(Site()) {
		t.Errorf("lab/bench/subjects embeds %d files, not %d (%v)", count, len(Site()), err)
	}
}

func TestVerifyIsAsEncodingJSONWritesIt(t *testing.T) {
	for _, f := range Site() {
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
	files := append(Site(), SizedFile(4096))
	for range 2 { // the second time over what is there
		if err := WriteSite(dir, files); err != nil {
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
