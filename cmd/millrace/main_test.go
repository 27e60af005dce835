package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/packcmd"
	"millrace/cmd/internal/servecmd"
	"millrace/internal/config"
)

// update rewrites what the tests compare with: go test ./cmd/millrace -update
var update = flag.Bool("update", false, "rewrite the manual page, the example and the scripts' expectations")

// parse reads a command line of a verb, and returns what its flags set.
func parse(t *testing.T, verb string, args ...string) (*kong.Node, []config.Setting) {
	t.Helper()
	ctx, _, err := cli.Parse(modelOf(t, new(program)), append(strings.Fields(verb), args...))
	if err != nil {
		t.Fatal(err)
	}
	return cli.Selected(ctx), cli.Settings(ctx)
}

func modelOf(t *testing.T, structs any) *kong.Kong {
	t.Helper()
	model, err := cli.New("millrace", about, structs)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// TestVerbsRun: each verb has a Run that takes what there is, a help, and a help
// for each flag and argument.
func TestVerbsRun(t *testing.T) {
	for _, structs := range []any{new(program), new(packcmd.Program)} {
		model := modelOf(t, structs)
		for _, verb := range model.Model.Leaves(false) {
			if (job{}).runner(verb, nil, model) == nil {
				t.Errorf("%s has no Run of those that main knows", verb.Path())
			}
			texts := map[string]string{"itself": verb.Help}
			for _, v := range verb.Values() {
				texts[v.ShortSummary()] = v.Help
			}
			for what, help := range texts {
				if help == "" || strings.Contains(help, "${") {
					t.Errorf("%s: the help of %s is %q", verb.Path(), what, help)
				}
			}
		}
	}
}

// flagValues are one valid value for each flag of the verbs that serve which
// sets a key.
var flagValues = map[string]string{
	"listen": "127.0.0.1:0", "tls-listen": "127.0.0.1:0", "tls-cert": "cert.pem", "tls-key": "key.pem",
	"log": "json", "log-file": "access.log", "admin": "off", "admin-token": "a-token-that-nobody-knows-01", "no-lane": "true", "sandbox": "auto",

	"ttl": "5m", "cors": "https://blog.example", "preset": "assets", "memory": "32MiB", "disk": "kept", "disk-size": "1GiB",
	"shared": "redis://localhost:6379", "stale-if-error": "1h", "drop-tracking": "true", "sort-query": "true",

	"origin": "https://app.example", "key": "a-key-that-nobody-knows-01234567", "allow-publish": "room:*", "history": "7", "history-age": "1m",
	"no-history": "true", "presence": "true", "bus": "nats://localhost:4222", "max-message": "128KiB", "ping": "10s", "slow-consumer": "drop_oldest",
	"no-compression": "true", "host": "upstream", "domain": "a.example", "https": "true", "tls": "internal",

	"images-quality": "70", "images-formats": "webp", "images-store": "kept",
}

// TestEveryFlagHasThreeForms: each flag of a verb that serves can also be said
// in the environment and in the config, and means the same there. Those that
// name a config have no key: they say where the keys are. Which job it is has
// neither.
func TestEveryFlagHasThreeForms(t *testing.T) {
	serve, _ := parse(t, "serve")
	shared := map[string]bool{}
	for _, f := range serve.Flags {
		if f.Name != "config" && f.Name != "listing" && !strings.HasPrefix(f.Name, "images") {
			shared[f.Name] = true
		}
	}
	for verb, prefix := range map[string]string{
		"serve": "MILLRACE_", "cache": "MILLRACE_CACHE_", "ws": "MILLRACE_WS_", "ws proxy": "MILLRACE_WS_",
	} {
		parsed, _ := parse(t, verb)
		seen := 0
		for _, f := range parsed.Flags {
			if shared[f.Name] {
				seen++
			}
			if f.Name == "help" || f.Name == "channels" || f.Name == "images" || f.Name == "listing" {
				continue
			}
			env := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			if shared[f.Name] {
				env = "MILLRACE_" + env
			} else {
				env = prefix + env
			}
			if has := f.Tag.Get("env"); has != env {
				t.Errorf("%s --%s has the variable %q, want %s", verb, f.Name, has, env)
				continue
			}
			if strings.HasPrefix(f.Name, "config") {
				continue
			}
			t.Run(verb+"/"+f.Name, func(t *testing.T) { threeForms(t, verb, f.Name, env, f.Tag.Get("key")) })
		}
		if seen != len(shared) {
			t.Errorf("%s has %d of serve's %d flags", verb, seen, len(shared))
		}
	}
}

func threeForms(t *testing.T, verb, flag, env, key string) {
	value, ok := flagValues[flag]
	if key == "" || !ok {
		t.Fatalf("it has the key %q and the test value %q, and needs both", key, value)
	}
	_, typed := parse(t, verb, "--"+flag+"="+value)
	want := []config.Setting{{Key: key, Values: []string{value}, From: "--" + flag}}
	if diff := cmp.Diff(want, typed); diff != "" {
		t.Errorf("on the command line (-want +got):\n%s", diff)
	}
	t.Setenv(env, value)
	_, fromEnv := parse(t, verb)
	want[0].From = env
	if diff := cmp.Diff(want, fromEnv); diff != "" {
		t.Errorf("in the environment (-want +got):\n%s", diff)
	}
	for _, job := range []struct{ prefix, with, end string }{
		{"images.", "static: {root: .}, images: {", "}"},
		{"cache.", "cache: {to: http://127.0.0.1:5000, ", "}"},
		{"websocket.channels.", "websocket: {channels: {", "}}"},
		{"websocket.proxy.", "websocket: {proxy: {to: ws://127.0.0.1:9000, ", "}}"},
		{"websocket.", "websocket: {echo: {}, ", "}"},
	} {
		if inJob, ok := strings.CutPrefix(key, job.prefix); ok {
			sameInRoute(t, "sites: [{routes: {/: {"+job.with, job.end+"}}}]", key, inJob, value)
			return
		}
	}
	sameInFile(t, key, value)
}

// sameInRoute compares a setting of a job with the same key in a file, which is
// begun and ended so.
func sameInRoute(t *testing.T, file, end, key, inJob, value string) {
	t.Helper()
	if inJob == "disk_size" { // which is nothing without
		file += "disk: kept, "
	}
	inFile, err1 := config.Parse("x.yaml", []byte(file+nested(inJob, strconv.Quote(value))+end))
	if _, err := strconv.Atoi(value); value == "true" || err == nil {
		inFile, err1 = config.Parse("x.yaml", []byte(file+nested(inJob, value)+end))
	}
	set, err2 := config.Parse("x.yaml", []byte(file+end), config.Setting{Key: key, Values: []string{value}, From: "test"})
	if err1 != nil || err2 != nil {
		t.Fatalf("in a file: %v; as a setting: %v", err1, err2)
	}
	if diff := cmp.Diff(inFile, set, parsedOnly()); diff != "" {
		t.Errorf("%s in a file and as a setting differ:\n%s", key, diff)
	}
	if without, err := config.Parse("x.yaml", []byte(file+end)); err != nil || cmp.Equal(without, set, parsedOnly()) {
		t.Errorf("%s has no effect", key)
	}
}

// parsedOnly leaves out what a config remembers of the file it was read from.
func parsedOnly() cmp.Option { return cmpopts.IgnoreUnexported(config.Config{}) }

// nested is a key of maps in maps: a: {b: value}.
func nested(key, value string) string {
	for _, part := range slices.Backward(strings.Split(key, ".")) {
		value = "{" + part + ": " + value + "}"
	}
	return strings.TrimSuffix(strings.TrimPrefix(value, "{"), "}")
}

// sameInFile compares a setting with the same key in a file.
func sameInFile(t *testing.T, key, value string) {
	t.Helper()
	site := "sites: [{routes: {/: {deny: }}}]\n"
	inFile, err1 := config.Parse("x.yaml", []byte(nested(key, value)+"\n"+site))
	set, err2 := config.Parse("x.yaml", []byte(site), config.Setting{Key: key, Values: []string{value}, From: "test"})
	if strings.HasPrefix(key, "tls.") && !strings.HasPrefix(key, "tls.auto") { // one of the three alone is a mistake: the same one
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
	if diff := cmp.Diff(inFile, set, parsedOnly()); diff != "" {
		t.Errorf("%s in a file and as a setting differ:\n%s", key, diff)
	}
	if without, err := config.Parse("x.yaml", []byte(site)); err != nil || (value != "127.0.0.1:0" && cmp.Equal(without, set, parsedOnly())) {
		t.Errorf("%s has no effect", key)
	}
}

// TestManual holds docs/man/millrace.1 against the program.
func TestManual(t *testing.T) {
	golden(t, filepath.Join("..", "..", "docs", "man", "millrace.1"), cli.Manual(modelOf(t, new(program)).Model.Node, examples()))
}

// TestExample: the example is what init writes in that folder, and it works.
func TestExample(t *testing.T) {
	file := filepath.Join("..", "..", "examples", "millrace.yaml")
	golden(t, file, servecmd.Starter(filepath.Dir(file)))
	if cfg, err := config.Load(file); err != nil || cfg.Routes() != 1 {
		t.Errorf("%s: %v", file, err)
	}
}

// TestCacheExample: the example of a cache has nothing wrong with it, and the
// disk that it names is not made by looking at it.
func TestCacheExample(t *testing.T) {
	file := filepath.Join("..", "..", "examples", "cache.yaml")
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if o := cfg.Sites[0].Routes["/api/"].Cache; o == nil || o.TTL == 0 || len(o.Rules) == 0 {
		t.Errorf("%s shows too little: %+v", file, o)
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
