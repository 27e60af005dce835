// Package cli is what the verbs share: how a command line is read, explained and
// completed, how the program speaks to the person who typed it, and how the
// servers that run on this machine are found and asked.
//
// A command line is read into structs. Each field is a verb, a flag or an argument,
// and its tags say which:
//
//	cmd:""              a verb, or a group of them: a struct
//	default:"withargs"  of a verb: it runs when its group is named alone
//	arg:""              an argument; without it a field is a flag
//	embed:""            the fields of this struct are the outer one's
//	name:"x"            its name, where that of the field with dashes will not do
//	help:"…"            what it is
//	short:"x"           the flag's other name, -x
//	placeholder:"X"     what the help calls the flag's value
//	default:"x"         the value where none is given
//	env:"X"             the environment variable that gives it otherwise
//	enum:"a,b"          the values that it may have
//	sep:"none"          of a slice: a value is never split at commas
//	optional:""         of an argument: it may be left out
//	required:""         of a flag: it may not
//	hidden:""           the help leaves the flag out
//	alone:""            of a flag: nothing else need be right (--version)
//
// Other tags are for those who read the model: see [Value.Tag].
//
// Who runs a verb asks its struct for an interface. Nothing here looks a method
// up by its name: one such call, and the linker keeps every exported method of
// every type in the program (decision 37).
package cli

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// A Node is the program, a group of verbs, or a verb.
type Node struct {
	Name, Help string
	Parent     *Node   // nil for the program
	Children   []*Node // none for a verb
	Default    *Node   // the child that runs when this is named alone, or nil
	Flags      []*Flag // its own; [Node.AllFlags] has the others that it takes
	Args       []*Value
	Target     any // the pointer to its struct
}

// A Value is a flag or an argument.
type Value struct {
	Name, Help string
	Default    string   // "" for none
	Env        string   // the environment variable, "" for none
	Enum       []string // empty for anything
	Required   bool
	Tag        reflect.StructTag
	From       From

	split bool // a slice, and one value may have several elements
	field reflect.Value
}

// A Flag is a value with a name on the command line.
type Flag struct {
	*Value
	Short       string // one letter, or ""
	Placeholder string // what the help calls the value; "" for a flag without one
	Hidden      bool
	Alone       bool // nothing else need be right: --help
}

// From is where a value comes from.
type From int

// A better source is a larger number.
const (
	Nowhere     From = iota // it has none
	Defaults                // its default
	Environment             // its environment variable
	Typed                   // the command line
)

// New reads the model of a program. target is a pointer to its struct. An error
// is a mistake in the tags.
func New(name, help string, target any) (*Node, error) {
	root := &Node{Name: name, Help: help, Target: target}
	asked := reflect.New(reflect.TypeFor[bool]()).Elem()
	root.Flags = []*Flag{{Value: &Value{Name: "help", Help: "Show this help.", field: asked}, Short: "h", Alone: true}}
	if err := root.read(reflect.ValueOf(target).Elem()); err != nil {
		return nil, fmt.Errorf("the command line of %s: %w", name, err)
	}
	return root, root.check(map[string]bool{})
}

// read makes flags, arguments and verbs of the fields of a struct.
func (n *Node) read(v reflect.Value) error {
	for i := range v.NumField() {
		field, f := v.Type().Field(i), v.Field(i)
		_, embedded := field.Tag.Lookup("embed")
		_, verb := field.Tag.Lookup("cmd")
		var err error
		switch {
		case embedded:
			err = n.read(f)
		case !field.IsExported():
		case verb:
			err = n.addVerb(field, f)
		default:
			err = n.addValue(field, f)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", field.Name, err)
		}
	}
	return nil
}

func nameOf(field reflect.StructField) string {
	if name, ok := field.Tag.Lookup("name"); ok {
		return name
	}
	return dashed(field.Name)
}

// dashed is NoLane as no-lane, and ConfigJSON as config-json.
func dashed(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		begins := i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if begins {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func (n *Node) addVerb(field reflect.StructField, v reflect.Value) error {
	child := &Node{Name: nameOf(field), Help: field.Tag.Get("help"), Parent: n, Target: v.Addr().Interface()}
	if _, ok := field.Tag.Lookup("default"); ok {
		if n.Default != nil {
			return errors.New("the second default of its group")
		}
		n.Default = child
	}
	n.Children = append(n.Children, child)
	return child.read(v)
}

func (n *Node) addValue(field reflect.StructField, f reflect.Value) error {
	has := func(tag string) bool { _, ok := field.Tag.Lookup(tag); return ok }
	v := &Value{
		Name: nameOf(field), Help: field.Tag.Get("help"), Default: field.Tag.Get("default"), Env: field.Tag.Get("env"),
		Tag: field.Tag, field: f,
	}
	if enum := field.Tag.Get("enum"); enum != "" {
		v.Enum = strings.Split(enum, ",")
	}
	if v.Default != "" {
		if err := v.set(Defaults, v.Default); err != nil {
			return err
		}
	}
	if has("arg") {
		v.Required = !has("optional") && v.Default == ""
		n.Args = append(n.Args, v)
		return nil
	}
	v.Required = has("required")
	v.split = v.Many() && field.Tag.Get("sep") != "none"
	flag := &Flag{Value: v, Short: field.Tag.Get("short"), Hidden: has("hidden"), Alone: has("alone")}
	if !v.IsBool() {
		flag.Placeholder = field.Tag.Get("placeholder")
		if flag.Placeholder == "" {
			flag.Placeholder = strings.ToUpper(v.Name)
		}
		if v.split {
			flag.Placeholder += ",..."
		}
	}
	n.Flags = append(n.Flags, flag)
	return nil
}

// check reports mistakes in the tags that would make a command line ambiguous.
// taken are the names of the flags above.
func (n *Node) check(taken map[string]bool) error {
	var own []string
	defer func() {
		for _, name := range own {
			delete(taken, name)
		}
	}()
	for _, f := range n.Flags {
		for _, name := range f.names() {
			if taken[name] {
				return fmt.Errorf("%s has two flags %s", n.Words(), name)
			}
			taken[name] = true
			own = append(own, name)
		}
	}
	for i, a := range n.Args {
		if i > 0 && (n.Args[i-1].Many() || a.Required && !n.Args[i-1].Required) {
			return fmt.Errorf("%s: it cannot be told what the argument %s is", n.Words(), a.Name)
		}
	}
	if len(n.Args) > 0 && len(n.Children) > 0 {
		return fmt.Errorf("%s has arguments and verbs", n.Words())
	}
	for _, c := range n.Children {
		if err := c.check(taken); err != nil {
			return err
		}
	}
	return nil
}

// Leaf reports whether it is a verb.
func (n *Node) Leaf() bool { return len(n.Children) == 0 }

// Leaves are the verbs below.
func (n *Node) Leaves() []*Node {
	var out []*Node
	for _, c := range n.Children {
		if c.Leaf() {
			out = append(out, c)
		}
		out = append(out, c.Leaves()...)
	}
	return out
}

// Root is the program.
func (n *Node) Root() *Node {
	for n.Parent != nil {
		n = n.Parent
	}
	return n
}

// Words are its name as it is typed after the program's: "pgo record". The verb
// that runs when its group is named alone has the group's; the program has "".
func (n *Node) Words() string {
	switch {
	case n.Parent == nil:
		return ""
	case n.Parent.Default == n:
		return n.Parent.Words()
	}
	return strings.TrimPrefix(n.Parent.Words()+" "+n.Name, " ")
}

// AllFlags are those that may stand behind it: the program's, its groups' and its own.
func (n *Node) AllFlags() []*Flag {
	if n.Parent == nil {
		return n.Flags
	}
	above := n.Parent.AllFlags()
	return append(above[:len(above):len(above)], n.Flags...)
}

// IsBool reports whether it is one that needs no value.
func (v *Value) IsBool() bool { return v.field.Kind() == reflect.Bool }

// Many reports whether it may be given several times.
func (v *Value) Many() bool {
	if v.field.Kind() != reflect.Slice {
		return false
	}
	_, one := v.field.Addr().Interface().(encoding.TextUnmarshaler)
	return !one
}

// Texts are its value as it would be typed; none for one that is false, 0 or empty.
func (v *Value) Texts() []string {
	if v.field.IsZero() {
		return nil
	}
	if !v.Many() {
		return []string{textOf(v.field)}
	}
	var out []string
	for i := range v.field.Len() {
		out = append(out, textOf(v.field.Index(i)))
	}
	return out
}

func textOf(v reflect.Value) string {
	if v.Kind() == reflect.String { // whatever its String method says
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}

// String is how an error calls an argument.
func (v *Value) String() string { return "<" + v.Name + ">" }

// String is how an error calls a flag.
func (f *Flag) String() string { return "--" + f.Name }

// Usage is the flag with its value: --out=FILE.
func (f *Flag) Usage() string {
	if f.Placeholder == "" {
		return f.String()
	}
	return f.String() + "=" + f.Placeholder
}

func (f *Flag) names() []string {
	if f.Short == "" {
		return []string{f.String()}
	}
	return []string{f.String(), "-" + f.Short}
}
