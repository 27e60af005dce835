package draft

import (
	"cmp"
	"slices"
	"strings"
)

// Reason is what became of directives that no translation asks for: "ssl_ciphers
// gzip*" names one, and all that begin like another.
type Reason struct{ Why, Names string }

// Tables say what became of the lines that no translation has asked for.
type Tables struct {
	Defaults []Reason // Millrace does it, or something like it, unasked
	Off      string   // names for which "off" is what they are here: of no other line that is said
	Missing  []Reason // what to do instead
}

// Note is the outcome of a line by its name; unknown is what is said of one that no table has.
func (t Tables) Note(d *Directive, name, unknown string) Note {
	why := func(list []Reason) string {
		for _, r := range list {
			for n := range strings.FieldsSeq(r.Names) {
				if begin, is := strings.CutSuffix(n, "*"); n == name || is && strings.HasPrefix(name, begin) {
					return r.Why
				}
			}
		}
		return ""
	}
	if why := why(t.Defaults); why != "" {
		return Note{Outcome: Defaulted, Why: why}
	}
	if len(d.Args) == 1 && strings.EqualFold(d.Arg(0), "off") && slices.Contains(strings.Fields(t.Off), name) {
		return Note{Outcome: Defaulted, Why: "it is off here, too"}
	}
	return Note{Outcome: Untranslated, Why: cmp.Or(why(t.Missing), unknown)}
}
