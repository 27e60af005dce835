package draft

import (
	"fmt"
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

// cause is a reason with the lines that it is for, by their texts.
type cause struct {
	why   string
	lines []string
	at    map[string][]string
}

// causes are the reasons for an outcome, in the order of the lines.
func (r *Report) causes(of Outcome, text func(Note) string) (list []*cause) {
	by := map[string]*cause{}
	for _, n := range r.Notes {
		if n.Outcome != of {
			continue
		}
		c := by[n.Why]
		if c == nil {
			c = &cause{why: n.Why, at: map[string][]string{}}
			by[n.Why], list = c, append(list, c)
		}
		if c.at[text(n)] == nil {
			c.lines = append(c.lines, text(n))
		}
		c.at[text(n)] = append(c.at[text(n)], n.At)
	}
	return list
}

// few are the first of a list, and how many more there are.
func few(list []string) string {
	const shown = 4
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}

// UntranslatedLines lists what was not carried over: for each cause the lines, with all
// places in which one stands, and what to do.
func (r *Report) UntranslatedLines() (lines []string) {
	for _, c := range r.causes(Untranslated, func(n Note) string { return n.Line }) {
		for _, text := range c.lines {
			lines = append(lines, few(c.at[text])+": "+oneLineOf(text))
		}
		lines = append(lines, "    "+oneLineOf(c.why))
	}
	return lines
}

// Defaults lists what was replaced by defaults: one line for each reason, with
// the lines that it is for.
func (r *Report) Defaults() (lines []string) {
	for _, c := range r.causes(Defaulted, func(n Note) string { return n.name() + " (" + n.At + ")" }) {
		lines = append(lines, oneLineOf(few(c.lines))+":", "    "+oneLineOf(c.why))
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
