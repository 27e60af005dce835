package draft

import (
	"fmt"
	"slices"
	"strings"
)

// Outcome is what became of a line of the original.
type Outcome int

// The outcomes.
const (
	Translated   Outcome = iota + 1
	Defaulted            // Millrace does it, or something like it, unasked
	Untranslated         // it was not carried over
)

// Note says what became of one line, and why or what to do.
type Note struct {
	At      string // file:line
	Line    string // what stands there
	Outcome Outcome
	Why     string // for Defaulted the reason, for Untranslated what to do
}

// Report is what became of each line.
type Report struct {
	Notes []Note
}

// Add adds a note.
func (r *Report) Add(n Note) { r.Notes = append(r.Notes, n) }

// Count is how many lines had an outcome.
func (r *Report) Count(f Outcome) int {
	n := 0
	for _, note := range r.Notes {
		if note.Outcome == f {
			n++
		}
	}
	return n
}

// UntranslatedLines lists what was not carried over, two lines for each.
func (r *Report) UntranslatedLines() []string {
	var lines []string
	for _, n := range r.Notes {
		if n.Outcome == Untranslated {
			lines = append(lines, fmt.Sprintf("%s: %s", n.At, oneLineOf(n.Line)), "    "+oneLineOf(n.Why))
		}
	}
	return lines
}

// Defaults lists what was replaced by defaults: one line for each reason, with
// the lines that it is for.
func (r *Report) Defaults() []string {
	var reasons []string
	of := map[string][]string{}
	for _, n := range r.Notes {
		if n.Outcome != Defaulted {
			continue
		}
		if of[n.Why] == nil {
			reasons = append(reasons, n.Why)
		}
		of[n.Why] = append(of[n.Why], n.name()+" ("+n.At+")")
	}
	var lines []string
	for _, why := range reasons {
		const shown = 4
		names := of[why]
		more := ""
		if len(names) > shown {
			more = fmt.Sprintf(" and %d more", len(names)-shown)
			names = names[:shown]
		}
		lines = append(lines, oneLineOf(strings.Join(slices.Compact(names), ", ")+more+":"), "    "+oneLineOf(why))
	}
	return lines
}

// name is the first word of the line, and the second where that says which.
func (n Note) name() string {
	words := strings.Fields(n.Line)
	if len(words) > 1 && (words[0] == "proxy_set_header" || words[0] == "fastcgi_param" || words[0] == "add_header" || words[0] == "header") {
		return words[0] + " " + words[1]
	}
	if len(words) == 0 {
		return "?"
	}
	return words[0]
}

// File is a config with the report in its head.
func (r *Report) File(title string, config *Node) string {
	var b strings.Builder
	head := func(lines ...string) {
		for _, l := range lines {
			b.WriteString(strings.TrimRight("# "+oneLineOf(l), " ") + "\n")
		}
	}
	head(title, "")
	if left := r.UntranslatedLines(); len(left) > 0 {
		head("NOT CARRIED OVER. Look at each of these before this config goes live:", "")
		for _, l := range left {
			head("  " + l)
		}
		head("")
	} else {
		head("Every line was carried over or is a default.", "")
	}
	if lines := r.Defaults(); len(lines) > 0 {
		head("Replaced by defaults of Millrace:", "")
		for _, l := range lines {
			head("  " + l)
		}
		head("")
	}
	b.WriteString("\n" + config.String())
	return b.String()
}
