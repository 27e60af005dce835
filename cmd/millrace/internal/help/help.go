// Package help says what the command line can do: the help of each verb, the
// manual page, and completions for shells. All of it is made from the model that
// parses the command line.
package help

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"millrace/cmd/millrace/internal/cmdline"
	"millrace/cmd/millrace/internal/console"
)

// Examples are the command lines that end the help of a verb, and stand in the
// manual page; of "" they are those of the program.
type Examples func(verb string) []string

// Printer is kong's help with the verb's examples below it.
func Printer(of Examples) kong.HelpPrinter {
	return func(o kong.HelpOptions, ctx *kong.Context) error { return show(o, ctx, of) }
}

func show(o kong.HelpOptions, ctx *kong.Context, of Examples) error {
	group := ctx.Selected()
	if group != nil {
		if alone := cmdline.DefaultOf(group); alone != nil {
			ctx.Path = append(ctx.Path, &kong.Path{Parent: group, Command: alone, Flags: alone.Flags})
		} else {
			group = nil
		}
	}
	out := ctx.Stdout
	var text bytes.Buffer
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(o, ctx)
	ctx.Stdout = out
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, shortNames(text.String(), ctx.Model)); err != nil {
		return err
	}
	if group != nil {
		if err := listVerbs(ctx.Stdout, group); err != nil {
			return err
		}
	}
	lines := of(cmdline.Words(ctx.Selected()))
	if len(lines) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(ctx.Stdout, "\nExamples:\n  %s\n", strings.Join(lines, "\n  "))
	return err
}

// shortNames calls the verbs that run when their group is named alone by the
// group's name, and keeps the columns.
func shortNames(text string, app *kong.Application) string {
	for _, n := range app.Children {
		if alone := cmdline.DefaultOf(n); alone != nil {
			long := n.Name + " " + alone.Name
			text = strings.ReplaceAll(text, "Usage: millrace "+long, "Usage: millrace "+n.Name)
			text = strings.ReplaceAll(text, "\n  "+long+" ", "\n  "+n.Name+strings.Repeat(" ", len(long)-len(n.Name)+1))
		}
	}
	return text
}

// listVerbs prints the other verbs of a group that is one itself.
func listVerbs(w io.Writer, group *kong.Node) error {
	var b strings.Builder
	b.WriteString("\nCommands:\n")
	for _, n := range group.Leaves(true) {
		if n != cmdline.DefaultOf(group) {
			fmt.Fprintf(&b, "  %-15s  %s\n", cmdline.Words(n), n.Help)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Unexpected says what was meant by a word behind a verb that takes none.
type Unexpected func(word string, app *kong.Node) error

// Usage makes a parser's complaint say where help is; verbs may know better what
// was meant by a word.
func Usage(err error, parser *kong.Kong, verbs map[string]Unexpected) error {
	verb, group := "", true // group: another word must follow
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context != nil && p.Context.Selected() != nil {
		verb, group = cmdline.Words(p.Context.Selected())+" ", !p.Context.Selected().Leaf()
	}
	message := err.Error()
	before, unexpected := strings.CutPrefix(message, "unexpected argument ")
	if known := verbs[strings.TrimSuffix(verb, " ")]; unexpected && known != nil {
		word, _, _ := strings.Cut(before, ",")
		return known(word, parser.Model.Node)
	}
	if unexpected && group {
		name, more, _ := strings.Cut(before, ",")
		message = fmt.Sprintf("there is no command %q", verb+name)
		if more != "" {
			message += "," + more
		}
	}
	return console.Usage(message, fmt.Sprintf("`%s %s--help` lists what there is", parser.Model.Name, verb))
}

// OwnExamples are those of the verbs here.
func OwnExamples(verb string) []string {
	switch verb {
	case "completion":
		return []string{
			"source <(millrace completion bash)                                  # in ~/.bashrc",
			"millrace completion zsh > \"${fpath[1]}/_millrace\"",
			"millrace completion fish > ~/.config/fish/completions/millrace.fish",
		}
	case "man":
		return []string{"millrace man | man -l -"}
	}
	return nil
}
