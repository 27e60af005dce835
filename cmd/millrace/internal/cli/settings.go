package cli

import (
	"millrace/internal/config"
)

// Settings are the config's keys that the flags of a verb set, or their
// environment variables do. A flag's key is in its tag.
func Settings(verb *Node) []config.Setting {
	var out []config.Setting
	for _, f := range verb.Flags {
		key, values := f.Tag.Get("key"), f.Texts()
		if key == "" || len(values) == 0 {
			continue
		}
		from := f.String()
		if f.From != Typed && f.Env != "" {
			from = f.Env
		}
		out = append(out, config.Setting{Key: key, Values: values, From: from})
	}
	return out
}
