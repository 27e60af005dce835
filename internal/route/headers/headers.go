// Package headers has the operator's rules for header fields: which are set,
// added and removed. They are compiled once. [Options] are the rules of one list;
// [AnswerOptions] are those for answers, with conditions; [CORS] answers questions
// of browsers about other origins.
//
// A value may have variables, like {client_ip}. Braces around anything that is
// not a name (JSON) are text; {{ is a single brace.
package headers

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

// Options are rules. Removing comes first, then setting, adding and defaults.
type Options struct {
	// Set gives fields these values, instead of those that they had.
	Set map[string]string `yaml:"set"`
	// Add adds values to fields, beside those that they have.
	Add map[string]string `yaml:"add"`
	// Default gives fields these values where there are none.
	Default map[string]string `yaml:"default"`
	// Remove removes fields.
	Remove []string `yaml:"remove"`
}

func (o *Options) fields() int { return len(o.Set) + len(o.Add) + len(o.Default) + len(o.Remove) }

const (
	// maxRules bounds the fields of one list of rules: each costs every request.
	maxRules = 100
	// maxValue is the longest value as it is written.
	maxValue = 8 << 10
)

// Rules are Options, compiled.
type Rules struct {
	remove []string
	set    []fieldRule
	add    []fieldRule
	absent []fieldRule
	used   []string // variables
}

type fieldRule struct {
	name  string
	parts []part
}

// part is text, or the name of a variable.
type part struct{ text, variable string }

// An Op is what a rule does to a field.
type Op string

// The operations, by their keys.
const (
	Set     Op = "set"
	Add     Op = "add"
	Default Op = "default"
	Remove  Op = "remove"
)

// Compile returns the rules, nil for none, or what is wrong by the key it is
// wrong with. may says why a field is not the operator's to change, "" if it is;
// variables are the names that values may have.
func Compile(o Options, may func(name string, op Op) string, variables []string) (*Rules, map[string]error) {
	if o.fields() == 0 {
		return nil, nil
	}
	faults := map[string]error{}
	if n := o.fields(); n > maxRules {
		faults["set"] = fmt.Errorf("%d fields are too many: at most %d", n, maxRules)
	}
	r := new(Rules)
	for i, name := range o.Remove {
		if err := checkName(name, Remove, may); err != nil {
			faults[fmt.Sprintf("remove[%d]", i)] = err
		}
		r.remove = append(r.remove, http.CanonicalHeaderKey(name))
	}
	for _, list := range []struct {
		op   Op
		from map[string]string
		to   *[]fieldRule
	}{{Set, o.Set, &r.set}, {Add, o.Add, &r.add}, {Default, o.Default, &r.absent}} {
		seen := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(list.from)) {
			parts, err := parse(list.from[name], variables)
			if e := checkName(name, list.op, may); e != nil {
				err = e
			}
			canonical := http.CanonicalHeaderKey(name)
			if seen[canonical] {
				err = fmt.Errorf("%s stands here in two spellings", canonical)
			}
			if seen[canonical] = true; err != nil {
				faults[string(list.op)+"["+name+"]"] = err
				continue
			}
			*list.to = append(*list.to, fieldRule{canonical, parts})
			for _, p := range parts {
				if p.variable != "" && !slices.Contains(r.used, p.variable) {
					r.used = append(r.used, p.variable)
				}
			}
		}
	}
	return r, faults
}

func checkName(name string, op Op, may func(string, Op) string) error {
	if !field.Token(name) {
		return fmt.Errorf("%q is not the name of a header field", name)
	}
	if why := may(http.CanonicalHeaderKey(name), op); why != "" {
		return fmt.Errorf("%s cannot be changed here: %s", name, why)
	}
	return nil
}

// parse reads a value.
func parse(value string, variables []string) (parts []part, err error) {
	if len(value) > maxValue || !field.Value(value) || strings.TrimSpace(value) != value {
		return nil, fmt.Errorf("%.64q is not the value of a header field", value)
	}
	text := ""
	for rest := value; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		text += before
		if !found {
			break
		}
		name, behind, closed := strings.Cut(after, "}")
		switch {
		case strings.HasPrefix(after, "{"):
			text, rest = text+"{", after[1:]
			continue
		case !closed || !isName(name):
			text, rest = text+"{", after
			continue
		case !slices.Contains(variables, name):
			return nil, fmt.Errorf("there is no variable {%s}: use %s, or write {{ for the character", name, list(variables))
		}
		if text != "" {
			parts = append(parts, part{text: text})
		}
		parts = append(parts, part{variable: name})
		text, rest = "", behind
	}
	if text != "" || len(parts) == 0 {
		parts = append(parts, part{text: text})
	}
	return parts, nil
}

func list(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "{" + n + "}"
	}
	return strings.Join(out, ", ")
}

func isName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}

// Varies reports whether the rules give different requests different values.
func (r *Rules) Varies() bool { return r != nil && len(r.used) > 0 }

// Names are those of the fields that the rules are for.
func (r *Rules) Names() []string {
	if r == nil {
		return nil
	}
	names := slices.Clone(r.remove)
	for _, list := range [][]fieldRule{r.set, r.add, r.absent} {
		for i := range list {
			names = append(names, list[i].name)
		}
	}
	return names
}

// Apply changes a header. value says what a variable stands for. A field whose
// value would not be one of a header is left out.
func (r *Rules) Apply(h field.Fields, value func(variable string) string) {
	if r != nil {
		r.apply(h, value, nil)
	}
}

// apply is Apply for the fields of which may says so; nil: all.
func (r *Rules) apply(h field.Fields, value func(variable string) string, may func(name string) bool) {
	for _, name := range r.remove {
		if may == nil || may(name) {
			h.Delete(name)
		}
	}
	for i := range r.set {
		name := r.set[i].name
		if may != nil && !may(name) {
			continue
		}
		if v, ok := r.set[i].value(value); ok {
			h.Set(name, v)
		} else {
			h.Delete(name)
		}
	}
	for i := range r.add {
		name := r.add[i].name
		if may != nil && !may(name) {
			continue
		}
		if v, ok := r.add[i].value(value); ok {
			h.Add(name, v)
		}
	}
	for i := range r.absent {
		name := r.absent[i].name
		if h.Has(name) || may != nil && !may(name) {
			continue
		}
		if v, ok := r.absent[i].value(value); ok {
			h.Set(name, v)
		}
	}
}

func (f *fieldRule) value(of func(string) string) (string, bool) {
	if len(f.parts) == 1 && f.parts[0].variable == "" {
		return f.parts[0].text, true
	}
	var b strings.Builder
	for _, p := range f.parts {
		b.WriteString(p.text)
		if p.variable != "" {
			b.WriteString(of(p.variable))
		}
	}
	v := strings.Trim(b.String(), " \t") // as it arrives
	return v, field.Value(v)
}
