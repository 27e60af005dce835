package match

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"millrace/internal/wire/message"
)

const (
	// maxTableBytes bounds a table's file, maxTableLine a line of it.
	maxTableBytes = 64 << 20
	maxTableLine  = 16 << 10
)

// TableOptions are what a table is made of.
type TableOptions struct {
	// Key is what is looked up, as in {path} (the default), {host},
	// {host}{path}, {query.id}, {header.Accept-Language} or {cookie.plan}.
	Key string `yaml:"key"`
	// Values are the entries.
	Values map[string]string `yaml:"values" expand:"no"`
	// File has more entries: on each line a key and its value with spaces
	// between them; # begins a comment. It is read at the start and by a reload.
	// What Values has goes before.
	File string `yaml:"file"`
	// Default is the value of what is not in the table. Without it, a rule that
	// uses the table is only for what is.
	Default string `yaml:"default"`
}

// Scope is what patterns and templates may refer to besides the request. The nil
// Scope has no tables.
type Scope struct {
	// Client finds who sent a request. nil: the connection's other end.
	Client func(*message.Request) netip.Addr
	Tables map[string]*Table
	// AnyTable takes every table's name for known: for options that are checked alone.
	AnyTable bool
}

func (s *Scope) table(name string) (*Table, error) {
	switch {
	case s != nil && s.Tables[name] != nil:
		return s.Tables[name], nil
	case s != nil && s.AnyTable:
		return &Table{}, nil
	}
	return nil, fmt.Errorf("there is no table %s: tables: {%s: {values: {/old: /new}}} at the top of the config is one", name, name)
}

// Table maps what a request says to a text.
type Table struct {
	key    *Template
	values map[string]string
	other  string
	has    bool // a default
}

// Declared is a table that is known by its options and has not been read.
func (o TableOptions) Declared() *Table { return &Table{has: o.Default != ""} }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o TableOptions) Check() map[string]error {
	_, faults := o.Compile(nil)
	return faults
}

// Compile reads the file, if there is one.
func (o TableOptions) Compile(in *Scope) (*Table, map[string]error) {
	faults := map[string]error{}
	key := cmp.Or(o.Key, "{path}")
	t := &Table{values: map[string]string{}, other: o.Default, has: o.Default != ""}
	var err error
	if in != nil {
		in = &Scope{Client: in.Client} // no table of tables
	}
	if t.key, err = NewTemplate(key, nil, in); err != nil {
		faults["key"] = err
	}
	if len(o.Values) == 0 && o.File == "" {
		faults["values"] = errors.New("an empty table: it needs values or a file")
	}
	if o.File != "" {
		if err := t.read(o.File); err != nil {
			faults["file"] = err
		}
	}
	for k, v := range o.Values {
		if err := tableValue(v); err != nil {
			faults["values["+k+"]"] = err
		}
		t.values[k] = v
	}
	if err := tableValue(o.Default); err != nil {
		faults["default"] = err
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return t, nil
}

// tableValue says why a text is no value: it may become a path or stand in a header.
func tableValue(v string) error {
	if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return fmt.Errorf("%q holds a space, a backslash or a control character", v)
	}
	if strings.HasPrefix(v, "//") {
		return fmt.Errorf("%q names a host without a scheme: write https:%s", v, v)
	}
	return nil
}

func (t *Table) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return err //nolint:wrapcheck // as above
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", file)
	case info.Size() > maxTableBytes:
		return fmt.Errorf("%s is larger than %d MiB", file, maxTableBytes>>20)
	}
	if err := t.parse(f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// parse reads lines of a key and a value.
func (t *Table) parse(r io.Reader) error {
	lines := bufio.NewScanner(io.LimitReader(r, maxTableBytes))
	lines.Buffer(nil, maxTableLine)
	number := 0
	for lines.Scan() {
		number++
		line, _, _ := strings.Cut(lines.Text(), " #")
		line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return fmt.Errorf("line %d: a line is a key, spaces and a value", number)
		}
		if err := tableValue(fields[1]); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if _, twice := t.values[fields[0]]; twice {
			return fmt.Errorf("line %d: %q stands here a second time", number, fields[0])
		}
		t.values[fields[0]] = fields[1]
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	return nil
}

// Value is what the table has for a request; false for nothing, not even a default.
func (t *Table) Value(r *Asked) (string, bool) {
	if v, ok := t.values[t.key.Text(r, nil)]; ok {
		return v, true
	}
	return t.other, t.has
}

// Has reports whether a request's key is in the table.
func (t *Table) Has(r *Asked) bool {
	_, ok := t.values[t.key.Text(r, nil)]
	return ok
}
