package cli

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// set gives it what text says. The first text from a better source takes the
// place of what was there.
func (v *Value) set(from From, text string) error {
	if v.Many() && v.From != from {
		v.field.SetZero()
	}
	v.From = from
	if !v.Many() {
		return v.one(v.field, text)
	}
	parts := []string{text}
	if v.split {
		parts = splitList(text)
	}
	for _, part := range parts {
		element := reflect.New(v.field.Type().Elem()).Elem()
		if err := v.one(element, part); err != nil {
			return err
		}
		v.field.Set(reflect.Append(v.field, element))
	}
	return nil
}

// one sets a field, or an element of it.
func (v *Value) one(field reflect.Value, text string) error {
	if len(v.Enum) > 0 && !slices.Contains(v.Enum, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(v.Enum, ", "))
	}
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if d, ok := field.Addr().Interface().(*time.Duration); ok {
		parsed, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration: write a number and its unit, like 500ms, 30s or 5m", text)
		}
		*d = parsed
		return nil
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
		return nil
	case reflect.Bool:
		return setBool(field, text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, field.Type().Bits())
		field.SetInt(n)
		return number(err, text, "a whole number")
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		field.SetUint(n)
		return number(err, text, "a whole number of 0 or more")
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		field.SetFloat(n)
		return number(err, text, "a number")
	}
	return fmt.Errorf("no value can be made of the type %s", field.Type())
}

func number(err error, text, want string) error {
	if err != nil {
		return fmt.Errorf("%q is not %s", text, want)
	}
	return nil
}

func setBool(field reflect.Value, text string) error {
	switch strings.ToLower(text) {
	case "true", "yes", "1":
		field.SetBool(true)
	case "false", "no", "0":
		field.SetBool(false)
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}

// splitList splits at commas. One behind a backslash is part of the value.
func splitList(text string) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == ',':
			i++
			b.WriteByte(',')
		case text[i] == ',':
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(text[i])
		}
	}
	return append(out, b.String())
}
