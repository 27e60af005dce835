// Package headers has the operator's rules for header fields: which are set,
// added and removed. They are compiled once.
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

	"millrace/internal/field"
)

// Options are rules. Removing comes first, then setting, then adding.
type Options struct {
	// Set gives fields these values, instead of those that they had.
	Set map[string]string `yaml:"set"`
	// Add adds values to fields, beside those that they have.
	Add map[string]string `yaml:"add"`
	// Remove removes fields.
	Remove []string `yaml:"remove"`
}

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
	varies bool
}

type fieldRule struct {
	name  string
	parts []part
}

// part is text, or the name of a variable.
type part struct{ text, variable string }

// Compile returns the rules, nil for none, or what is wrong by the key it is
// wrong with. may says why a field is not the operator's to change, "" if it is;
// variables are the names that values may have.
func Compile(o Options, may func(name string) string, variables []string) (*Rules, map[string]error) {
	if len(o.Set)+len(o.Add)+len(o.Remove) == 0 {
		return nil, nil
	}
	faults := map[string]error{}
	if n := len(o.Set) + len(o.Add) + len(o.Remove); n > maxRules {
		faults["set"] = fmt.Errorf("%d fields are too many: at most %d", n, maxRules)
	}
	r := new(Rules)
	for i, name := range o.Remove {
		if err := checkName(name, may); err != nil {
			faults[fmt.Sprintf("remove[%d]", i)] = err
		}
		r.remove = append(r.remove, http.CanonicalHeaderKey(name))
	}
	for _, list := range []struct {
		key  string
		from map[string]string
		to   *[]fieldRule
	}{{"set", o.Set, &r.set}, {"add", o.Add, &r.add}} {
		for _, name := range slices.Sorted(maps.Keys(list.from)) {
			parts, err := parse(list.from[name], variables)
			if e := checkName(name, may); e != nil {
				err = e
			}
			if err != nil {
				faults[list.key+"["+name+"]"] = err
				continue
			}
			*list.to = append(*list.to, fieldRule{http.CanonicalHeaderKey(name), parts})
			r.varies = r.varies || slices.ContainsFunc(parts, func(p part) bool { return p.variable != "" })
		}
	}
	return r, faults
}

func checkName(name string, may func(string) string) error {
	if !field.Token(name) {
		return fmt.Errorf("%q is not the name of a header field", name)
	}
	if why := may(http.CanonicalHeaderKey(name)); why != "" {
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
func (r *Rules) Varies() bool { return r != nil && r.varies }

// Apply changes a header. value says what a variable stands for. A field whose
// value would not be one of a header is left out.
func (r *Rules) Apply(h http.Header, value func(variable string) string) {
	if r == nil {
		return
	}
	for _, name := range r.remove {
		delete(h, name)
	}
	for i := range r.set {
		name := r.set[i].name
		delete(h, name)
		if v, ok := r.set[i].value(value); ok {
			h[name] = []string{v}
		}
	}
	for i := range r.add {
		name := r.add[i].name
		if v, ok := r.add[i].value(value); ok {
			h[name] = append(slices.Clip(h[name]), v)
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
	return b.String(), field.Value(b.String())
}
