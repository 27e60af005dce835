package worker

import (
	"slices"
	"testing"

	"millrace/images/sandbox"
)

// A worker says what it has found by trying; here nothing is left out that the
// kernel has.
func TestSandbox(t *testing.T) {
	p := newPool(t, Options{Level: "embedded"}, "real")
	report := p.Sandbox()
	var names []string
	for _, m := range report {
		names = append(names, m.Name)
	}
	want := []string{sandbox.Privileges, sandbox.NoCaps, sandbox.Files, sandbox.Sockets, sandbox.Peeking, sandbox.Network, sandbox.Concealed}
	if !slices.Equal(names, want) {
		t.Errorf("the report has %q", names)
	}
	if missing := report.Missing(); missing != "" {
		t.Logf("not in force here: %s", missing)
	}
	if !report.Has(sandbox.Privileges) || !report.Has(sandbox.Concealed) {
		t.Errorf("missing: %s", report.Missing())
	}
}
