package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// written is one value as the user wrote it.
type written struct {
	text  string
	plain bool // without quotes
	path  string
	at    place
}

// text decodes one value into v, after the environment has been put in. What
// comes from a variable is only ever this one value.
func (d *decoder) text(v reflect.Value, w written) {
	s, err := w.text, error(nil)
	if !d.verbatim {
		s, err = expand(w.text, d.env)
	}
	if err != nil {
		d.fail(w, err.Error(), "set it, or write ${NAME:-default}; $$ is a dollar sign")
		return
	}
	// A number in quotes is text, but a variable may have to stand in them.
	bare := w.plain || s != w.text
	name := strconv.Quote(lastKey(w.path))
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(s)); err != nil {
			hint := ""
			if c, ok := err.(interface{ Choices() []string }); ok {
				if near := Nearest(s, c.Choices()); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
			}
			d.fail(w, name+": "+err.Error(), hint)
		}
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		d.duration(v, s, w, name)
		return
	}
	ok := false
	switch v.Kind() {
	case reflect.String:
		if ok = !w.plain || (s != "true" && s != "false"); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		var b bool
		b, ok = parseBool(s)
		ok = ok && bare
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		ok = err == nil && bare
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(s, 10, v.Type().Bits())
		ok = err == nil && bare
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		ok = err == nil && bare
		v.SetFloat(n)
	}
	if !ok {
		v.SetZero()
		not := strconv.Quote(s)
		if v.Kind() == reflect.String {
			not = s // true or false: quotes would make it text
		}
		d.fail(w, fmt.Sprintf("%s must be %s, not %s", name, wanted(v.Type()), not), quoteHint(v.Kind(), bare))
	}
}

// fail reports a value that could not be read.
func (d *decoder) fail(w written, message, hint string) {
	d.doc.unread[w.path] = true
	d.doc.at(w.at, message, hint)
}

func quoteHint(k reflect.Kind, bare bool) string {
	switch {
	case k == reflect.String:
		return "put it in quotes if it is meant as text"
	case !bare:
		return "without quotes"
	}
	return ""
}

func parseBool(s string) (value, ok bool) {
	switch s {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

func (d *decoder) duration(v reflect.Value, s string, w written, name string) {
	n, err := time.ParseDuration(s)
	if err == nil {
		v.SetInt(int64(n))
		return
	}
	hint := "units are ms, s, m and h: 500ms, 10s, 1m30s"
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		hint = fmt.Sprintf("with its unit: %ss, %sms, %sm", s, s, s)
	}
	d.fail(w, fmt.Sprintf("%s must be a duration like 10s, not %q", name, s), hint)
}

// setting puts one value from outside the file into cfg.
func (d *decoder) setting(cfg *Config, s Setting) {
	at := place{from: s.From}
	job, key, dotted := strings.Cut(s.Key, ".")
	if !dotted || !slices.Contains(jobNames(), job) {
		d.set(reflect.ValueOf(cfg).Elem(), "", s.Key, s, at)
		return
	}
	for i := range cfg.Sites {
		for _, r := range sortedKeys(cfg.Sites[i].Routes) {
			route := reflect.ValueOf(cfg.Sites[i].Routes[r])
			if o := route.FieldByIndex(fieldOf(route.Type(), job).index); !o.IsNil() {
				d.set(o.Elem(), fmt.Sprintf("sites[%d].routes[%s].%s", i, r, job), key, s, at)
			}
		}
	}
}

// set puts a setting into the key of v, which is called path.
func (d *decoder) set(v reflect.Value, path, key string, s Setting, at place) {
	for part := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() && path != autoPath { // a part that this route does not have, as in jobs
				return
			}
			v = made(v)
		}
		f := fieldOf(v.Type(), part)
		if f.index == nil { // a mistake of ours: the test of the flags finds it
			d.doc.at(at, fmt.Sprintf("there is no key %q", s.Key), "")
			return
		}
		v, path = v.FieldByIndex(f.index), join(path, part)
	}
	d.doc.values[path], d.doc.keys[path] = at, at
	if v.Kind() == reflect.Pointer {
		v = made(v)
	}
	if v.Kind() != reflect.Slice {
		d.plain(v, path, s.Values[0], at)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, text := range s.Values {
		inner := path + "[" + strconv.Itoa(i) + "]"
		d.doc.values[inner] = at
		d.plain(v.Index(i), inner, text, at)
	}
}

// made dereferences a pointer, and allocates its value where it is nil.
func made(v reflect.Value) reflect.Value {
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// plain is text without the environment: the shell has put that in already.
func (d *decoder) plain(v reflect.Value, path, text string, at place) {
	d.text(v, written{text: strings.ReplaceAll(text, "$", "$$"), plain: v.Kind() != reflect.String, path: path, at: at})
}

// expand replaces ${NAME}, ${NAME:-default} and $$. Any other dollar sign is
// an error, so that a mistyped variable is not served as a folder's name.
func expand(s string, env func(string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if after, ok := strings.CutPrefix(rest, "$"); ok {
			b.WriteByte('$')
			s = after
			continue
		}
		inner, ok := strings.CutPrefix(rest, "{")
		inside, after, closed := strings.Cut(inner, "}")
		if !ok || !closed {
			return "", fmt.Errorf("a $ that begins no variable")
		}
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !variableName(name) {
			return "", fmt.Errorf("%q is not the name of an environment variable", name)
		}
		value, set := env(name)
		switch {
		case hasFallback && value == "":
			value = fallback
		case !set:
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		b.WriteString(value)
		s = after
	}
}

// variableName follows POSIX (Base Definitions, 8.1).
func variableName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
