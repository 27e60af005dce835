package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// width is how long a line of help is at most, in characters.
const width = 80

// Page is what --help prints of a program, a group or a verb.
func Page(n *kong.Node, of Examples) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n", usage(n))
	if n.Help != "" {
		b.WriteString("\n" + strings.Join(wrap(n.Help, width), "\n") + "\n")
	}
	var args [][2]string
	for _, a := range n.Positional {
		args = append(args, [2]string{a.Summary(), withEnv(a)})
	}
	columns(&b, "Arguments", args)
	var rows [][2]string
	for _, f := range flags(n) {
		rows = append(rows, [2]string{names(f), withEnv(f.Value)})
	}
	columns(&b, "Flags", rows)
	var verbs [][2]string
	for _, v := range below(n) {
		verbs = append(verbs, [2]string{listed(v), v.Help})
	}
	columns(&b, "Commands", verbs)
	if n.Parent == nil {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about one.\n", n.Name)
	}
	if lines := of[Words(n)]; len(lines) > 0 {
		fmt.Fprintf(&b, "\nExamples:\n  %s\n", strings.Join(lines, "\n  "))
	}
	return b.String()
}

// below are the verbs that are listed with a node: those below it, and the
// others of its group where it runs when that is named alone.
func below(n *kong.Node) []*kong.Node {
	if n.Parent == nil || n.Parent.DefaultCmd != n {
		return n.Leaves(true)
	}
	var out []*kong.Node
	for _, v := range n.Parent.Leaves(true) {
		if v != n {
			out = append(out, v)
		}
	}
	return out
}

// listed are a verb's words; of one that runs when the program is named alone
// its own.
func listed(v *kong.Node) string {
	if words := Words(v); words != "" {
		return words
	}
	return v.Name
}

// usage is a command line in short.
func usage(n *kong.Node) string {
	parts := []string{root(n).Name}
	if words := Words(n); words != "" {
		parts = append(parts, words)
	}
	for _, f := range flags(n) {
		if f.Required {
			parts = append(parts, f.Summary())
		}
	}
	for _, a := range n.Positional {
		parts = append(parts, a.Summary())
	}
	if !n.Leaf() {
		parts = append(parts, "<command>")
	}
	return strings.Join(append(parts, "[flags]"), " ")
}

func names(f *kong.Flag) string {
	if f.Short == 0 {
		return "    " + f.Summary()
	}
	return f.String()
}

// withEnv is the help with the environment variable in it.
func withEnv(v *kong.Value) string {
	env := v.Tag.Get("env")
	if env == "" {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " ($" + env + ")."
}

// columns writes rows below a title: what it is, and what it does. A name that
// is too long for its column has a line of its own.
func columns(b *strings.Builder, title string, rows [][2]string) {
	const margin, gap, widest = 2, 4, width * 3 / 8
	if len(rows) == 0 {
		return
	}
	left := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r[0]); n <= widest {
			left = max(left, n)
		}
	}
	indent := strings.Repeat(" ", margin+left+gap)
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, r := range rows {
		lines := wrap(r[1], width-len(indent))
		if utf8.RuneCountInString(r[0]) > left {
			fmt.Fprintf(b, "  %s\n%s%s\n", r[0], indent, strings.Join(lines, "\n"+indent))
			continue
		}
		text := fmt.Sprintf("  %-*s    %s", left, r[0], strings.Join(lines, "\n"+indent))
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
}

// wrap breaks a text into lines. A word that is longer than a line is not broken.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
