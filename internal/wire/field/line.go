package field

import (
	"slices"
	"strings"
)

// Line is one line of a header: a field's canonical name and one of its values.
type Line struct{ Name, Value string }

// SortLines puts lines in the order of their names. Those of one name keep their
// order. It is made for a few lines that mostly stand in no order at all.
func SortLines(lines []Line) {
	for i := 1; i < len(lines); i++ {
		for j := i; j > 0 && lines[j].Name < lines[j-1].Name; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
}

// Fields is the header of a message that is being made: a [Map], or [Lines]. All
// names are canonical.
type Fields interface {
	// Has reports whether there is a field.
	Has(name string) bool
	// Lists is Has for a member of a list of tokens.
	Lists(name, member string) bool
	// Set gives a field one value, instead of those that it has.
	Set(name, value string)
	// Put gives a field these values, of which there is at least one, instead of those that
	// it has. The slice is shared.
	Put(name string, values []string)
	// Add gives it one more.
	Add(name, value string)
	// Delete removes it.
	Delete(name string)
}

// Map is an http.Header. The slices in it may be others' too: they are replaced.
type Map map[string][]string

// Has implements [Fields].
func (m Map) Has(name string) bool { return len(m[name]) > 0 }

// Lists implements [Fields].
func (m Map) Lists(name, member string) bool { return Has(m[name], member) }

// Set implements [Fields].
func (m Map) Set(name, value string) { m[name] = []string{value} }

// Put implements [Fields].
func (m Map) Put(name string, values []string) { m[name] = values }

// Add implements [Fields].
func (m Map) Add(name, value string) { m[name] = append(slices.Clip(m[name]), value) }

// Delete implements [Fields].
func (m Map) Delete(name string) { delete(m, name) }

// Lines are a header in which the lines of one name keep their order.
type Lines []Line

func (l *Lines) find(name string) int {
	return slices.IndexFunc(*l, func(one Line) bool { return one.Name == name })
}

// First is the first value of a field, "" where there is none.
func (l *Lines) First(name string) string {
	if i := l.find(name); i >= 0 {
		return (*l)[i].Value
	}
	return ""
}

// Has implements [Fields].
func (l *Lines) Has(name string) bool { return l.find(name) >= 0 }

// Lists implements [Fields].
func (l *Lines) Lists(name, member string) bool {
	return slices.ContainsFunc(*l, func(one Line) bool { return one.Name == name && Has([]string{one.Value}, member) })
}

// Set implements [Fields].
func (l *Lines) Set(name, value string) {
	l.Delete(name)
	l.Add(name, value)
}

// Put implements [Fields].
func (l *Lines) Put(name string, values []string) {
	l.Delete(name)
	for _, value := range values {
		l.Add(name, value)
	}
}

// Add implements [Fields].
func (l *Lines) Add(name, value string) { *l = append(*l, Line{name, value}) }

// Delete implements [Fields].
func (l *Lines) Delete(name string) {
	*l = slices.DeleteFunc(*l, func(one Line) bool { return one.Name == name })
}

// Of are the lines of a header, which shares its strings.
func Of(h map[string][]string) Lines {
	l := make(Lines, 0, len(h)+4)
	for name, values := range h {
		for _, value := range values {
			l = append(l, Line{name, value})
		}
	}
	return l
}

// Header is the lines as an http.Header, which shares their strings.
func (l *Lines) Header() map[string][]string {
	h := make(map[string][]string, len(*l))
	values := make([]string, len(*l))
	for i := range *l {
		one := &(*l)[i]
		if old := h[one.Name]; old != nil {
			h[one.Name] = append(old, one.Value)
			continue
		}
		values[0] = one.Value
		h[one.Name], values = values[:1:1], values[1:]
	}
	return h
}

// Values are the values of a field, in their order.
func (l *Lines) Values(name string) (values []string) {
	for i := range *l {
		if (*l)[i].Name == name {
			values = append(values, (*l)[i].Value)
		}
	}
	return values
}

// Join is all values of a field in one, with commas between them (RFC 9110, 5.3); "" where
// there is none.
func (l *Lines) Join(name string) string {
	i := l.find(name)
	if i < 0 {
		return ""
	}
	if rest := (*l)[i+1:]; rest.find(name) < 0 {
		return (*l)[i].Value
	}
	return strings.Join(slices.DeleteFunc(l.Values(name), func(value string) bool { return value == "" }), ", ")
}

// Only is the value of a field that has just one line; "" for none or several.
func (l *Lines) Only(name string) string {
	i := l.find(name)
	if i < 0 {
		return ""
	}
	if rest := (*l)[i+1:]; rest.find(name) >= 0 {
		return ""
	}
	return (*l)[i].Value
}
