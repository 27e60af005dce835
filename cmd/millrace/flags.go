package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// address is a flag's value that a listener can have.
type address string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *address) UnmarshalText(text []byte) error {
	*a = address(text)
	return config.CheckAddress(string(text))
}

// adminAddress is an address, or off.
type adminAddress string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *adminAddress) UnmarshalText(text []byte) error {
	*a = adminAddress(text)
	if *a == config.Off {
		return nil
	}
	return config.CheckAddress(string(text))
}

// logFormat is how the access log writes its lines.
type logFormat string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *logFormat) UnmarshalText(text []byte) error {
	*f = logFormat(text)
	if slices.Contains(config.LogFormats(), string(text)) {
		return nil
	}
	return fmt.Errorf("%q is not a log format: use %s", text, strings.Join(config.LogFormats(), ", "))
}

// settings are the config's keys that the flags of a verb set, or their
// environment variables do. A flag's key is in its tag.
func settings(node *kong.Node, path []*kong.Path) []config.Setting {
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
