// Package cli is what the verbs share: how a command line is read, explained and
// completed, how the program speaks to the person who typed it, and how the
// servers that run on this machine are found and asked.
//
// Kong reads a command line into structs. Its tags are used, and these:
//
//	alone:""            of a flag: nothing else need be right (--version)
//	key:"x"             of a flag: the config's key that it sets
//	complete:"x"        file or dir: how a shell completes the value
//	values:"a,b"        what a shell offers for the value
package cli

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"millrace/internal/config"
)

// An Error is a command line that cannot be meant.
type Error struct {
	// Node is what was named before the mistake.
	Node *kong.Node
	// Word is an argument that it does not take, or no verb of the group; "" for
	// other mistakes.
	Word string
	// Message says what is wrong.
	Message string
}

func (e *Error) Error() string { return e.Message }

// New reads the model of a program. target is a pointer to its struct. An error
// is a mistake in the tags.
func New(name, help string, target any) (*kong.Kong, error) {
	return kong.New(target, kong.Name(name), kong.Description(help), kong.PostBuild(func(k *kong.Kong) error {
		k.Model.HelpFlag.Help = "Show this help."
		return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
			switch v := node.(type) {
			case *kong.Flag:
				if v.PlaceHolder == "" {
					v.PlaceHolder = strings.ToUpper(v.Name)
				}
			case *kong.Value:
				v.Mapper = mapper{v.Mapper}
				v.Tag.Envs = nil // see environment
			}
			return next(nil)
		})
	}))
}

// Parse fills the structs in. alone is a flag like --help, which is to be answered
// instead of running the verb; it may be a group then, and values may be missing.
// Where the command line gives no value, the environment does. Every error is an
// [*Error]. Parse works once for each model.
func Parse(k *kong.Kong, args []string) (ctx *kong.Context, alone *kong.Flag, err error) {
	ctx = trace(k, args)
	for _, p := range ctx.Path {
		if p.Flag != nil && (p.Flag == k.Model.HelpFlag || p.Flag.Tag.Has("alone")) {
			return ctx, p.Flag, nil
		}
	}
	verb := Selected(ctx)
	if ctx.Error != nil {
		return nil, nil, explain(verb, ctx.Error.Error())
	}
	if err := fill(ctx, verb); err != nil {
		return nil, nil, &Error{Node: verb, Message: err.Error()}
	}
	return ctx, nil, nil
}

// What Kong's errors begin with.
const (
	unexpected = "unexpected argument "
	unknown    = "unknown flag "
	misplaced  = "flag --"
)

// trace reads a command line. For Kong a flag ends an argument that may be given
// several times: words that follow the flag are moved before it.
func trace(k *kong.Kong, args []string) *kong.Context {
	for {
		ctx, _ := kong.Trace(k, args) // the error is in ctx
		last := ctx.Path[len(ctx.Path)-1]
		many := slices.IndexFunc(ctx.Path, func(p *kong.Path) bool { return p.Positional != nil && p.Positional.IsSlice() })
		if ctx.Error == nil || many < 0 || !strings.HasPrefix(ctx.Error.Error(), unexpected) {
			return ctx
		}
		to, from := len(args)-len(ctx.Path[many].Remainder()), len(args)-len(last.Remainder())
		if args[from] == "--" {
			from++
		}
		if to == from || len(args[from]) > 1 && args[from][0] == '-' {
			return ctx
		}
		args = slices.Concat(args[:to], args[from:from+1], args[to:from], args[from+1:])
	}
}

// explain says in our words what Kong has against a command line.
func explain(verb *kong.Node, text string) *Error {
	e := &Error{Node: verb, Message: text}
	if name, ok := strings.CutPrefix(text, unknown); ok {
		name, _, _ = strings.Cut(name, ", did you mean ")
		e.Message = unknown + name + suggest(strings.TrimLeft(name, "-"), "--", flagNames(verb))
	} else if word, ok := strings.CutPrefix(text, unexpected); ok {
		e.Word, _, _ = strings.Cut(word, ", did you mean ")
		e.Message = fmt.Sprintf("%s%q", unexpected, e.Word)
		if !verb.Leaf() {
			e.Message = fmt.Sprintf("there is no command %q", strings.TrimPrefix(Words(verb)+" "+e.Word, " ")) + suggest(e.Word, "", childNames(verb))
		}
	} else if name, ok := strings.CutPrefix(text, misplaced); ok {
		name, _, _ = strings.Cut(name, " ")
		other := strings.Trim(text[strings.LastIndexByte(text, ' '):], ` "`)
		e.Message = fmt.Sprintf("--%s is a flag of %q, not of %q", name, command(verb), command(verb)+" "+other)
	}
	return e
}

func suggest(word, dashes string, names []string) string {
	if near := config.Nearest(word, names); near != "" {
		return fmt.Sprintf(", did you mean %q?", dashes+near)
	}
	return ""
}

// fill gives the fields their values, and reports what is missing then.
func fill(ctx *kong.Context, verb *kong.Node) error {
	if !verb.Leaf() {
		return fmt.Errorf("%q needs one more word: %s", command(verb), strings.Join(childNames(verb), ", "))
	}
	if err := ctx.Reset(); err != nil {
		return err
	}
	for _, v := range values(verb) {
		if typed(ctx, v) {
			continue
		}
		if err := environment(v); err != nil {
			return err
		}
	}
	if _, err := ctx.Apply(); err != nil {
		return err
	}
	for _, v := range values(verb) {
		if v.Required && !v.Set {
			return fmt.Errorf("%s is missing", strings.TrimSuffix(v.Summary(), " ..."))
		}
	}
	return ctx.Validate()
}

// typed reports whether the command line gives a value.
func typed(ctx *kong.Context, v *kong.Value) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Positional == v || p.Flag != nil && p.Flag.Value == v })
}

// environment gives a value what its variable says. For Kong one that is empty says
// something.
func environment(v *kong.Value) error {
	name := v.Tag.Get("env")
	text := os.Getenv(name)
	if text == "" {
		return nil
	}
	target := reflect.New(v.Target.Type()).Elem()
	if err := v.Parse(kong.ScanAsType(kong.FlagValueToken, text), target); err != nil {
		return fmt.Errorf("%w (from %s=%q in the environment)", err, name, text)
	}
	v.Apply(target)
	return nil
}

// mapper has Kong decode what was typed, and says itself what is wrong with it.
type mapper struct{ kong.Mapper }

// Decode implements [kong.Mapper].
func (m mapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	v, token := ctx.Value, ctx.Scan.Peek()
	if v.Flag == nil && v.IsSlice() || v.IsBool() && token.Type != kong.FlagValueToken {
		return m.Mapper.Decode(ctx, target)
	}
	ctx.Scan.Pop()
	text := token.String()
	switch {
	case token.IsEOL() || v.IsSlice() && text == "":
		return fmt.Errorf("a value is missing: %s", v.Summary())
	case !token.IsValue():
		return fmt.Errorf("a value is missing: %s; one that begins with a dash is written %s=%s", v.Summary(), v.ShortSummary(), text)
	case token.Type == kong.ShortFlagTailToken:
		text = strings.TrimPrefix(text, "=") // -c=50
	}
	if want, err := number(target, text); err != nil {
		return fmt.Errorf("%q is not %s", text, want)
	} else if want != "" {
		return nil
	}
	return m.Mapper.Decode(ctx.WithScanner(kong.ScanAsType(kong.FlagValueToken, text)), target)
}

// number sets a number. want is what it should be, "" for what is no number.
func number(target reflect.Value, text string) (want string, err error) {
	switch to := target.Addr().Interface().(type) {
	case *time.Duration:
		*to, err = time.ParseDuration(text)
		return "a duration: write a number and its unit, like 500ms, 30s or 5m", err
	case *int:
		*to, err = strconv.Atoi(text) // for Kong 010 is 8
		return "a whole number", err
	case *uint64:
		*to, err = strconv.ParseUint(text, 10, 64)
		return "a whole number of 0 or more", err
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
		return "a number", err
	}
	return "", nil
}
