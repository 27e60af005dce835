package draft

import (
	"fmt"
	"strings"
)

// Directive is one directive of the original config, with the block in its braces or
// between its tags.
type Directive struct {
	Name  string
	Args  []string
	Block []*Directive
	Opens bool   // it has a block, empty or not
	Tag   bool   // it is written as <Name …>
	Code  string // what is in the braces, where that are no directives
	File  string
	Line  int

	Written string // as it stands in the file, without its block; "" if that is not known
}

// At is file:line.
func (d *Directive) At() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// String is the line, without its block.
func (d *Directive) String() string {
	if d.Written != "" {
		return d.Written
	}
	words := []string{d.Name}
	for _, a := range d.Args {
		if a == "" || strings.ContainsAny(a, " \t\"") {
			a = `"` + strings.ReplaceAll(a, `"`, `\"`) + `"`
		}
		words = append(words, a)
	}
	if d.Tag {
		return "<" + strings.Join(words, " ") + ">"
	}
	return strings.TrimSpace(strings.Join(words, " ")) // the addresses of a Caddyfile have no name
}

// Arg is an argument by its place from 0, "" if there are fewer.
func (d *Directive) Arg(i int) string {
	if i < 0 || i >= len(d.Args) {
		return ""
	}
	return d.Args[i]
}

// Words are the arguments; of nil, none.
func (d *Directive) Words() []string {
	if d == nil {
		return nil
	}
	return d.Args
}

// Ledger keeps the outcome of each line of a config, until it is reported.
type Ledger struct {
	Opaque func(*Directive) bool // blocks whose lines are no directives; nil: none

	outcomes map[*Directive]Note
}

// NewLedger returns an empty one.
func NewLedger() *Ledger { return &Ledger{outcomes: map[*Directive]Note{}} }

// Used marks lines as translated, unless something about them was left.
func (l *Ledger) Used(list ...*Directive) {
	for _, d := range list {
		if d != nil && l.outcomes[d].Outcome != Untranslated {
			l.outcomes[d] = Note{Outcome: Translated}
		}
	}
}

// Take marks a line as translated, and returns it.
func (l *Ledger) Take(d *Directive) *Directive {
	l.Used(d)
	return d
}

// Standard marks a line as replaced by a default.
func (l *Ledger) Standard(d *Directive, why string) {
	if d != nil && l.outcomes[d].Outcome == 0 {
		l.outcomes[d] = Note{Outcome: Defaulted, Why: why}
	}
}

// Partly marks a translated line as one that is not carried over as it stands, or not
// everywhere.
func (l *Ledger) Partly(d *Directive, why string) {
	if l.outcomes[d].Outcome == Translated {
		l.outcomes[d] = Note{Outcome: Defaulted, Why: why}
	}
}

// Leave marks a line as not carried over. What is in its block goes with it.
func (l *Ledger) Leave(d *Directive, do string) {
	old := l.outcomes[d]
	if old.Outcome == Untranslated {
		if strings.Contains(old.Why, do) {
			return
		}
		do = old.Why + "; " + do
	}
	l.outcomes[d] = Note{Outcome: Untranslated, Why: do}
}

// Whole marks a line and all lines in its block.
func (l *Ledger) Whole(d *Directive, outcome Outcome, why string) {
	switch outcome {
	case Translated:
		l.Used(d)
	case Defaulted:
		l.Standard(d, why)
	case Untranslated:
		l.Leave(d, why)
	}
	for _, b := range d.Block {
		l.Whole(b, outcome, why)
	}
}

// Outcome is what became of a line, 0 if nobody has said.
func (l *Ledger) Outcome(d *Directive) Outcome { return l.outcomes[d].Outcome }

// Note is what became of a line, and why.
func (l *Ledger) Note(d *Directive) Note { return l.outcomes[d] }

// Report lists each line with its outcome; otherwise decides for lines that no translation
// has marked. A line that was imported in several places is reported once for each
// outcome.
func (l *Ledger) Report(list []*Directive, otherwise func(*Directive) Note) *Report {
	r := &Report{}
	seen := map[Note]bool{}
	var walk func(list []*Directive)
	walk = func(list []*Directive) {
		for _, d := range list {
			note := l.outcomes[d]
			if note.Outcome == 0 {
				note = otherwise(d)
			}
			note.At, note.Line = d.At(), d.String()
			if !seen[note] {
				seen[note] = true
				r.Add(note)
			}
			if note.Outcome == Untranslated && d.Opens && l.outcomes[d].Outcome != 0 {
				continue // what is inside went with it
			}
			if l.Opaque == nil || !l.Opaque(d) {
				walk(d.Block)
			}
		}
	}
	walk(list)
	return r
}
