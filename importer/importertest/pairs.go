package importertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/importer/draft"
)

// Pair is a short config, what is made of it, and what clients get of both. Files of
// testdata have them one after the other:
//
//	== a path that is gone
//	location = /old { return 410; }
//	-- gives
//	routes:
//	  # x:1: location = /old
//	  /old: {deny: {status: 410}}
//	-- asked
//	GET /old → 410
//
// A config with SITE in it is a whole one, in which the site is called so; any other is the
// inside of a site.
type Pair struct {
	Title  string
	Config string
	Gives  string   // our config, and what the report says behind it
	Asked  []string // requests, with the answers behind them
}

// Sections of a pair, and what stands before its title.
const (
	title = "== "
	gives = "-- gives\n"
	asked = "-- asked\n"
)

// Name is what the site of a pair is called in a text for many.
const Name = "SITE"

// ReadPairs reads those of a file.
func ReadPairs(t *testing.T, file string) (list []*Pair) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for one := range strings.SplitSeq("\n"+string(text), "\n"+title) {
		if one == "" {
			continue
		}
		p := &Pair{}
		p.Title, one, _ = strings.Cut(one+"\n", "\n")
		one, questions, _ := strings.Cut(one, asked)
		p.Config, p.Gives, _ = strings.Cut(one, gives)
		p.Asked = strings.Split(strings.Trim(questions, "\n"), "\n")
		if p.Asked[0] == "" {
			p.Asked = nil
		}
		list = append(list, p)
	}
	return list
}

// WritePairs writes them to a file.
func WritePairs(t *testing.T, file string, list []*Pair) {
	t.Helper()
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s%s\n%s\n%s%s\n", title, p.Title, strings.Trim(p.Config, "\n"), gives, strings.Trim(p.Gives, "\n"))
		if len(p.Asked) > 0 {
			fmt.Fprintf(&b, "%s%s\n", asked, strings.Join(p.Asked, "\n"))
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil { //nolint:gosec // testdata
		t.Fatal(err)
	}
}

// Pairs compares what is made of the configs of files with what stands there, or writes
// it there. whole makes a whole config of the inside of a site.
func (im Importer) Pairs(t *testing.T, pattern string, whole func(inside, name string) string, update bool) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no pairs: %v", err)
	}
	for _, file := range files {
		list := ReadPairs(t, file)
		for _, p := range list {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+p.Title, func(t *testing.T) {
				node, report, err := im.Translate(p.Whole(whole, "a.example"))
				if err != nil {
					t.Fatal(err)
				}
				got := summary(node) + p.notes(report)
				if update {
					p.Gives = got
				} else if strings.Trim(got, "\n") != strings.Trim(p.Gives, "\n") {
					t.Errorf("%s\ngives (-update writes it)\n%s\ninstead of\n%s", p.Config, got, p.Gives)
				}
				for _, fault := range im.Faults(node.String()) {
					t.Errorf("millrace check: %s\n%s", fault, node)
				}
			})
		}
		if update {
			WritePairs(t, file, list)
		}
	}
}

// Whole is the config of a pair for a site with a name.
func (p *Pair) Whole(whole func(inside, name string) string, name string) string {
	if strings.Contains(p.Config, Name) {
		return strings.ReplaceAll(p.Config, Name, name)
	}
	return whole(p.Config, name)
}

// summary is a config without what all pairs have alike.
func summary(root *draft.Node) string {
	out := draft.Map()
	root.CopyTo(out, "listen", "sites")
	sites := root.Get("sites")
	if sites.Len() == 1 {
		sites.Each(func(site *draft.Node, _ []string) { site.CopyTo(out, "hosts") })
	} else {
		out.Set("sites", sites)
	}
	return out.String()
}

// notes are the lines that are not carried over, and those that are defaults, without what
// stands around the inside of a site.
func (p *Pair) notes(r *draft.Report) string {
	var b strings.Builder
	for _, n := range r.Notes {
		if !strings.Contains(p.Config, Name) && (n.Line == "server_name a.example" || n.Line == "ServerName a.example") {
			continue
		}
		switch n.Outcome {
		case draft.Untranslated:
			fmt.Fprintf(&b, "! %s\n  %s\n", n.Line, n.Why)
		case draft.Defaulted:
			fmt.Fprintf(&b, "~ %s\n  %s\n", n.Line, n.Why)
		}
	}
	return b.String()
}
