package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestNoSecretIsShown: every literal of the golden files that begins so is one.
func TestNoSecretIsShown(t *testing.T) {
	for _, file := range []string{"secrets.yaml", "secrets-broken.yaml"} {
		_, err := Load(filepath.Join("testdata/bad", file))
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", file, err)
		}
		b, err := os.ReadFile(filepath.Join("testdata/bad", file))
		if err != nil {
			t.Fatal(err)
		}
		// From and up to whatever line the file is broken.
		all := strings.Split(string(b), "\n")
		for i := range all {
			lines := all[:i+1]
			shown := withoutSecrets(lines)
			if got := strings.Join(shown, "\n"); strings.Contains(got, "s3cret") {
				t.Fatalf("%s up to line %d shows\n%s", file, i, got)
			}
			for j := range lines {
				if len([]rune(shown[j])) != len([]rune(lines[j])) {
					t.Fatalf("%q became %q: columns do not hold", lines[j], shown[j])
				}
			}
		}
	}
}

// TestSecretKeys: what every other key holds is shown.
func TestSecretKeys(t *testing.T) {
	secrets := map[string]bool{"secret": true, "storage_secret": true, "old_secret": true, "keys": true, "passwords": true, "token": true}
	found := 0
	var walk func(v reflect.Type)
	seen := map[reflect.Type]bool{}
	walk = func(v reflect.Type) {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || seen[v] {
			return
		}
		seen[v] = true
		for _, f := range fieldsOf(v) {
			if got := isSecretKey(f.name); got != secrets[f.name] {
				t.Errorf("%s: its values count as secrets: %v", f.name, got)
			} else if got {
				found++
			}
			walk(v.FieldByIndex(f.index).Type)
		}
	}
	walk(reflect.TypeFor[Config]())
	if found < len(secrets) {
		t.Errorf("%d keys with secrets", found)
	}
}
