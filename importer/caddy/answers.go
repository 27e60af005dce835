package caddy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// redirect translates redir.
func (t *site) redirect(args []string, sc *scope, c conds) (plan.Action, error) {
	if len(args) == 0 {
		return plan.Action{}, errors.New("it has no target")
	}
	status := 302
	switch code := strings.Join(args[1:], " "); code {
	case "", "temporary":
	case "permanent":
		status = 301
	default:
		n, err := strconv.Atoi(code)
		if err != nil {
			return plan.Action{}, fmt.Errorf("%s is no redirect: 301, 302, 303, 307 or 308", code)
		}
		status = n
	}
	to, err := template(args[0], inRule, c.regex())
	if err != nil {
		return plan.Action{}, fmt.Errorf("write the redirect by hand: %w", err)
	}
	if sc.strip != "" && (strings.Contains(to, "{path}") || strings.Contains(to, "{uri}")) {
		return plan.Action{}, fmt.Errorf("write the redirect by hand: the path in it is without %s", sc.strip)
	}
	if !strings.HasPrefix(to, "/") && !strings.Contains(to, "://") && !strings.HasPrefix(to, "{") {
		return plan.Action{}, fmt.Errorf("%q is no address of the site: begin it with / or https://", to)
	}
	if !strings.Contains(to, "{uri}") && !strings.ContainsAny(to, "?#") {
		to += "?" // the query is not added
	}
	return plan.Redirect(to, status)
}

// respond translates one with a status and a text.
func (t *site) respond(d *draft.Directive, args []string) (plan.Action, error) {
	body, status := "", 200
	for _, b := range d.Block {
		switch {
		case t.im.reported("respond", b):
		case b.Name != "body":
			t.im.Leave(b, "it is no part of respond here")
		default:
			body = b.Arg(0)
			t.im.Used(b)
		}
	}
	switch n, err := strconv.Atoi(last(args)); {
	case len(args) == 1 && err == nil && len(args[0]) == 3:
		status = n
	case len(args) >= 1:
		body = args[0]
		if len(args) > 1 {
			if err != nil {
				return plan.Action{}, fmt.Errorf("%s is no status", args[1])
			}
			status = n
		}
	}
	text, err := template(body, inText, "")
	if err != nil {
		if a := plan.Refuse(status); !a.None() {
			t.im.Leave(d, "texts of respond have no variables: it refuses with a short text instead")
			return a, nil
		}
		return plan.Action{}, fmt.Errorf("texts of respond have no variables: %w", err)
	}
	return plan.Answer(status, text, "")
}

// errorAnswer translates error: pages of the site's errors come instead.
func errorAnswer(args []string) (plan.Action, error) {
	status := 500
	for _, a := range args {
		if n, err := strconv.Atoi(a); err == nil {
			status = n
		}
	}
	if status < 400 {
		return plan.Action{}, fmt.Errorf("%d is not the status of an error", status)
	}
	return plan.Answer(status, "", "")
}

// files translates file_server.
func (t *site) files(d *draft.Directive, sc *scope, a *answer) error {
	root := sc.root
	o := plan.Static{Listing: slices.Contains(d.Args, "browse")}
	for _, b := range d.Block {
		if t.im.reported("file_server", b) {
			continue
		}
		t.im.Used(b)
		switch b.Name {
		case "root":
			root = t.im.path(b.Arg(0))
		case "browse":
			o.Listing = true
			if len(b.Args) > 0 || b.Opens {
				t.im.Standard(b, "lists have a look of their own")
			}
		case "index":
			o.Index = b.Args
		case "hide":
			t.hide(b, &o)
		default:
			t.im.Leave(b, "no option of static: see docs/config.md")
		}
	}
	if root == "" {
		return errors.New("the folder is Caddy's own working directory: name it in static.root")
	}
	if strings.Contains(root, "{") {
		return errors.New("a folder with variables: list the sites, each with its static.root")
	}
	if sc.broken != nil {
		return fmt.Errorf("%s: %s: paths of files cannot be changed so", sc.broken.At(), sc.broken.String())
	}
	a.static = true
	a.strips = sc.strip != ""
	if cleanURLs(sc.try) {
		o.CleanURLs = true
	} else if len(sc.try) > 0 {
		a.try = t.tryOf(sc.try)
	} else if t.missing != nil && a.any() {
		a.try = t.tryOf(t.missing)
	}
	if sc.to != "" {
		if strings.Contains(sc.to, "{") || a.strips {
			return errors.New("write a rule with rewrite for the files")
		}
		file := strings.TrimPrefix(path.Clean("/"+strings.SplitN(sc.to, "?", 2)[0]), "/")
		a.static, a.action = false, plan.File(path.Join(root, file))
		return nil
	}
	a.build = func(key string) (*plan.Route, error) {
		folder := root
		switch prefix := strings.TrimSuffix(key, "/"); {
		case strings.HasPrefix(key, "@"), prefix == "":
		case a.strips && key == sc.strip:
		case a.strips:
			return nil, errors.New("files below a prefix that is taken away are a route of that prefix")
		case strings.HasSuffix(key, "/"):
			folder = path.Join(root, prefix)
		}
		o.Root = folder
		return &plan.Route{Static: o}, nil
	}
	return nil
}

// cleanURLs reports whether files are looked for as static.clean_urls does.
func cleanURLs(try []string) bool {
	html := false
	for _, p := range try {
		switch p {
		case "{path}", "{path}/":
		case "{path}.html":
			html = true
		default:
			return false
		}
	}
	return html
}

// tryOf are the paths of try_files, as clients would ask for them.
func (t *site) tryOf(list []string) (out []string) {
	for _, p := range list {
		p = strings.ReplaceAll(p, "{http.request.uri.path}", "{path}")
		p, _, _ = strings.Cut(p, "?")
		if strings.HasPrefix(p, "=") || strings.HasPrefix(p, "/") || strings.HasPrefix(p, "{path}") {
			out = append(out, p)
			continue
		}
		out = append(out, "/"+p)
	}
	if strings.Contains(last(out), "{path}") {
		out = draft.AppendNew(out, "{path}/")
		out = append(out, "=404") // the last one is not looked for
	}
	return out
}

// hide translates hide: files that clients get a 404 for.
func (t *site) hide(b *draft.Directive, o *plan.Static) {
	list := []string{"default"}
	for _, name := range b.Args {
		switch {
		case strings.HasPrefix(name, "."):
			continue // these are hidden anyway
		case strings.ContainsAny(name, "/{}"):
			t.Close(b, "hidden files are named without folders, in static.private: "+name)
		default:
			list = append(list, name)
		}
	}
	if len(list) > 1 {
		o.Private = list
	}
}
