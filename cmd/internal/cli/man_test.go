package cli

import "testing"

// TestManualQuotes: nothing in a help can become a request of the formatter.
func TestManualQuotes(t *testing.T) {
	for in, want := range map[string]string{".x": `\&.x`, "a-b": `a\-b`, `\n`: `\en`, "'x": `\(aqx`, "~^`": `\(ti\(ha\(ga`} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}
