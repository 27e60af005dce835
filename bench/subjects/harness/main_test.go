package main

import (
	"path/filepath"
	"strings"
	"testing"

	"millrace/bench/subjects/internal/stage"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{"images", "--quick", "--arms", "nginx,millrace", "--out=x.md", "--seed", "7"})
	if err != nil || o.length != stage.Quick || o.arms != "nginx,millrace" || o.out != "x.md" || o.seed != 7 || o.scenario != "images" {
		t.Errorf("parse = %+v, %v", o, err)
	}
	if o, err := parse([]string{"images"}); err != nil || o.length != stage.Default || o.seed == 0 {
		t.Errorf("parse without flags = %+v, %v", o, err)
	}
	for _, args := range []string{"images crowd memory --quick", "images --quick crowd memory", "images crowd --quick memory"} {
		if o, err := parse(strings.Fields(args)); err != nil || strings.Join(o.parts, " ") != "crowd memory" || o.length != stage.Quick {
			t.Errorf("parse(%q) = %+v, %v", args, o, err)
		}
	}
	for _, c := range []struct{ args, problem string }{
		{"images crwod", "crwod"},
		{"images idle", "idle"},
		{"", "images"},
		{"--quick", "images"},
		{"imags", "images"},
		{"images --quick --full", "contradict"},
		{"images more", "more"},
		{"images --rounds 3", "rounds"},
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
