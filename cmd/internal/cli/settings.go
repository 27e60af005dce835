package cli

import (
	"fmt"
	"reflect"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// Settings are the config's keys that the flags of a verb set, or their
// environment variables do. A flag's key is in its tag.
func Settings(ctx *kong.Context) []config.Setting {
	var out []config.Setting
	for _, f := range Selected(ctx).Flags {
		key, values := f.Tag.Get("key"), texts(f)
		if key == "" || len(values) == 0 {
			continue
		}
		from := f.ShortSummary()
		if env := f.Tag.Get("env"); env != "" && !typed(ctx, f.Value) {
			from = env
		}
		out = append(out, config.Setting{Key: key, Values: values, From: from})
	}
	return out
}

// texts are a flag's value as it would be typed; none for one that is false, 0 or empty.
func texts(f *kong.Flag) []string {
	if f.Target.IsZero() {
		return nil
	}
	if !f.IsSlice() {
		return []string{textOf(f.Target)}
	}
	var out []string
	for i := range f.Target.Len() {
		out = append(out, textOf(f.Target.Index(i)))
	}
	return out
}

func textOf(v reflect.Value) string {
	if v.Kind() == reflect.String { // whatever its String method says
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}
