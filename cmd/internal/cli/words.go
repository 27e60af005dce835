package cli

// This file names verbs and flags as people type them.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// Selected is the verb that was named, or the group that lacks one; for one that
// has a default, that.
func Selected(ctx *kong.Context) *kong.Node {
	n := ctx.Selected()
	if n == nil {
		n = ctx.Model.Node
	}
	if n.DefaultCmd != nil {
		return n.DefaultCmd
	}
	return n
}

// Words are a verb's name as it is typed after the program's: "pgo record". The verb
// that runs when its group is named alone has the group's; the program has "".
func Words(n *kong.Node) string {
	switch {
	case n.Parent == nil:
		return ""
	case n.Parent.DefaultCmd == n:
		return Words(n.Parent)
	}
	return strings.TrimPrefix(Words(n.Parent)+" "+n.Name, " ")
}

// command is what has been typed up to a node.
func command(n *kong.Node) string {
	return strings.TrimSpace(root(n).Name + " " + Words(n))
}

func root(n *kong.Node) *kong.Node {
	for n.Parent != nil {
		n = n.Parent
	}
	return n
}

func childNames(n *kong.Node) []string {
	var names []string
	for _, c := range n.Children {
		names = append(names, c.Name)
	}
	return names
}

// flags are those that may stand behind a verb and that the help lists.
func flags(n *kong.Node) []*kong.Flag { return slices.Concat(n.AllFlags(true)...) }

func flagNames(n *kong.Node) []string {
	var names []string
	for _, f := range flags(n) {
		names = append(names, f.Name)
	}
	return names
}

// values are a verb's flags and arguments.
func values(n *kong.Node) []*kong.Value {
	var out []*kong.Value
	for ; n != nil; n = n.Parent {
		out = append(out, n.Values()...)
	}
	return out
}

// OtherVerb is an error that names the verb of a group which was probably meant
// by a word, nil if there is none.
func OtherVerb(text string, group *kong.Node) error {
	var names []string
	for _, n := range group.Children {
		if n != group.DefaultCmd {
			names = append(names, n.Name)
		}
	}
	near := config.Nearest(text, names)
	if near == "" {
		return nil
	}
	return Usage(
		fmt.Sprintf("there is no command %q, did you mean %q?", group.Name+" "+text, group.Name+" "+near),
		fmt.Sprintf("`millrace %s --help` lists what there is", group.Name),
	)
}
