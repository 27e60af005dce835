package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"millrace/bench/subjects/internal/arm"
	"millrace/bench/subjects/internal/stage"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"files", "--quick", "--arms", "nginx,millrace", "--out=x.md", "--seed", "7"})
	if err != nil || o.length != stage.Quick || o.arms != "nginx,millrace" || o.out != "x.md" || o.seed != 7 || o.scenario != "files" {
		t.Errorf("parse = %+v, %v", o, err)
	}
	if o, err := parse([]string{"files"}); err != nil || o.length != stage.Default || o.seed == 0 {
		t.Errorf("parse without flags = %+v, %v", o, err)
	}
	for _, args := range []string{"ws idle ramp --quick", "ws --quick idle ramp", "ws idle --quick ramp"} {
		if o, err := parse(strings.Fields(args)); err != nil || strings.Join(o.parts, " ") != "idle ramp" || o.length != stage.Quick {
			t.Errorf("parse(%q) = %+v, %v", args, o, err)
		}
	}
	for _, c := range []struct{ args, problem string }{
		{"ws idel", "idle"},
		{"cache idle", "idle"},
		{"", "files"},
		{"--quick", "files"},
		{"fils", "files"},
		{"files --quick --full", "contradict"},
		{"files more", "more"},
		{"files --rounds 3", "rounds"},
	} {
		if o, err := parse(strings.Fields(c.args)); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("parse(%q) = %+v, %v; want an error about %q", c.args, o, err, c.problem)
		}
	}
}

func TestOnlyFullRunsReplaceTheResults(t *testing.T) {
	full := options{bench: "b", length: stage.Full}
	quick := options{bench: "b", length: stage.Quick}
	named := options{bench: "b", length: stage.Quick, out: "x.md"}
	for _, c := range []struct {
		got, want string
	}{
		{full.results("RESULTS.md", true), filepath.Join("b", "RESULTS.md")},
		{full.results("RESULTS.md", false), filepath.Join("b", "out", "RESULTS.md")},
		{quick.results("RESULTS.md", true), filepath.Join("b", "out", "RESULTS.md")},
		{named.results("RESULTS.md", true), "x.md"},
	} {
		if c.got != c.want {
			t.Errorf("the results go to %s, want %s", c.got, c.want)
		}
	}
}

func TestChooseArms(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no nginx in it
	var out strings.Builder
	arms, err := chooseArms(arm.Files(), "", &out)
	if err != nil || len(arms) == 0 || len(arms) >= len(arm.Files()) || !strings.Contains(out.String(), "nginx-light") {
		t.Errorf("without nginx: %d arms, %v, printed %q", len(arms), err, out.String())
	}
	out.Reset()
	if arms, err := chooseArms(arm.Caches(), "", &out); err != nil || len(arms) != 1 || !strings.Contains(out.String(), "package varnish") {
		t.Errorf("without nginx and Varnish: %d arms, %v, printed %q", len(arms), err, out.String())
	}
	if arms, err := chooseArms(arm.Files(), "millrace,nethttp", io.Discard); err != nil || len(arms) != 2 {
		t.Errorf("two by name: %v, %v", arms, err)
	}
	if _, err := chooseArms(arm.Files(), "nginx", io.Discard); err == nil {
		t.Error("a run with no arm left has no error")
	}
	if _, err := chooseArms(arm.Files(), "milrace", io.Discard); err == nil || !strings.Contains(err.Error(), "millrace-log") {
		t.Errorf("the error for a wrong name is %v; it should list the right ones", err)
	}
}
