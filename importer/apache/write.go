package apache

import (
	"strings"

	"millrace/importer/draft"
)

// Write is a config with these lines, as Apache reads it.
func Write(list []*draft.Directive) string {
	var b strings.Builder
	write(&b, list, "")
	return b.String()
}

func write(b *strings.Builder, list []*draft.Directive, indent string) {
	for _, d := range list {
		line := d.Name
		for i, a := range d.Args {
			if strings.EqualFold(d.Name, "require") && i > 0 && strings.EqualFold(d.Args[i-1], "expr") {
				line += " " + a // an expression is no word
				continue
			}
			line += " " + quoted(a, strings.HasPrefix(strings.ToLower(d.Name), "rewrite"))
		}
		if strings.HasSuffix(line, `\`) {
			line += " " // or the next line would continue it
		}
		if !d.Tag {
			b.WriteString(indent + line + "\n")
			continue
		}
		b.WriteString(indent + "<" + line + ">\n")
		write(b, d.Block, indent+"  ")
		b.WriteString(indent + "</" + d.Name + ">\n")
	}
}

// quoted is a word in quotes, if it needs them.
func quoted(word string, rewrite bool) string {
	if word != "" && !strings.ContainsAny(word, " \t\"'\\<>#") {
		return word
	}
	if bare := strings.ReplaceAll(strings.ReplaceAll(word, `\\`, ""), `\ `, ""); rewrite && word != "" && !strings.ContainsAny(bare, " \t") && !strings.ContainsAny(word[:1], "\"'") {
		return word
	}
	if !rewrite {
		word = strings.ReplaceAll(word, `\`, `\\`)
	}
	return `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
}
