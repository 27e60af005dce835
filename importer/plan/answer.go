package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// This file writes the actions of rules and routes.

// Redirect leads to an address, which begins with a scheme, with "/", or with a variable; 0 is
// 302.
func Redirect(to string, status int) (*draft.Node, error) {
	status = cmp.Or(status, 302)
	if strings.HasPrefix(to, "//") {
		to = "{scheme}:" + to
	}
	if strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }) {
		return nil, fmt.Errorf("%q cannot be an address", to)
	}
	if !slices.Contains([]int{301, 302, 303, 307, 308}, status) {
		return nil, fmt.Errorf("%d is no redirect: 301, 302, 303, 307 or 308", status)
	}
	return draft.Map().Set("redirect", draft.Map().Set("to", draft.Text(to)).Set("status", draft.Number(status)).Flow()).Flow(), nil
}

// Rewrite gives a request another path.
func Rewrite(to string) *draft.Node {
	if !strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "{") {
		to = "/" + to
	}
	return draft.Map().Set("rewrite", draft.Text(to)).Flow()
}

// Refuse is deny with a status; nil if deny does not have it.
func Refuse(status int) *draft.Node {
	if !slices.Contains([]int{403, 404, 410, 451, 503}, status) {
		return nil
	}
	return draft.Denied(status)
}

// Answer is an answer with a status, a text and its media type, each of which may be
// missing: one without a text refuses where that has the status.
func Answer(status int, text, media string) (*draft.Node, error) {
	if text == "" {
		if n := Refuse(status); n != nil {
			return n, nil
		}
	}
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("%d is not the status of an answer", status)
	}
	r := draft.Map().Flow()
	if status != 200 || text == "" {
		r.Set("status", draft.Number(status))
	}
	if text != "" {
		r.Set("text", draft.Text(text))
	}
	if media != "" && media != "text/plain" {
		r.Set("type", draft.Text(media))
	}
	return draft.Map().Set("respond", r).Flow(), nil
}

// File is an answer that is a file.
func File(name string) *draft.Node {
	return draft.Map().Set("respond", draft.Map().Set("file", draft.Text(name)).Flow()).Flow()
}
