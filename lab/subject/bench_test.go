package subject

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// newBench is a checkout with a few subjects.
func newBench(t *testing.T) *Bench {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module subjects\n\ngo 1.24\n",
		"good/main.go":     "package main\n\nvar word = \"plain\"\n\nfunc main() { println(word) }\n",
		"other/main.go":    "package main\n\nfunc main() { println(\"other\") }\n",
		"broken/main.go":   "package main\n\nfunc main() { undefined() }\n",
		"library/words.go": "package library\n",
	} {
		path := filepath.Join(root, "lab", "bench", "subjects", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Find(filepath.Join(root, "lab", "bench", "subjects", "good"))
	if err != nil {
		t.Fatal(err)
	}
	if b.Dir != filepath.Join(root, "lab", "bench") {
		t.Fatalf("Find = %s", b.Dir)
	}
	return b
}

func needGo(t *testing.T) {
	t.Helper()
	if _, err := Look("go", ""); err != nil {
		t.Skip("no Go toolchain")
	}
}

func TestFindNothing(t *testing.T) {
	if b, err := Find(t.TempDir()); err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("Find = %v, %v; want an error that says what to do", b, err)
	}
}

func TestBuild(t *testing.T) {
	needGo(t)
	b := newBench(t)
	var wg sync.WaitGroup
	for _, c := range []struct {
		name       string
		flags, env []string
		prints     string
	}{
		{"good", nil, nil, "plain"},
		{"good", []string{"-ldflags=-X main.word=set"}, nil, "set"},
		{"good", nil, []string{"LAB_TEST=1"}, "plain"},
		{"other", nil, nil, "other"},
	} {
		wg.Go(func() {
			path, err := b.Build(t.Context(), c.name, c.flags, c.env)
			if err != nil {
				t.Error(err)
				return
			}
			if got := Version(t.Context(), path); got != c.prints {
				t.Errorf("%s with %q prints %q, want %q", c.name, c.flags, got, c.prints)
			}
		})
	}
	wg.Wait()
	built, err := os.ReadDir(filepath.Join(b.Dir, "out", "lab"))
	if err != nil || len(built) != 4 {
		t.Errorf("built are %v, %v; want 4 programs", built, err)
	}
	path, err := b.Build(t.Context(), "other", nil, nil)
	if err != nil || path != filepath.Join(b.Dir, "out", "lab", "other") {
		t.Errorf("a second build = %q, %v", path, err)
	}
}

func TestBuildFails(t *testing.T) {
	needGo(t)
	b := newBench(t)
	for name, want := range map[string]string{
		"broken":    "undefined",
		"library":   "not a main package",
		"nowhere":   "no folder",
		"../escape": "leads out",
		"":          "leads out",
	} {
		if path, err := b.Build(t.Context(), name, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Build(%q) = %q, %v; want an error with %q", name, path, err, want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := b.Build(ended, "good", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted Build = %v", err)
	}
}

func TestBuildWithoutGo(t *testing.T) {
	b := newBench(t)
	t.Setenv("PATH", t.TempDir())
	_, err := b.Build(t.Context(), "good", nil, nil)
	if _, missing := errors.AsType[Missing](err); !missing {
		t.Errorf("Build = %v, want a Missing", err)
	}
}

// A subject that is a module of its own is built as one.
func TestBuildOfAModuleOfItsOwn(t *testing.T) {
	needGo(t)
	b := newBench(t)
	own := filepath.Join(b.Dir, "subjects", "good", "go.mod")
	if err := os.WriteFile(own, []byte("module good\n\ngo 1.24\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(t.Context(), "good", nil, nil); err != nil {
		t.Error(err)
	}
}
