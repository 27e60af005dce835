package cli

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is `millrace completion`.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script. It is made from the same model that parses the
// command line, so it cannot know other verbs and flags.
func (c *Completion) Run(k *kong.Kong, s Streams) error {
	script := map[string]func(*kong.Node) string{"bash": bash, "zsh": zsh, "fish": fish}[c.Shell]
	_, err := fmt.Fprint(s.Out, script(k.Model.Node))
	return err
}

// verb is a command as completions and the manual page see it.
type verb struct {
	name  string // all words: "serve", "pgo record"
	group string // the first of two words; "" for a verb of one
	help  string
	flags []option
	args  []option
}

// group is a word that verbs begin with: pgo in "pgo record". When it is a verb
// itself ("cache"), that one is alone.
type group struct {
	name, help string
	verbs      []verb
	alone      *verb
}

// option is a flag or an argument.
type option struct {
	name, short, help string
	placeholder       string   // "" when it takes no value
	values            []string // what it may be; empty for anything
	kind              string   // "file", "dir" or ""
	env, key          string
	many              bool // an argument that may stand several times
}

// verbsOf reads the model: all that can be run.
func verbsOf(program *kong.Node) []verb {
	var out []verb
	for _, n := range program.Leaves(true) {
		out = append(out, verbOf(n))
	}
	return out
}

// groupsOf are the first words of verbs that have two.
func groupsOf(program *kong.Node) []group {
	var out []group
	for _, n := range program.Children {
		if n.Leaf() {
			continue
		}
		g := group{name: n.Name, help: n.Help}
		for _, leaf := range n.Leaves(true) {
			if v := verbOf(leaf); v.name == g.name {
				g.alone = &v
			} else {
				g.verbs = append(g.verbs, v)
			}
		}
		out = append(out, g)
	}
	return out
}

// verbOf reads one command.
func verbOf(n *kong.Node) verb {
	v := verb{name: Words(n), help: n.Help}
	if first, _, two := strings.Cut(v.name, " "); two {
		v.group = first
	}
	for _, f := range flags(n) {
		v.flags = append(v.flags, flagOf(f))
	}
	for _, a := range n.Positional {
		o := option{
			name: strings.ToUpper(a.Name), help: a.Help, values: list(a.Enum),
			kind: a.Tag.Get("complete"), many: a.IsCumulative(),
		}
		if !a.Required {
			o.placeholder = "optional"
		}
		v.args = append(v.args, o)
	}
	return v
}

func flagOf(f *kong.Flag) option {
	o := option{
		name: f.Name, help: f.Help, values: list(f.Tag.Get("values")),
		kind: f.Tag.Get("complete"), env: f.Tag.Get("env"), key: f.Tag.Get("key"),
	}
	if f.Short != 0 {
		o.short = string(f.Short)
	}
	if !f.IsBool() {
		o.placeholder = f.FormatPlaceHolder()
	}
	return o
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// own is a verb's last word, the one after its group.
func (v verb) own() string { return strings.TrimPrefix(v.name, v.group+" ") }

// ownNames are the words that may follow the group's.
func (g group) ownNames() string {
	var names []string
	for _, v := range g.verbs {
		names = append(names, v.own())
	}
	return strings.Join(names, " ")
}

// flagNames are the verb's flags.
func (v verb) flagNames() string {
	var flags []string
	for _, f := range v.flags {
		flags = append(flags, "--"+f.name)
	}
	return strings.Join(flags, " ")
}

// firstWords are what may follow millrace, in the model's order.
func firstWords(program *kong.Node) string {
	return strings.Join(childNames(program), " ")
}

// bash completes by the words before the one being typed.
func bash(program *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for %[1]s; made by: %[1]s completion bash
_%[1]s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]-}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "%[2]s --help" -- "$cur"))
        return
    fi
    case $verb in
`, program.Name, firstWords(program))
	for _, g := range groupsOf(program) {
		flags := "--help"
		if g.alone != nil {
			flags = g.alone.flagNames()
		}
		fmt.Fprintf(&b, `    %s)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W "%s %s" -- "$cur"))
            return
        fi
        case ${COMP_WORDS[2]} in %s) verb+=" ${COMP_WORDS[2]}" ;; esac
        ;;
`, g.name, g.ownNames(), flags, strings.ReplaceAll(g.ownNames(), " ", "|"))
	}
	b.WriteString("    esac\n    case $verb in\n")
	for _, v := range verbsOf(program) {
		bashVerb(&b, v)
	}
	fmt.Fprintf(&b, "    esac\n}\ncomplete -o filenames -F _%[1]s %[1]s\n", program.Name)
	return b.String()
}

func bashVerb(b *strings.Builder, v verb) {
	fmt.Fprintf(b, "    %q)\n        case $prev in\n", v.name)
	for _, f := range v.flags {
		if f.placeholder == "" {
			continue
		}
		pattern := "--" + f.name
		if f.short != "" {
			pattern += "|-" + f.short
		}
		fmt.Fprintf(b, "        %s) %s; return ;;\n", pattern, bashValue(f))
	}
	fmt.Fprintf(b, "        esac\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))\n", v.flagNames())
	if len(v.args) > 0 { // several are of one kind, or the first says most
		fmt.Fprintf(b, "        else\n            %s\n", bashValue(v.args[0]))
	}
	b.WriteString("        fi\n        ;;\n")
}

func bashValue(o option) string {
	switch {
	case len(o.values) > 0:
		return fmt.Sprintf(`COMPREPLY=($(compgen -W "%s" -- "$cur"))`, strings.Join(o.values, " "))
	case o.kind == "dir":
		return `COMPREPLY=($(compgen -d -- "$cur"))`
	case o.kind == "file":
		return `COMPREPLY=($(compgen -f -- "$cur"))`
	}
	return "COMPREPLY=()"
}

// zsh hands everything to _arguments.
func zsh(program *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# zsh completion for %[1]s; made by: %[1]s completion zsh\n_%[1]s() {\n    local -a verbs=(\n", program.Name)
	for _, n := range program.Children {
		fmt.Fprintf(&b, "        %s\n", shellQuote(n.Name+":"+firstSentence(n.Help)))
	}
	b.WriteString("    )\n    if ((CURRENT == 2)); then\n        _describe command verbs\n        return\n    fi\n")
	b.WriteString("    local verb=${words[2]}\n    shift words; ((CURRENT--))\n    case $verb in\n")
	for _, g := range groupsOf(program) {
		fmt.Fprintf(&b, "    %s)\n        verbs=(\n", g.name)
		for _, v := range g.verbs {
			fmt.Fprintf(&b, "            %s\n", shellQuote(v.own()+":"+firstSentence(v.help)))
		}
		offer := "_describe command verbs\n            return"
		if g.alone != nil { // its own flags and arguments besides
			offer = "[[ ${words[2]} == -* ]] || _describe command verbs"
		}
		fmt.Fprintf(&b, "        )\n        if ((CURRENT == 2)); then\n            %s\n        fi\n", offer)
		fmt.Fprintf(&b, "        case ${words[2]} in %s) verb+=\" ${words[2]}\"; shift words; ((CURRENT--)) ;; esac\n        ;;\n",
			strings.ReplaceAll(g.ownNames(), " ", "|"))
	}
	b.WriteString("    esac\n    case $verb in\n")
	for _, v := range verbsOf(program) {
		zshVerb(&b, v)
	}
	fmt.Fprintf(&b, "    esac\n}\nif [ \"$funcstack[1]\" = _%[1]s ]; then _%[1]s \"$@\"; else compdef _%[1]s %[1]s; fi\n", program.Name)
	return b.String()
}

func zshVerb(b *strings.Builder, v verb) {
	fmt.Fprintf(b, "    %q)\n        _arguments", v.name)
	for _, f := range v.flags {
		help := "[" + zshEscape(firstSentence(f.help)) + "]"
		names := []string{"--" + f.name}
		if f.short != "" {
			names = append(names, "-"+f.short)
		}
		for _, n := range names {
			spec := n + help
			if f.placeholder != "" {
				if strings.HasPrefix(n, "--") {
					n += "="
				}
				spec = n + help + ":" + zshEscape(f.placeholder) + ":" + zshValue(f)
			}
			if strings.Contains(f.help, "repeated") {
				spec = "*" + spec
			}
			fmt.Fprintf(b, " \\\n            %s", shellQuote(spec))
		}
	}
	for _, a := range v.args {
		colons := "::"
		if a.many {
			colons = "*:"
		}
		fmt.Fprintf(b, " \\\n            %s", shellQuote(colons+a.name+":"+zshValue(a)))
	}
	b.WriteString("\n        ;;\n")
}

func zshEscape(s string) string {
	return strings.NewReplacer(":", `\:`, "[", `\[`, "]", `\]`).Replace(s)
}

func zshValue(o option) string {
	switch {
	case len(o.values) > 0:
		return "(" + strings.Join(o.values, " ") + ")"
	case o.kind == "dir":
		return "_files -/"
	case o.kind == "file":
		return "_files"
	}
	return " "
}

// fish takes one line for each thing that can stand somewhere.
func fish(program *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s; made by: %[1]s completion fish\ncomplete -c %[1]s -f\n", program.Name)
	for _, n := range program.Children {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", program.Name, n.Name, shellQuote(firstSentence(n.Help)))
	}
	for _, g := range groupsOf(program) {
		on := fmt.Sprintf("'__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from %s'", g.name, g.ownNames())
		for _, v := range g.verbs {
			fmt.Fprintf(&b, "complete -c %s -n %s -a %s -d %s\n", program.Name, on, v.own(), shellQuote(firstSentence(v.help)))
		}
	}
	others := map[string]string{} // a group's own verbs, by the one that it is itself
	for _, g := range groupsOf(program) {
		if g.alone != nil {
			others[g.name] = g.ownNames()
		}
	}
	for _, v := range verbsOf(program) {
		fishVerb(&b, program.Name, v, others[v.name])
	}
	return b.String()
}

func fishVerb(b *strings.Builder, program string, v verb, others string) {
	seen := "__fish_seen_subcommand_from " + v.own()
	if others != "" {
		seen += "; and not __fish_seen_subcommand_from " + others
	}
	if v.group != "" {
		seen = "__fish_seen_subcommand_from " + v.group + "; and " + seen
	}
	on := fmt.Sprintf("complete -c %s -n '%s'", program, seen)
	for _, f := range v.flags {
		fmt.Fprintf(b, "%s -l %s", on, f.name)
		if f.short != "" {
			b.WriteString(" -s " + f.short)
		}
		if f.placeholder != "" {
			b.WriteString(" -x" + fishValue(f))
		}
		fmt.Fprintf(b, " -d %s\n", shellQuote(firstSentence(f.help)))
	}
	for _, a := range v.args {
		if value := fishValue(a); value != "" {
			fmt.Fprintf(b, "%s%s\n", on, value)
		}
	}
}

func fishValue(o option) string {
	switch {
	case len(o.values) > 0:
		return " -a " + shellQuote(strings.Join(o.values, " "))
	case o.kind == "dir":
		return " -a '(__fish_complete_directories)'"
	case o.kind == "file":
		return " -a '(__fish_complete_path)'"
	}
	return ""
}

// shellQuote works in all three shells as long as s has no backslash before a
// quote, which no help has.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// firstSentence is as much of a help as fits beside a completion.
func firstSentence(s string) string {
	first, _, _ := strings.Cut(s, ". ")
	return strings.TrimSuffix(first, ".")
}
