package cmdline

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// Settings are the config's keys that the flags of a verb set, or their
// environment variables do. A flag's key is in its tag.
func Settings(node *kong.Node, path []*kong.Path) []config.Setting {
	var out []config.Setting
	for _, f := range node.Flags {
		key := f.Tag.Get("key")
		values := texts(f.Target)
		if key == "" || len(values) == 0 {
			continue
		}
		from := "--" + f.Name
		typed := slices.ContainsFunc(path, func(p *kong.Path) bool { return p.Flag == f && !p.Resolved })
		if !typed && len(f.Envs) > 0 {
			from = f.Envs[0]
		}
		out = append(out, config.Setting{Key: key, Values: values, From: from})
	}
	return out
}

// texts is what a flag was given, as the config would have it written.
func texts(v reflect.Value) []string {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return []string{"true"}
		}
	case reflect.Int:
		if v.Int() != 0 {
			return []string{strconv.FormatInt(v.Int(), 10)}
		}
	case reflect.String:
		if v.String() != "" {
			return []string{v.String()}
		}
	case reflect.Slice:
		var out []string
		for i := range v.Len() {
			out = append(out, v.Index(i).String())
		}
		return out
	}
	return nil
}
