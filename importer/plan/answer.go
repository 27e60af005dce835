package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// Action is what a rule does, or a route that has no job: one of these.
type Action struct {
	Redirect Redirection `yaml:"redirect"`
	Deny     Denial      `yaml:"deny"`
	Respond  Response    `yaml:"respond"`
	Rewrite  string      `yaml:"rewrite"`
	Route    string      `yaml:"route"`
}

// Redirection leads elsewhere.
type Redirection struct {
	To     string `yaml:"to"`
	Status int    `yaml:"status"`
}

// Denial is the status with which requests are refused.
type Denial int

// Node is the refusal as a rule has it.
func (d Denial) Node() *draft.Node {
	n := draft.Map().Flow()
	if d != 403 {
		n.Set("status", draft.Number(int(d)))
	}
	return n
}

// Response is an answer of its own, or a file.
type Response struct {
	File   string `yaml:"file"`
	Status int    `yaml:"status"`
	Text   string `yaml:"text"`
	Type   string `yaml:"type"`
}

// None reports whether nothing is done.
func (a Action) None() bool { return a == Action{} }

// Answers reports whether the action ends a request, and leads to no route.
func (a Action) Answers() bool { return !a.None() && a.Rewrite == "" && a.Route == "" }

// Redirect leads to an address, which begins with a scheme, with "/", or with a variable; 0 is
// 302.
func Redirect(to string, status int) (Action, error) {
	status = cmp.Or(status, 302)
	if strings.HasPrefix(to, "//") {
		to = "{scheme}:" + to
	}
	if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return Action{}, fmt.Errorf("%q cannot be an address", to)
	}
	if !slices.Contains([]int{301, 302, 303, 307, 308}, status) {
		return Action{}, fmt.Errorf("%d is no redirect: 301, 302, 303, 307 or 308", status)
	}
	return Action{Redirect: Redirection{to, status}}, nil
}

// Rewrite gives a request another path.
func Rewrite(to string) Action {
	if !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "{") {
		to = "/" + to
	}
	return Action{Rewrite: to}
}

// To leads to a route.
func To(key string) Action { return Action{Route: key} }

// Deny refuses requests with a status.
func Deny(status int) Action { return Action{Deny: Denial(status)} }

// NotImplemented answers for what was not translated.
func NotImplemented() Action { return Action{Respond: Response{Status: 501, Text: "not carried over"}} }

// Refuse is deny with a status; none if deny does not have it.
func Refuse(status int) Action {
	if !slices.Contains([]int{403, 404, 410, 451, 503}, status) {
		return Action{}
	}
	return Deny(status)
}

// Answer is an answer with a status, a text and its media type, each of which may be
// missing: one without a text refuses where that has the status.
func Answer(status int, text, media string) (Action, error) {
	if text == "" {
		if a := Refuse(status); !a.None() {
			return a, nil
		}
	}
	if status < 200 || status > 599 {
		return Action{}, fmt.Errorf("%d is not the status of an answer", status)
	}
	r := Response{Status: status, Text: text, Type: media}
	if status == 200 && text != "" {
		r.Status = 0
	}
	if media == "text/plain" {
		r.Type = ""
	}
	return Action{Respond: r}, nil
}

// File is an answer that is a file.
func File(name string) Action { return Action{Respond: Response{File: name}} }
