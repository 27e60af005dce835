package cli

// This file is what the verbs share about the command line: the values of
// flags, the settings of a config that they make, and words that are meant for
// something else.

import (
	"fmt"

	"millrace/internal/config"
)

// OtherVerb is an error that names the verb of a group which was probably meant
// by a word, nil if there is none.
func OtherVerb(text string, group *Node) error {
	var names []string
	for _, n := range group.Children {
		if n != group.Default {
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
