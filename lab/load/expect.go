package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A check is one thing that a right answer has.
type check struct {
	text     string // as it was written
	in       answerPart
	name     string // of a header; a path in JSON
	want     template
	any      bool // whatever it is
	statuses [][2]int
}

// answerPart is a part of an answer.
type answerPart uint8

const (
	theStatus answerPart = iota
	theHeader
	theBody
	theJSON
)

// demands reads expectations, and what is to be taken.
func (s *step) demands(expect []string, takes map[string]string) error {
	for _, said := range expect {
		c, err := readCheck(said)
		if err != nil {
			return err
		}
		s.checks = append(s.checks, c)
		s.readHead = s.readHead || c.in == theHeader
		s.readBody = s.readBody || c.in == theBody || c.in == theJSON
	}
	for _, name := range slices.Sorted(maps.Keys(takes)) {
		t, err := readTake(name, takes[name])
		if err != nil {
			return err
		}
		s.takes = append(s.takes, t)
		s.readHead = s.readHead || t.in == theHeader
		s.readBody = s.readBody || t.in != theHeader
	}
	return nil
}

func readCheck(said string) (check, error) {
	c := check{text: said}
	kind, rest, _ := strings.Cut(strings.TrimSpace(said), " ")
	rest = strings.TrimSpace(rest)
	wrong := fmt.Errorf("the expectation %q cannot be read: write 'status 200', 'header Name: value', 'body contains TEXT' or 'json PATH = VALUE'", said)
	switch kind {
	case "status":
		for part := range strings.SplitSeq(rest, ",") {
			from, to, ok := statuses(strings.TrimSpace(part))
			if !ok {
				return c, wrong
			}
			c.statuses = append(c.statuses, [2]int{from, to})
		}
		return c, nil
	case "header":
		name, value, given := strings.Cut(rest, ":")
		c.in, c.name, c.any, c.want = theHeader, strings.TrimSpace(name), !given, parseTemplate(strings.TrimSpace(value), asIs)
	case "body":
		text, ok := strings.CutPrefix(rest, "contains ")
		if !ok {
			return c, wrong
		}
		c.in, c.name, c.want = theBody, "body", parseTemplate(text, asIs)
	case "json":
		name, value, given := strings.Cut(rest, "=")
		c.in, c.name, c.any, c.want = theJSON, strings.TrimSpace(name), !given, parseTemplate(strings.TrimSpace(value), asIs)
	}
	if c.name == "" {
		return c, wrong
	}
	return c, nil
}

// statuses reads "200" or "2xx".
func statuses(s string) (from, to int, ok bool) {
	if class, rest := strings.CutSuffix(s, "xx"); rest && len(class) == 1 && class[0] >= '1' && class[0] <= '9' {
		from = int(class[0]-'0') * 100
		return from, from + 99, true
	}
	n, err := strconv.Atoi(s)
	return n, n, err == nil && n >= 100 && n <= 999
}

// A take names a part of an answer.
type take struct {
	name  string
	in    answerPart
	where string // a header's name, a path in JSON
	match *regexp.Regexp
}

func readTake(name, said string) (take, error) {
	kind, where, _ := strings.Cut(strings.TrimSpace(said), " ")
	t := take{name: name, where: strings.TrimSpace(where)}
	if !isName(name) || name == number || t.where == "" {
		return t, fmt.Errorf("%s: %q cannot be taken: write 'header NAME', 'json PATH' or 'body REGEXP' for a name of letters and digits", name, said)
	}
	switch kind {
	case "header":
		t.in = theHeader
	case "json":
		t.in = theJSON
	case "body":
		t.in = theBody
		var err error
		if t.match, err = regexp.Compile(t.where); err != nil {
			return t, fmt.Errorf("%s: %w", name, err)
		}
	default:
		return t, fmt.Errorf("%s: %q cannot be taken: write 'header NAME', 'json PATH' or 'body REGEXP'", name, said)
	}
	return t, nil
}

// expectsStatus reports whether it is said which statuses are right.
func (s *step) expectsStatus() bool {
	return slices.ContainsFunc(s.checks, func(c check) bool { return c.in == theStatus })
}

// received is what was kept of an answer, for those who look into it.
type received struct {
	status int
	head   http.Header
	body   []byte // its first maxHashed bytes
	parsed any    // the body as JSON, once somebody asks
	failed error
}

// json is the body as JSON.
func (h *received) json() (any, error) {
	if h.parsed == nil && h.failed == nil {
		d := json.NewDecoder(bytes.NewReader(h.body))
		d.UseNumber()
		h.failed = d.Decode(&h.parsed)
	}
	return h.parsed, h.failed
}

// at is the value at a path like "$.items[0].id" or "items.0.id".
func at(v any, path string) (any, bool) {
	path = strings.NewReplacer("[", ".", "]", "").Replace(strings.TrimPrefix(path, "$"))
	for key := range strings.SplitSeq(path, ".") {
		if key == "" {
			continue
		}
		switch in := v.(type) {
		case map[string]any:
			found, ok := in[key]
			if !ok {
				return nil, false
			}
			v = found
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// plainText is a value of JSON as it is compared and taken: a string without its quotes.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil { // it came from JSON
		return ""
	}
	return string(b)
}

// find is a part of the answer in words.
func (h *received) find(in answerPart, name string) (string, error) {
	switch in {
	case theHeader:
		values := h.head.Values(name)
		if len(values) == 0 {
			return "", fmt.Errorf("there is no header %s", name)
		}
		return strings.Join(values, ", "), nil
	case theJSON:
		v, err := h.json()
		if err != nil {
			return "", fmt.Errorf("the body is not JSON (%w)", err)
		}
		found, ok := at(v, name)
		if !ok {
			return "", fmt.Errorf("the JSON has no %s", name)
		}
		return plainText(found), nil
	}
	return string(h.body), nil
}

// wrong says what is not as expected; nil: all is.
func (c *check) wrong(h *received, v *visitor) error {
	if c.in == theStatus {
		if slices.ContainsFunc(c.statuses, func(s [2]int) bool { return h.status >= s[0] && h.status <= s[1] }) {
			return nil
		}
		return fmt.Errorf("status %d, and %s was expected", h.status, strings.TrimPrefix(c.text, "status "))
	}
	if c.in == theBody {
		if bytes.Contains(h.body, c.want.fill(nil, v)) {
			return nil
		}
		return fmt.Errorf("status %d, and a %s was expected; it begins with %q", h.status, c.text, clip(h.body))
	}
	found, err := h.find(c.in, c.name)
	if err != nil {
		return fmt.Errorf("status %d, and %s was expected: %w", h.status, c.text, err)
	}
	if want := c.want.string(v); !c.any && found != want {
		return fmt.Errorf("status %d, and %s was expected, not %q", h.status, c.text, clip([]byte(found)))
	}
	return nil
}

// learn checks an answer, and takes from it what later steps need.
func (s *step) learn(h *received, v *visitor) error {
	for i := range s.checks {
		if err := s.checks[i].wrong(h, v); err != nil {
			return err
		}
	}
	for i := range s.takes {
		t := &s.takes[i]
		found, err := h.find(t.in, t.where)
		if err != nil {
			return fmt.Errorf("status %d, and %s cannot be taken: %w", h.status, t.name, err)
		}
		if t.match != nil {
			groups := t.match.FindStringSubmatch(found)
			if groups == nil {
				return fmt.Errorf("status %d, and %s cannot be taken: nothing matches %s", h.status, t.name, t.where)
			}
			found = groups[min(1, len(groups)-1)]
		}
		v.take(t.name, found)
	}
	return nil
}
