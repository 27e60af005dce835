package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"millrace/internal/config"
)

// An Error is a command line that cannot be meant.
type Error struct {
	// Node is what was named before the mistake.
	Node *Node
	// Word is an argument that it does not take, or no verb of the group; "" for
	// other mistakes.
	Word string
	// Message says what is wrong.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Parse fills the structs in and returns the verb that was named. alone is a
// flag like --help, which is to be answered instead of running it; the verb may
// be a group then, and values may be missing. Where the command line gives no
// value, the environment does. Every error is an [*Error]. Parse works once for
// each model.
func (n *Node) Parse(args []string) (verb *Node, alone *Flag, err error) {
	p := &parser{node: n, words: args}
	if e := p.parse(); e != nil && p.alone == nil {
		return nil, nil, e
	}
	if p.node.Default != nil {
		p.node = p.node.Default
	}
	if p.alone == nil {
		if e := p.node.complete(os.LookupEnv); e != nil {
			return nil, nil, e
		}
	}
	return p.node, p.alone, nil
}

// A parser is at a word of a command line.
type parser struct {
	node  *Node
	words []string // those that are left
	args  int      // how many arguments of node have been given
	ended bool     // after --: no more flags
	early *Flag    // of the group's default, before anything else was named
	alone *Flag
}

func (p *parser) parse() *Error {
	for len(p.words) > 0 {
		word := p.words[0]
		p.words = p.words[1:]
		var err *Error
		switch {
		case p.ended || word == "-" || !strings.HasPrefix(word, "-"):
			err = p.plain(word)
		case word == "--":
			p.ended = true
		case strings.HasPrefix(word, "--"):
			name, value, given := strings.Cut(word, "=")
			err = p.flag(name, value, given)
		default:
			err = p.short(word[1:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plain takes the name of a verb, or an argument.
func (p *parser) plain(word string) *Error {
	if i := slices.IndexFunc(p.node.Children, func(c *Node) bool { return c.Name == word }); i >= 0 {
		child := p.node.Children[i]
		if p.early != nil && child != p.node.Default {
			return p.fail("%s is a flag of %q, not of %q", p.early, command(p.node), command(child))
		}
		p.node, p.early = child, nil
		return nil
	}
	if p.node.Default != nil {
		p.node = p.node.Default
	}
	if p.args == len(p.node.Args) {
		return p.unexpected(word)
	}
	arg := p.node.Args[p.args]
	if !arg.Many() {
		p.args++
	}
	if err := arg.set(Typed, word); err != nil {
		return p.fail("%s: %w", arg, err)
	}
	return nil
}

func (p *parser) unexpected(word string) *Error {
	if p.node.Leaf() {
		e := p.fail("unexpected argument %q", word)
		e.Word = word
		return e
	}
	e := p.fail("there is no command %q", strings.TrimPrefix(p.node.Words()+" "+word, " "))
	if near := config.Nearest(word, p.node.childNames()); near != "" {
		e.Message += fmt.Sprintf(", did you mean %q?", near)
	}
	e.Word = word
	return e
}

func (n *Node) childNames() []string {
	var names []string
	for _, c := range n.Children {
		names = append(names, c.Name)
	}
	return names
}

// short takes letters behind one dash: -k, -kd 10s, -c50 or -c=50.
func (p *parser) short(letters string) *Error {
	for i, letter := range letters {
		name, rest := "-"+string(letter), letters[i+len(string(letter)):]
		f := p.find(name)
		if f != nil && !f.IsBool() && rest != "" {
			return p.flag(name, strings.TrimPrefix(rest, "="), true)
		}
		if err := p.flag(name, "", false); err != nil {
			return err
		}
	}
	return nil
}

// flag takes a flag and its value.
func (p *parser) flag(name, value string, given bool) *Error {
	f := p.find(name)
	switch {
	case f == nil:
		return p.fail("unknown flag %s%s", name, p.meantFlag(name))
	case given:
	case f.IsBool():
		value = "true"
	case len(p.words) == 0:
		return p.fail("%s needs a value: %s", name, f.Usage())
	case len(p.words[0]) > 1 && p.words[0][0] == '-':
		return p.fail("%s needs a value: %s; one that begins with a dash is written %s=%s", name, f.Usage(), f, p.words[0])
	default:
		value = p.words[0]
		p.words = p.words[1:]
	}
	if err := f.set(Typed, value); err != nil {
		return p.fail("%s: %w", f, err)
	}
	if f.Alone && p.alone == nil {
		p.alone = f
	}
	if p.node.Default != nil && slices.Contains(p.node.Default.Flags, f) {
		p.early = f
	}
	return nil
}

// flags are those that may stand here: before a group's verb is named, those of
// its default as well.
func (p *parser) flags() []*Flag {
	if p.node.Default != nil {
		return p.node.Default.AllFlags()
	}
	return p.node.AllFlags()
}

func (p *parser) find(name string) *Flag {
	for _, f := range p.flags() {
		if slices.Contains(f.names(), name) {
			return f
		}
	}
	return nil
}

// meantFlag asks for the flag that was probably meant. The dashes do not count:
// they would make all flags alike.
func (p *parser) meantFlag(name string) string {
	var names []string
	for _, f := range p.flags() {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	if near := config.Nearest(strings.TrimLeft(name, "-"), names); near != "" {
		return fmt.Sprintf(", did you mean %q?", "--"+near)
	}
	return ""
}

func (p *parser) fail(format string, args ...any) *Error {
	return &Error{Node: p.node, Message: fmt.Errorf(format, args...).Error()}
}

// complete takes from the environment what the command line has not given, and
// reports what is missing then.
func (n *Node) complete(env func(string) (string, bool)) *Error {
	if !n.Leaf() {
		return &Error{Node: n, Message: fmt.Sprintf("%q needs one more word: %s", command(n), strings.Join(n.childNames(), ", "))}
	}
	for _, f := range n.AllFlags() {
		if err := f.complete(env, f.String()); err != nil {
			return &Error{Node: n, Message: err.Error()}
		}
		if f.Required && f.From == Nowhere {
			return &Error{Node: n, Message: f.Usage() + " is missing"}
		}
	}
	for _, a := range n.Args {
		if err := a.complete(env, a.String()); err != nil {
			return &Error{Node: n, Message: err.Error()}
		}
		if a.Required && a.From == Nowhere {
			return &Error{Node: n, Message: a.String() + " is missing"}
		}
	}
	return nil
}

// complete looks into the environment; called is its name in an error. A
// variable that is empty says nothing.
func (v *Value) complete(env func(string) (string, bool), called string) error {
	if v.From == Typed || v.Env == "" {
		return nil
	}
	text, ok := env(v.Env)
	if !ok || text == "" {
		return nil
	}
	if err := v.set(Environment, text); err != nil {
		return fmt.Errorf("%s: %w (from %s=%q in the environment)", called, err, v.Env, text)
	}
	return nil
}

// command is what has been typed up to a node.
func command(n *Node) string {
	return strings.TrimSpace(n.Root().Name + " " + n.Words())
}
