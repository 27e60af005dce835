package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"millrace/internal/config"
)

// update rewrites what the tests compare with: go test ./cmd/millrace -update
var update = flag.Bool("update", false, "rewrite the manual page, the example and the scripts' expectations")

// parse reads a command line of serve, and returns what its flags set.
func parse(t *testing.T, args ...string) (*kong.Context, []config.Setting) {
	t.Helper()
	parser, err := newParser(new(program), streams{os.Stdout, os.Stderr}, func(int) { t.Fatal("exit") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := parser.Parse(append([]string{"serve"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return ctx, settings(ctx.Selected(), ctx.Path)
}

// flagValues are one valid value for each flag of serve that sets a key.
var flagValues = map[string]string{
	"listen": "127.0.0.1:0", "tls-listen": "127.0.0.1:0", "tls-cert": "cert.pem", "tls-key": "key.pem",
	"log": "json", "log-file": "access.log", "admin": "off", "no-lane": "true",
}

// TestEveryFlagHasThreeForms: each flag of serve can also be said in the
// environment and in the config, and means the same there. --config alone has
// no key: it says where the keys are.
func TestEveryFlagHasThreeForms(t *testing.T) {
	ctx, _ := parse(t)
	for _, f := range ctx.Selected().Flags {
		if f.Name == "help" {
			continue
		}
		env := "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if !slices.Equal(f.Envs, []string{env}) {
			t.Errorf("--%s has the variables %v, want %s", f.Name, f.Envs, env)
			continue
		}
		key := f.Tag.Get("key")
		if f.Name == "config" {
			continue
		}
		value, ok := flagValues[f.Name]
		if key == "" || !ok {
			t.Errorf("--%s has the key %q and the test value %q: it needs both", f.Name, key, value)
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			_, typed := parse(t, "--"+f.Name+"="+value)
			want := []config.Setting{{Key: key, Values: []string{value}, From: "--" + f.Name}}
			if diff := cmp.Diff(want, typed); diff != "" {
				t.Errorf("on the command line (-want +got):\n%s", diff)
			}
			t.Setenv(env, value)
			_, fromEnv := parse(t)
			want[0].From = env
			if diff := cmp.Diff(want, fromEnv); diff != "" {
				t.Errorf("in the environment (-want +got):\n%s", diff)
			}
			sameInFile(t, key, value)
		})
	}
}

// sameInFile compares a setting with the same key in a file.
func sameInFile(t *testing.T, key, value string) {
	t.Helper()
	site := "sites: [{routes: {/: {deny: }}}]\n"
	nested := value
	for _, part := range slices.Backward(strings.Split(key, ".")) {
		nested = "{" + part + ": " + nested + "}"
	}
	nested = strings.TrimSuffix(strings.TrimPrefix(nested, "{"), "}")
	inFile, err1 := config.Parse("x.yaml", []byte(nested+"\n"+site))
	set, err2 := config.Parse("x.yaml", []byte(site), config.Setting{Key: key, Values: []string{value}, From: "test"})
	if strings.HasPrefix(key, "tls.") { // one of the three alone is a mistake: the same one
		for _, err := range []error{err1, err2} {
			if _, ok := errors.AsType[config.Findings](err); !ok || strings.Contains(err.Error(), "no key") || !strings.Contains(err.Error(), "ertificate") {
				t.Errorf("%s: %v", key, err)
			}
		}
		return
	}
	if err1 != nil || err2 != nil {
		t.Fatalf("in a file: %v; as a setting: %v", err1, err2)
	}
	if diff := cmp.Diff(inFile, set); diff != "" {
		t.Errorf("%s in a file and as a setting differ:\n%s", key, diff)
	}
	if without, err := config.Parse("x.yaml", []byte(site)); err != nil || (value != "127.0.0.1:0" && cmp.Equal(without, set)) {
		t.Errorf("%s has no effect", key)
	}
}

// TestManual holds docs/man/millrace.1 against the program.
func TestManual(t *testing.T) {
	parser, err := newParser(new(program), streams{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("..", "..", "docs", "man", "millrace.1"), manual(parser.Model.Help, verbsOf(parser.Model)))
}

// TestExample: the example is what init writes in that folder, and it works.
func TestExample(t *testing.T) {
	file := filepath.Join("..", "..", "examples", "millrace.yaml")
	golden(t, file, starterFor(filepath.Dir(file)))
	if cfg, err := config.Load(file); err != nil || cfg.Routes() != 1 {
		t.Errorf("%s: %v", file, err)
	}
}

func golden(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; run\n\n\tgo test ./cmd/millrace -update\n\n%s", file, diff)
	}
}

// TestManualQuotes: nothing in a help can become a request of the formatter.
func TestManualQuotes(t *testing.T) {
	for in, want := range map[string]string{".x": `\&.x`, "a-b": `a\-b`, `\n`: `\en`, "'x": `\(aqx`, "~^`": `\(ti\(ha\(ga`} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTarget(t *testing.T) {
	for in, want := range map[string]string{
		"http://h/p": "ws://h/p", "https://h/p": "wss://h/p", "ws://h/p": "ws://h/p", "": "",
	} {
		if got := (request{WS: true}).target(in); got != want {
			t.Errorf("--ws %q: %q, want %q", in, got, want)
		}
		if got := (request{}).target(in); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
}
