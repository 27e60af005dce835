package guard

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"millrace/internal/route/match"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/urlpath"
)

// Rule is one of the rules that a site's requests go through, in their order,
// before a route is looked for. It names conditions, which must all hold, and one
// action. A rewrite goes on with the next rule, and so never in circles; all
// others end the way.
type Rule struct {
	match.When `yaml:",inline"`

	// Rewrite is the path that the request has from here on, and its query if it
	// brings one, as in "/index.php?page={1}". The client does not see it.
	Rewrite string `yaml:"rewrite"`
	// Route is the route that answers, by its name in routes, as in @app.
	Route string `yaml:"route"`
	// Redirect sends the client elsewhere.
	Redirect *Redirect `yaml:"redirect"`
	// Respond answers with a status, a text or a file.
	Respond *Respond `yaml:"respond"`
	// Deny turns the request away.
	Deny *Deny `yaml:"deny"`
}

// Check returns what is wrong with the rule, by the key it is wrong with.
func (o Rule) Check() map[string]error {
	in := &match.Scope{AnyTable: true}
	m, faults := o.Compile(in)
	if faults == nil {
		faults = map[string]error{}
	}
	var actions []string
	for _, a := range []struct {
		name string
		has  bool
	}{{"rewrite", o.Rewrite != ""}, {"route", o.Route != ""}, {"redirect", o.Redirect != nil}, {"respond", o.Respond != nil}, {"deny", o.Deny != nil}} {
		if a.has {
			actions = append(actions, a.name)
		}
	}
	switch {
	case len(actions) == 0:
		faults[""] = errors.New("a rule does something: rewrite, route, redirect, respond or deny")
	case len(actions) > 1:
		faults[actions[1]] = fmt.Errorf("a rule does one thing, this one does %s", strings.Join(actions, " and "))
	}
	if m == nil {
		return faults
	}
	if o.Rewrite != "" {
		if !strings.HasPrefix(o.Rewrite, "/") && !strings.HasPrefix(o.Rewrite, "{") {
			faults["rewrite"] = fmt.Errorf("a path begins with \"/\", %q does not", o.Rewrite)
		} else if _, err := match.NewTemplate(o.Rewrite, m.Path, in); err != nil {
			faults["rewrite"] = err
		} else if path, _, _ := strings.Cut(withoutPlaceholders(o.Rewrite), "?"); !madeOf(path) {
			faults["rewrite"] = fmt.Errorf("%q has a dot segment: write the path that it leads to", o.Rewrite)
		}
	}
	if o.Redirect != nil {
		if _, err := match.NewTemplate(o.Redirect.To, m.Path, in); err != nil {
			faults["redirect.to"] = err
		}
	}
	if o.Route != "" && !strings.HasPrefix(o.Route, "/") && !strings.HasPrefix(o.Route, "@") {
		faults["route"] = fmt.Errorf("%q is not the name of a route: it is one of the site's routes, as in @app or /app/", o.Route)
	}
	return faults
}

func madeOf(path string) bool {
	_, ok := urlpath.Made(path)
	return ok
}

// Answer is the handler of a rule that answers by itself, and its job's name;
// nil for others.
func (o Rule) Answer(of *match.Path, in *match.Scope) (h http.Handler, job string, err error) {
	switch {
	case o.Redirect != nil:
		h, err = o.Redirect.Matched(of, in)
		return h, "redirect", err
	case o.Respond != nil:
		h, err = o.Respond.Handler()
		return h, "respond", err
	case o.Deny != nil:
		return o.Deny.Handler(), "deny", nil
	}
	return nil, "", nil
}

// Matched returns the handler for a redirect whose target has captures of a path.
// It must see the request's whole path.
func (d Redirect) Matched(of *match.Path, in *match.Scope) (http.Handler, error) {
	to, err := match.NewTemplate(d.To, of, in)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	status := cmp.Or(d.Status, http.StatusPermanentRedirect)
	own := to.Has("query") || to.Has("uri") || strings.HasSuffix(d.To, "?")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		location, ok := to.Location(match.Of(r), of.Captures(r.URL.Path))
		if !ok {
			pages.Error(w, r, http.StatusNotFound, "")
			return
		}
		if own {
			location = strings.TrimRight(location, "?&") // the request had no query
		} else {
			location = withQuery(location, r.URL.RawQuery)
		}
		redirect(w, location, status)
	}), nil
}
