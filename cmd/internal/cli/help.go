package cli

// This file says what the command line can do: the help of each verb, the
// manual page, and completions for shells. All of it is made from the model
// that parses the command line.

import (
	"errors"
	"fmt"

	"github.com/alecthomas/kong"
)

// Examples are the command lines that end the help of each verb, and stand in the
// manual page; of "" they are those of the program.
type Examples map[string][]string

// Unexpected says what was meant by a word behind a verb that takes none; nil: nobody
// knows.
type Unexpected func(word string, program *kong.Node) error

// CommandUsage makes a mistake on the command line say where help is; verbs may know
// better what was meant by a word.
func CommandUsage(err error, verbs map[string]Unexpected) error {
	wrong, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	verb, program := Words(wrong.Node), root(wrong.Node)
	if known := verbs[verb]; wrong.Word != "" && known != nil {
		if meant := known(wrong.Word, program); meant != nil {
			return meant
		}
	}
	return Usage(wrong.Message, fmt.Sprintf("`%s --help` lists what there is", command(wrong.Node)))
}

// OwnExamples are those of the verbs here, for a program.
func OwnExamples(program string) Examples {
	return Examples{
		"completion": {
			"source <(" + program + " completion bash)                                  # in ~/.bashrc",
			program + " completion zsh > \"${fpath[1]}/_" + program + "\"",
			program + " completion fish > ~/.config/fish/completions/" + program + ".fish",
		},
		"man": {program + " man | man -l -"},
	}
}
