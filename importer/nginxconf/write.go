package nginxconf

import "strings"

// Write is a config with these directives, as nginx reads it: includes stand
// in their place.
func Write(list []*Directive) string {
	var b strings.Builder
	write(&b, list, "")
	return b.String()
}

func write(b *strings.Builder, list []*Directive, indent string) {
	for _, d := range list {
		b.WriteString(indent)
		b.WriteString(d.Name.Raw)
		for _, a := range d.Args {
			b.WriteByte(' ')
			b.WriteString(a.Raw)
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

// NewWord is an argument with this text, in quotes where it needs them.
func NewWord(text string) Word {
	if text != "" && !strings.ContainsAny(text, space+`;{}"'\#`) {
		return Word{Text: text, Raw: text}
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
	return Word{Text: text, Raw: `"` + quoted + `"`, Quoted: true}
}

// New is a directive that stands nowhere yet.
func New(name string, args ...string) *Directive {
	d := &Directive{Name: Word{Text: name, Raw: name}}
	for _, a := range args {
		d.Args = append(d.Args, NewWord(a))
	}
	return d
}
