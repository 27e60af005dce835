package headers

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// AnswerOptions are rules for the fields of answers.
type AnswerOptions struct {
	Options `yaml:",inline"`
	// Security gives answers the fields that protect visitors of most sites,
	// where they have none: "security: on".
	Security *Security `yaml:"security"`
	// When are more rules, for answers of some statuses and types.
	When []When `yaml:"when"`
}

// When are rules for some answers. All its conditions must hold.
type When struct {
	// Status are statuses and classes of them, as in [404, 5xx]. An answer with
	// 304 also counts as the 200 that it stands for.
	Status []string `yaml:"status"`
	// Type are content types without parameters, as in [text/html, image/*].
	Type []string `yaml:"type"`
	// Protocol is http or https: answers over plain HTTP, or over TLS, alone.
	Protocol string `yaml:"protocol"`
	Options  `yaml:",inline"`
}

// variables are what a value of an answer's field may have.
var variables = []string{"client_ip", "host", "scheme", "method", "path", "query", "uri", "request_id"}

// MayAnswer says why a field of answers is not the operator's to change, "" if it is.
func MayAnswer(name string, op Op) string {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length":
		return "it belongs to the connection"
	case "Content-Encoding", "Content-Range", "Accept-Ranges":
		return "it says how the content is to be read"
	case "Date", "Age", "Server":
		return "every answer has it from Millrace"
	case "Etag", "Last-Modified":
		if op != Remove {
			return "conditions compare it with the content; it can only be removed"
		}
	case "Vary":
		if op != Add {
			return "caches need what it says; names can be added"
		}
	case "Cache-Status":
		if op != Remove {
			return "it can only be removed"
		}
	}
	return ""
}

func mayWhen(name string, op Op) string {
	if name == "Cache-Status" {
		return "under when; it can be removed from all answers"
	}
	return MayAnswer(name, op)
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o AnswerOptions) Check() map[string]error {
	_, faults := CompileAnswers(o.lists())
	out := map[string]error{}
	for key, err := range faults {
		n, rest, _ := strings.Cut(key, "].") // [2].set[Name]
		i, _ := strconv.Atoi(n[1:])
		if i > 0 {
			rest = fmt.Sprintf("when[%d].%s", i-1, rest)
		}
		out[rest] = err
	}
	return out
}

func (o *AnswerOptions) lists() []List {
	lists := []List{{Options: o.Options}}
	for _, w := range o.When {
		lists = append(lists, List{Status: w.Status, Type: w.Type, Protocol: w.Protocol, Options: w.Options, when: true})
	}
	return lists
}

// List are the rules of one list and when they hold.
type List struct {
	Status, Type []string
	// Protocol is http or https; "" is both.
	Protocol string
	// Preset: what other lists remove stays away.
	Preset bool
	Options

	when bool
}

// Lists are the rules of a site followed by those of one of its routes; nil
// for none. always: browsers may be told to ask over TLS from now on.
func Lists(site, route *AnswerOptions, always bool) (lists []List) {
	var security *Security
	for _, o := range []*AnswerOptions{site, route} {
		if o == nil {
			continue
		}
		for _, l := range o.lists() {
			if l.fields() > 0 {
				lists = append(lists, l)
			}
		}
		if o.Security != nil {
			security = o.Security
		}
	}
	return append(lists, security.lists(always)...)
}

// AnswerRules are lists, compiled. A nil one has none.
type AnswerRules struct {
	lists   []compiled
	varies  []string
	private bool
	id      bool
}

type compiled struct {
	statuses []int // and classes, under 1 to 5
	types    []string
	protocol string
	preset   bool
	rules    *Rules
}

// CompileAnswers returns the rules, nil for none, or what is wrong by the number
// of the list and the key.
func CompileAnswers(lists []List) (*AnswerRules, map[string]error) {
	a, faults := new(AnswerRules), map[string]error{}
	for i, l := range lists {
		may := MayAnswer
		if l.when {
			may = mayWhen
		}
		rules, wrong := Compile(l.Options, may, variables)
		c := compiled{types: l.Type, protocol: l.Protocol, preset: l.Preset, rules: rules}
		for j, text := range l.Status {
			status, ok := parseStatus(text)
			if !ok {
				wrong = with(wrong, fmt.Sprintf("status[%d]", j), fmt.Errorf("%q is not a status: write one like 404, or a class like 5xx", text))
			}
			c.statuses = append(c.statuses, status)
		}
		for j, text := range l.Type {
			if !isType(text) {
				wrong = with(wrong, fmt.Sprintf("type[%d]", j), fmt.Errorf("%q is not a content type: write one like text/html, in small letters; a star is any text", text))
			}
		}
		if !slices.Contains([]string{"", "http", "https"}, l.Protocol) {
			wrong = with(wrong, "protocol", fmt.Errorf("%q is not a protocol: http or https", l.Protocol))
		}
		if l.when && len(l.Status)+len(l.Type)+len(l.Protocol) == 0 {
			wrong = with(wrong, "status", fmt.Errorf("a condition is missing: write status, type, protocol or several of them, or the rules outside of when"))
		}
		for key, err := range wrong {
			faults[fmt.Sprintf("[%d].%s", i, key)] = err
		}
		if rules != nil {
			a.lists = append(a.lists, c)
			a.note(rules)
		}
	}
	if len(a.lists) == 0 {
		return nil, faults
	}
	return a, faults
}

func with(m map[string]error, key string, err error) map[string]error {
	if m == nil {
		m = map[string]error{}
	}
	m[key] = err
	return m
}

// note looks at what has a say in the values.
func (a *AnswerRules) note(r *Rules) {
	for _, name := range r.used {
		switch name {
		case "scheme", "path": // each answer is for one
		case "host":
			a.varies = []string{"Host"}
		case "request_id":
			a.id, a.private = true, true
		default:
			a.private = true
		}
	}
	for _, list := range [][]fieldRule{r.set, r.add, r.absent} {
		a.private = a.private || slices.ContainsFunc(list, func(f fieldRule) bool { return f.name == "Set-Cookie" })
	}
}

// parseStatus reads 404, or 5xx as 5.
func parseStatus(text string) (int, bool) {
	if len(text) == 3 && text[1:] == "xx" && text[0] >= '2' && text[0] <= '5' {
		return int(text[0] - '0'), true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 200 && n <= 599
}

func isType(text string) bool {
	if strings.Count(text, "/") != 1 || strings.HasPrefix(text, "/") || strings.HasSuffix(text, "/") {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("/*+-._!#$&^", rune(c)) {
			return false
		}
	}
	return true
}

// Vary are the request's fields that have a say in the values.
func (a *AnswerRules) Vary() []string {
	if a == nil {
		return nil
	}
	return a.varies
}

// Private reports whether the values are for one request alone.
func (a *AnswerRules) Private() bool { return a != nil && a.private }

// NeedsID reports whether values have the request's id.
func (a *AnswerRules) NeedsID() bool { return a != nil && a.id }

// Removes reports whether a field is removed from every answer.
func (a *AnswerRules) Removes(name string) bool {
	if a == nil {
		return false
	}
	return slices.ContainsFunc(a.lists, func(c compiled) bool {
		return len(c.statuses)+len(c.types)+len(c.protocol) == 0 && slices.Contains(c.rules.remove, name)
	})
}

// Moment is what rules look at besides the header.
type Moment struct {
	Status int
	// Type is the Content-Type of what is sent, or would be; "" for none.
	Type   string
	Secure bool
	// Kept: only fields with these names change. nil: all.
	Kept func(name string) bool
	// Value is what a variable stands for.
	Value func(variable string) string
}

// Of is the header of an answer that net/http sends, for rules. Where they remove its
// Content-Type, none is guessed.
func Of(h http.Header) field.Fields { return untyped{field.Map(h)} }

type untyped struct{ field.Map }

// Delete implements [field.Fields].
func (u untyped) Delete(name string) {
	if _, there := u.Map[name]; there && name == "Content-Type" { // perhaps nil already
		u.Map[name] = nil
		return
	}
	u.Map.Delete(name)
}

// Apply changes the header of an answer, which must be its own.
func (a *AnswerRules) Apply(h field.Fields, m *Moment) {
	if a == nil {
		return
	}
	kind, _, _ := strings.Cut(m.Type, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	for i := range a.lists {
		c := &a.lists[i]
		if !c.holds(m, kind) {
			continue
		}
		may := m.Kept
		if c.preset {
			may = func(name string) bool { return (m.Kept == nil || m.Kept(name)) && !a.removed(i, name, m, kind) }
		}
		c.rules.apply(h, m.Value, may)
	}
}

// removed reports whether a list before the one with this number has removed a field.
func (a *AnswerRules) removed(before int, name string, m *Moment, kind string) bool {
	for i := range before {
		if c := &a.lists[i]; slices.Contains(c.rules.remove, name) && c.holds(m, kind) {
			return true
		}
	}
	return false
}

func (c *compiled) holds(m *Moment, kind string) bool {
	if c.protocol != "" && (c.protocol == "https") != m.Secure {
		return false
	}
	is := func(status int) bool {
		return slices.Contains(c.statuses, status) || slices.Contains(c.statuses, status/100)
	}
	if len(c.statuses) > 0 && !is(m.Status) && (m.Status != http.StatusNotModified || !is(http.StatusOK)) {
		return false
	}
	return len(c.types) == 0 || slices.ContainsFunc(c.types, func(pattern string) bool {
		ok, _ := path.Match(pattern, kind) // which isType has checked
		return ok
	})
}
