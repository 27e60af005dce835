package nginx

import (
	"strings"

	"millrace/importer/draft"
)

// Write is a config with these directives, as nginx reads it: includes stand
// in their place.
func Write(list []*draft.Directive) string {
	var b strings.Builder
	write(&b, list, "")
	return b.String()
}

func write(b *strings.Builder, list []*draft.Directive, indent string) {
	for _, d := range list {
		b.WriteString(indent + quoted(d.Name))
		for _, a := range d.Args {
			b.WriteString(" " + quoted(a))
		}
		switch {
		case !d.Opens:
			b.WriteString(";\n")
		case d.Code != "":
			b.WriteString(" {" + d.Code + "}\n")
		default:
			b.WriteString(" {\n")
			write(b, d.Block, indent+"  ")
			b.WriteString(indent + "}\n")
		}
	}
}

// quoted is a word as nginx reads it, in quotes where it needs them.
func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, space+`;{}"'\#`) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}
