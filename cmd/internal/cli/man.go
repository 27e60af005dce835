package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Man is `millrace man`.
type Man struct{}

// Run prints the manual page, made from the model that parses the command line.
func (c *Man) Run(k *kong.Kong, s Streams, of Examples) error {
	_, err := fmt.Fprint(s.Out, Manual(k.Model.Node, of))
	return err
}

// Manual is the page in roff with the man macros (man(7)). It has no date, so
// that it changes only with the program.
func Manual(program *kong.Node, of Examples) string {
	name, about, verbs := roff(program.Name), program.Help, verbsOf(program)
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made by: %s man\n.TH %s 1 \"\" \"millrace\" \"User Commands\"\n", program.Name, strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", name, roff(strings.ToLower(about[:1])+strings.TrimSuffix(about[1:], ".")))
	for i, v := range verbs {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, "\\fB%s %s\\fR", name, v.name)
		if len(v.flags) > 1 { // more than --help
			b.WriteString(" [\\fIflags\\fR]")
		}
		for _, a := range v.args {
			arg := "\\fI" + roff(a.name) + "\\fR"
			if a.many {
				arg += "..."
			}
			if a.placeholder != "" {
				arg = "[" + arg + "]"
			}
			b.WriteString(" " + arg)
		}
		b.WriteByte('\n')
	}
	b.WriteString(".SH COMMANDS\n")
	for _, v := range verbs {
		manualVerb(&b, name, v, of[v.name])
	}
	if slices.Contains(childNames(program), "serve") {
		b.WriteString(manualServer)
	}
	b.WriteString(manualEnd)
	return b.String()
}

func manualVerb(b *strings.Builder, program string, v verb, examples []string) {
	fmt.Fprintf(b, ".SS %s %s\n%s\n", program, v.name, roff(v.help))
	for _, a := range v.args {
		fmt.Fprintf(b, ".TP\n\\fI%s\\fR\n%s\n", roff(a.name), roff(a.help))
	}
	for _, f := range v.flags {
		if f.name == "help" {
			continue
		}
		b.WriteString(".TP\n")
		if f.short != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.short)
		}
		fmt.Fprintf(b, "\\fB%s\\fR", roff("--"+f.name))
		if f.placeholder != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(f.placeholder))
		}
		fmt.Fprintf(b, "\n%s\n", roff(f.help))
		switch {
		case f.env != "" && f.key != "":
			fmt.Fprintf(b, "Also \\fB%s\\fR in the environment and \\fB%s\\fR in the config.\n", roff(f.env), roff(f.key))
		case f.env != "":
			fmt.Fprintf(b, "Also \\fB%s\\fR in the environment.\n", roff(f.env))
		}
	}
	if len(examples) > 0 {
		b.WriteString(".PP\n.nf\n")
		for _, l := range examples {
			b.WriteString(".RS\n" + roff(l) + "\n.RE\n")
		}
		b.WriteString(".fi\n")
	}
}

// manualServer is what no flag says of a program that serves.
const manualServer = `.SH ENVIRONMENT
Each flag of \fBserve\fR, \fBcache\fR and \fBws\fR can be given in the environment, as said
above. A flag on the command line wins over the environment, and both over the config.
Several addresses in one variable are separated by commas.
.SH SIGNALS
.TP
\fBSIGTERM\fR, \fBSIGINT\fR
No new connections; running requests end. A second one cuts them off.
.TP
\fBSIGHUP\fR
The config is read again. A bad one is reported, and the old one goes on serving.
.TP
\fBSIGUSR1\fR
The log file is opened again by its name, after a rotation.
.TP
\fBSIGUSR2\fR
A CPU profile is taken into a file in the folder for temporary files
(\fBTMPDIR\fR), which is named on the standard error. Once more, or ten minutes,
end it. \fBmillrace\-lab pgo record \-\-pid\fR does all of this.
.SH FILES
.TP
\fImillrace.yaml\fR
The config that \fBserve\fR and \fBcheck\fR look for in the current folder.
`

// manualEnd is what no flag says of any program.
const manualEnd = `.SH EXIT STATUS
0 after an orderly end, 1 when something could not be done, 2 when the command
line itself is wrong.
`

// roff escapes what the formatter would take for a request or change: a hyphen
// stays a hyphen that can be copied, a line never starts with a dot.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
