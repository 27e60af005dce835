package engine

import (
	"testing"

	"millrace/internal/bytesize"
	"millrace/internal/config"
)

func TestBudget(t *testing.T) {
	for yaml, want := range map[string]bytesize.Size{
		"{/: {deny: {}}}":                  0,
		"{/: {cache: http://127.0.0.1:1}}": (256 + 64) << 20,
		"{/: {cache: &c {to: http://127.0.0.1:1, memory: 8MiB}}, /a/: {cache: *c}}":                  (8 + 64) << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}, /a/: {cache: http://127.0.0.1:1}}":     (8 + 256 + 64) << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}}}]\nlane: {off: true}\n#":               8 << 20,
		"{/: {cache: {to: http://127.0.0.1:1, memory: 8MiB}}}}]\nlane: {memory: 1MiB}\n#":            9 << 20,
		"{/: {static: {root: .}}, /a/: {static: {root: .}}, /b/: {static: {root: ., memory: 8MiB}}}": (64 + 8 + 64) << 20,
		"{/: {static: {root: .}, images: on}}":                                                       (64 + 64) << 20,
		"{/: {images: {remote: {from: https://a.example}}}}":                                         (64 + 64) << 20,
		"{/: {images: &i {remote: {from: https://a.example}}}, /a/: {images: *i}}":                   (64 + 64 + 64) << 20,
		"{/: {static: {root: .}, images: on}, /c/: {cache: http://127.0.0.1:1}}":                     (64 + 256 + 64) << 20,
	} {
		cfg, err := config.Parse("x.yaml", []byte("sites: [{routes: "+yaml+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := budget(cfg); got != want {
			t.Errorf("%s: %s, want %s", yaml, got, want)
		}
	}
}
