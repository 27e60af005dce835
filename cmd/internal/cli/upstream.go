package cli

import (
	"fmt"
	"strings"

	"millrace/internal/config"
)

// Upstream is an address that something is in front of.
type Upstream struct {
	URL   string
	Typed string // what it was made from
}

// String is the address, and what it was made from.
func (u Upstream) String() string {
	if u.URL == u.Typed {
		return u.URL
	}
	return fmt.Sprintf("%s (that is what %q is taken for)", u.URL, u.Typed)
}

// Upstreams are those of one verb.
type Upstreams []Upstream

// String lists them.
func (all Upstreams) String() string {
	var texts []string
	for _, u := range all {
		texts = append(texts, u.String())
	}
	return strings.Join(texts, ", ")
}

// Setting puts the upstreams into the config as if a flag had said so.
func (all Upstreams) Setting(key string) config.Setting {
	s := config.Setting{Key: key, From: "UPSTREAM"}
	for _, u := range all {
		s.Values = append(s.Values, u.URL)
	}
	return s
}
