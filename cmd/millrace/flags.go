package main

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"millrace/internal/bytesize"
	"millrace/internal/config"
	"millrace/websocket"
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

// lifetime is a duration, kept as it was typed.
type lifetime string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *lifetime) UnmarshalText(text []byte) error {
	*l = lifetime(text)
	if d, err := time.ParseDuration(string(text)); err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration: write a number and its unit, like 30s, 5m or 24h", text)
	}
	return nil
}

// size is an amount of bytes, kept as it was typed.
type size string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (z *size) UnmarshalText(text []byte) error {
	*z = size(text)
	return new(bytesize.Size).UnmarshalText(text)
}

// silence is how long something may be quiet, or off; kept as the config has it.
type silence string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (q *silence) UnmarshalText(text []byte) error {
	if string(text) == config.Off {
		*q = "-1s"
		return nil
	}
	*q = silence(text)
	if d, err := time.ParseDuration(string(text)); err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration: write a number and its unit, like 30s or 5m, or off", text)
	}
	return nil
}

// messages is how many are kept, as it was typed.
type messages string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *messages) UnmarshalText(text []byte) error {
	*m = messages(text)
	if n, err := strconv.ParseUint(string(text), 10, 31); err != nil || n == 0 {
		return fmt.Errorf("%q is not a number of messages: write one like 100; to keep none: --no-history", text)
	}
	return nil
}

// slowConsumer is a way to treat clients that do not read fast enough.
type slowConsumer string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *slowConsumer) UnmarshalText(text []byte) error {
	*c = slowConsumer(text)
	if ways := websocket.SlowConsumers(); !slices.Contains(ways, string(text)) {
		return fmt.Errorf("%q is no way to treat slow clients: use %s", text, strings.Join(ways, " or "))
	}
	return nil
}

// cachePreset is one of the cache's presets.
type cachePreset string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *cachePreset) UnmarshalText(text []byte) error {
	*p = cachePreset(text)
	if presets := []string{"api", "rfc9111", "assets"}; !slices.Contains(presets, string(text)) {
		return fmt.Errorf("%q is not a preset: use %s", text, strings.Join(presets, ", "))
	}
	return nil
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
