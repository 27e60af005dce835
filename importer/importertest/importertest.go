// Package importertest is what the tests of all importers share: configs and
// what is made of them, what must stay closed, and what must hold whatever the
// config says.
package importertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/importer/draft"
)

// Files reads files below a folder as if they were in another one.
type Files struct{ Dir, As string }

// Read is os.ReadFile for a name as it would be.
func (f Files) Read(name string) ([]byte, error) {
	return os.ReadFile(strings.Replace(name, f.As, f.Dir, 1)) //nolint:wrapcheck // for tests
}

// Glob is filepath.Glob for a pattern as it would be.
func (f Files) Glob(pattern string) ([]string, error) {
	names, err := filepath.Glob(strings.Replace(pattern, f.As, f.Dir, 1))
	for i := range names {
		names[i] = strings.Replace(names[i], f.Dir, f.As, 1)
	}
	return names, err //nolint:wrapcheck // for tests
}

// Golden compares a text with that of a file, or writes it there.
func Golden(t *testing.T, file, text string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // testdata
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(text, "\n")
	for i := range max(len(before), len(after)) {
		a, b := line(before, i), line(after, i)
		if a != b {
			t.Errorf("%s:%d is another (-update writes it anew):\n- %s\n+ %s\nall of it:\n%s", file, i+1, a, b, text)
			return
		}
	}
}

// line is a line by its place, or says that there is none.
func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(the end)"
}

// Case is a config, and what must be, and must not be, in what is made of it.
type Case struct {
	Config string
	Want   []string // in the config
	Not    []string
	Left   string // in the report of what was not carried over
}

// Importer translates a text, and checks a config of ours.
type Importer struct {
	Translate func(text string) (*draft.Node, *draft.Report, error)
	Check     func(yaml string) error
}

// Closed tests cases: what kept clients out still does.
func (im Importer) Closed(t *testing.T, cases map[string]Case) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			node, report, err := im.Translate(c.Config)
			if err != nil {
				t.Fatal(err)
			}
			got, left := node.String(), strings.Join(report.UntranslatedLines(), "\n")
			for _, want := range c.Want {
				if !strings.Contains(got, want) {
					t.Errorf("without %q:\n%s\n%s", want, got, left)
				}
			}
			for _, not := range c.Not {
				if strings.Contains(got, not) {
					t.Errorf("with %q:\n%s\n%s", not, got, left)
				}
			}
			if !strings.Contains(left, c.Left) {
				t.Errorf("not reported: %q\n%s", c.Left, left)
			}
			for _, fault := range im.Faults(got) {
				t.Errorf("millrace check: %s\n%s", fault, got)
			}
		})
	}
}

// Faults are the mistakes in a config that are not about files and hosts which
// only tests name.
func (im Importer) Faults(yaml string) (faults []string) {
	err := im.Check(yaml)
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		named := slices.ContainsFunc([]string{"no such file", "no folder", "does not exist", "no site has a host that a certificate could be for"}, func(s string) bool { return strings.Contains(line, s) })
		if strings.HasPrefix(line, "x.yaml:") && !named {
			faults = append(faults, line)
		}
	}
	return faults
}

// Whatever tests what holds for every config: each line has an outcome, none has
// two, and what is written is YAML that the config's reader takes apart.
func (im Importer) Whatever(t *testing.T, text string, lines func() int) {
	t.Helper()
	node, report, err := im.Translate(text)
	if err != nil {
		return
	}
	if got, most := len(report.Notes), lines(); got > most {
		t.Errorf("%d fates for %d lines", got, most)
	}
	for _, n := range report.Notes {
		if n.Outcome == 0 || n.Outcome != draft.Translated && n.Why == "" {
			t.Errorf("without an outcome: %+v", n)
		}
		if n.Why != strings.TrimRight(n.Why, " :;") || strings.Contains(n.Why, "<nil>") || strings.Contains(n.Why, ": ;") {
			t.Errorf("with an empty clause: %+v", n)
		}
	}
	if err := im.Check(report.File("x", node)); err != nil && strings.Contains(err.Error(), "not YAML") {
		t.Errorf("%v\n%s", err, node)
	}
}

// Seeds are the texts of files that match a pattern.
func Seeds(f *testing.F, pattern string) {
	f.Helper()
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
}
