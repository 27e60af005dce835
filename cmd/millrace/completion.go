package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand is `millrace completion`.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script. It is made from the same model that parses the
// command line, so it cannot know other verbs and flags.
func (c *completionCommand) Run(parser *kong.Kong, s streams) error {
	verbs := verbsOf(parser.Model)
	script := map[string]func([]verb) string{"bash": bash, "zsh": zsh, "fish": fish}[c.Shell]
	_, err := fmt.Fprint(s.out, script(verbs))
	return err
}

// verb is a command as completions and the manual page see it.
type verb struct {
	name, help string
	flags      []option
	arg        *option // nil when it takes none
}

// option is a flag or an argument.
type option struct {
	name, short, help string
	placeholder       string   // "" when it takes no value
	values            []string // what it may be; empty for anything
	kind              string   // "file", "dir" or ""
	env, key          string
}

// verbsOf reads the model.
func verbsOf(app *kong.Application) []verb {
	var out []verb
	for _, n := range app.Children {
		v := verb{name: n.Name, help: n.Help}
		for _, group := range n.AllFlags(true) {
			for _, f := range group {
				o := option{
					name: f.Name, help: f.Help, values: list(f.Tag.Get("values")),
					kind: f.Tag.Get("complete"), key: f.Tag.Get("key"),
				}
				if f.Short != 0 {
					o.short = string(f.Short)
				}
				if len(f.Envs) > 0 {
					o.env = f.Envs[0]
				}
				if !f.IsBool() {
					o.placeholder = f.FormatPlaceHolder()
				}
				v.flags = append(v.flags, o)
			}
		}
		for _, a := range n.Positional {
			v.arg = &option{name: strings.ToUpper(a.Name), help: a.Help, values: list(a.Enum), kind: a.Tag.Get("complete")}
			if !a.Required {
				v.arg.placeholder = "optional"
			}
		}
		out = append(out, v)
	}
	return out
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// bash completes by the words before the one being typed.
func bash(verbs []verb) string {
	var names []string
	var b strings.Builder
	for _, v := range verbs {
		names = append(names, v.name)
	}
	fmt.Fprintf(&b, `# bash completion for millrace; made by: millrace completion bash
_millrace() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "%s --help" -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]} in
`, strings.Join(names, " "))
	for _, v := range verbs {
		fmt.Fprintf(&b, "    %s)\n        case $prev in\n", v.name)
		var flags []string
		for _, f := range v.flags {
			flags = append(flags, "--"+f.name)
			if f.placeholder == "" {
				continue
			}
			pattern := "--" + f.name
			if f.short != "" {
				pattern += "|-" + f.short
			}
			fmt.Fprintf(&b, "        %s) %s; return ;;\n", pattern, bashValue(f))
		}
		fmt.Fprintf(&b, "        esac\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))\n", strings.Join(flags, " "))
		if v.arg != nil {
			fmt.Fprintf(&b, "        else\n            %s\n", bashValue(*v.arg))
		}
		b.WriteString("        fi\n        ;;\n")
	}
	b.WriteString("    esac\n}\ncomplete -o filenames -F _millrace millrace\n")
	return b.String()
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
func zsh(verbs []verb) string {
	var b strings.Builder
	b.WriteString("#compdef millrace\n# zsh completion for millrace; made by: millrace completion zsh\n_millrace() {\n    local -a verbs=(\n")
	for _, v := range verbs {
		fmt.Fprintf(&b, "        %s\n", shellQuote(v.name+":"+firstSentence(v.help)))
	}
	b.WriteString("    )\n    if ((CURRENT == 2)); then\n        _describe command verbs\n        return\n    fi\n    case ${words[2]} in\n")
	for _, v := range verbs {
		fmt.Fprintf(&b, "    %s)\n        shift words; ((CURRENT--))\n        _arguments", v.name)
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
				fmt.Fprintf(&b, " \\\n            %s", shellQuote(spec))
			}
		}
		if v.arg != nil {
			fmt.Fprintf(&b, " \\\n            %s", shellQuote("::"+v.arg.name+":"+zshValue(*v.arg)))
		}
		b.WriteString("\n        ;;\n")
	}
	b.WriteString("    esac\n}\nif [ \"$funcstack[1]\" = _millrace ]; then _millrace \"$@\"; else compdef _millrace millrace; fi\n")
	return b.String()
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
func fish(verbs []verb) string {
	var b strings.Builder
	b.WriteString("# fish completion for millrace; made by: millrace completion fish\ncomplete -c millrace -f\n")
	for _, v := range verbs {
		fmt.Fprintf(&b, "complete -c millrace -n __fish_use_subcommand -a %s -d %s\n", v.name, shellQuote(firstSentence(v.help)))
	}
	for _, v := range verbs {
		on := fmt.Sprintf("complete -c millrace -n '__fish_seen_subcommand_from %s'", v.name)
		for _, f := range v.flags {
			fmt.Fprintf(&b, "%s -l %s", on, f.name)
			if f.short != "" {
				b.WriteString(" -s " + f.short)
			}
			if f.placeholder != "" {
				b.WriteString(" -x" + fishValue(f))
			}
			fmt.Fprintf(&b, " -d %s\n", shellQuote(firstSentence(f.help)))
		}
		if v.arg != nil {
			fmt.Fprintf(&b, "%s%s\n", on, fishValue(*v.arg))
		}
	}
	return b.String()
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
