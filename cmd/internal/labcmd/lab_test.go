package labcmd

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
)

// update rewrites the manual page: go test ./cmd/internal/labcmd -update
var update = flag.Bool("update", false, "rewrite the manual page")

// TestManual holds docs/man/millrace-lab.1 against the program.
func TestManual(t *testing.T) {
	model, err := Model()
	if err != nil {
		t.Fatal(err)
	}
	page := []byte(cli.Manual(model.Model.Node, Examples()))
	file := filepath.Join("..", "..", "..", "docs", "man", "millrace-lab.1")
	if *update {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, page) {
		t.Errorf("%s is another page, %v: make docs writes it", file, err)
	}
}

// TestMainSpeaks: each verb has a Run, a help for itself and what it takes; and what is
// wrong is said in the program's own name.
func TestMainSpeaks(t *testing.T) {
	model, err := Model()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range model.Model.Leaves(false) {
		for _, v := range verb.Values() {
			if v.Help == "" || verb.Help == "" {
				t.Errorf("%s has no help, or %s has none", verb.Path(), v.ShortSummary())
			}
		}
	}
	for _, c := range []struct {
		args   string
		status int
		out    string
		err    string
	}{
		{"", 0, "Usage: millrace-lab <command>", ""},
		{"list", 0, "embed-vs-disk", ""},
		{"version", 0, "millrace-lab ", ""},
		{"--version", 0, "millrace-lab ", ""},
		{"man", 0, ".TH MILLRACE\\-LAB 1", ""},
		{"completion bash", 0, "complete -o filenames -F _millrace-lab millrace-lab", ""},
		{"pgo record --help", 0, "Usage: millrace-lab pgo record", ""},
		{"laod", 2, "", "millrace-lab: there is no command \"laod\", did you mean \"load\"?\n  `millrace-lab --help` lists"},
		{"load http://127.0.0.1:1/ -c 0", 2, "", "millrace-lab: 0 connections"},
	} {
		var out, errs bytes.Buffer
		status := Main(strings.Fields(c.args), cli.Streams{Out: &out, Err: &errs})
		if status != c.status || !strings.Contains(out.String(), c.out) || !strings.HasPrefix(errs.String(), c.err) {
			t.Errorf("%s: status %d, %q, %q", c.args, status, out.String(), errs.String())
		}
	}
}

func TestTarget(t *testing.T) {
	for in, want := range map[string]string{
		"http://h/p": "ws://h/p", "https://h/p": "wss://h/p", "ws://h/p": "ws://h/p", "": "",
	} {
		if got := (Request{WS: true}).target(in); got != want {
			t.Errorf("--ws %q: %q, want %q", in, got, want)
		}
		if got := (Request{}).target(in); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
}
