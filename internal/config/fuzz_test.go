package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzParse: whatever the file holds, Parse returns a config that is whole, or
// findings that lie within the file.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			return // larger ones only take longer
		}
		cfg, err := Parse("testdata/fuzz.yaml", data)
		if err == nil {
			if len(cfg.Sites) == 0 || cfg.Check() != nil {
				t.Errorf("accepted, but checked again it has findings: %v", cfg.Check())
			}
			return
		}
		found, ok := errors.AsType[Findings](err)
		if !ok || len(found) == 0 || cfg != nil {
			t.Fatalf("Parse = %v, %#v", cfg, err)
		}
		for _, one := range found {
			if one.Line < 1 || one.Column < 1 || one.Message == "" || one.File != "testdata/fuzz.yaml" {
				t.Errorf("a finding without its place: %+v", one)
			}
		}
		if !utf8.ValidString(err.Error()) {
			t.Errorf("the report is not UTF-8: %q", err)
		}
	})
}
