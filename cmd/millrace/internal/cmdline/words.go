// Package cmdline is what the verbs share about the command line: the values of
// flags, the settings of a config that they make, and words that are meant for
// something else.
package cmdline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/cmd/millrace/internal/console"
	"millrace/internal/config"
)

// Words are a command's name as it is typed after millrace: "pgo record". The
// one that runs when its group is named alone has the group's.
func Words(n *kong.Node) string {
	if n != nil && n.Parent != nil && DefaultOf(n.Parent) == n {
		n = n.Parent
	}
	name := ""
	for ; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		name = strings.TrimSpace(n.Name + " " + name)
	}
	return name
}

// DefaultOf is the verb that runs when a group is named alone, or nil.
func DefaultOf(n *kong.Node) *kong.Node {
	if i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Tag != nil && c.Tag.Default != "" }); i >= 0 {
		return n.Children[i]
	}
	return nil
}

// OtherVerb is an error that names the verb of a group which was probably meant
// by a word, nil if there is none.
func OtherVerb(text string, group *kong.Node) error {
	var names []string
	for _, n := range group.Children {
		if n != DefaultOf(group) {
			names = append(names, n.Name)
		}
	}
	near := config.Nearest(text, names)
	if near == "" {
		return nil
	}
	return console.Usage(
		fmt.Sprintf("there is no command %q, did you mean %q?", group.Name+" "+text, group.Name+" "+near),
		fmt.Sprintf("`millrace %s --help` lists what there is", group.Name),
	)
}
