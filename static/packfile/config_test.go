package packfile

import (
	"bytes"
	"testing"
)

// TestConfigFiles: what a config includes is behind it, and comes back byte for byte.
func TestConfigFiles(t *testing.T) {
	for _, bad := range []string{"../a.yaml", "/etc/a.yaml", "a\nb"} {
		if _, err := JoinConfig(nil, []ConfigFile{{Name: bad}}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if _, err := JoinConfig([]byte("a: b\n"+beginsFile+"x\n"), nil); err == nil {
		t.Error("a config with the line that begins a file was accepted")
	}
}

// FuzzConfigFiles: whatever is joined is split into the same; what was not joined
// is taken apart without failing.
func FuzzConfigFiles(f *testing.F) {
	f.Add([]byte("include: a.yaml"), "conf.d/a.yaml", []byte("sites: []\n"))
	f.Add([]byte(""), "a", []byte(beginsFile))
	f.Fuzz(func(t *testing.T, config []byte, name string, data []byte) {
		SplitConfig(data)
		joined, err := JoinConfig(config, []ConfigFile{{name, data}, {"last", config}})
		if err != nil {
			return
		}
		got, files := SplitConfig(joined)
		if !bytes.Equal(got, config) || len(files) != 2 || files[0].Name != name || !bytes.Equal(files[0].Data, data) || !bytes.Equal(files[1].Data, config) {
			t.Errorf("%q became %q and %q", joined, got, files)
		}
	})
}
