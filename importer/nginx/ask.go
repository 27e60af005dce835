package nginx

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// authRequest translates auth_request.
func (t *site) authRequest(l *location) {
	d := l.last("auth_request")
	if d == nil || d.Arg(0) == "off" {
		return
	}
	url, err := t.askedURL(l, d.Arg(0))
	if basic := l.last("auth_basic"); err == nil && basic != nil && basic.Arg(0) != "off" {
		err = errors.New("it stands beside auth_basic, and a route has one auth")
	}
	if err != nil {
		t.Close(d, "write auth: {url: …} (docs/protection.md): "+err.Error())
		return
	}
	t.im.Used(d)
	l.authURL = url
}

// askedURL is the URL that a subrequest leads to.
func (t *site) askedURL(l *location, path string) (string, error) {
	asked := t.asked(path)
	if asked == nil || asked == l || asked.own("proxy_pass") == nil {
		return "", errors.New("no location passes " + path + " on to a server")
	}
	to, err := t.proxyTarget(asked, asked.own("proxy_pass"))
	switch {
	case err != nil:
		return "", err
	case len(to.to) != 1 || !strings.HasPrefix(to.to[0], "http"):
		return "", errors.New("one server is asked, by http:// or https://")
	case to.path != "" && asked.kind != exactLocation && strings.TrimSuffix(to.path, "/") != "":
		return "", errors.New("its location changes the path")
	case strings.ContainsAny(to.path, "$"):
		return "", errors.New("its address has variables")
	}
	return to.to[0] + cmp.Or(to.path, path), nil
}

// asked is the location that a subrequest leads to; nil if that is not clear.
func (t *site) asked(path string) *location {
	for _, l := range t.locations {
		if l.kind == exactLocation && l.path == path {
			return l
		}
	}
	var found *location
	for _, l := range t.locations {
		if (l.kind == prefixLocation || l.kind == caretLocation) && l.covers(path) && (found == nil || len(l.path) > len(found.path)) {
			found = l
		}
	}
	return found
}

// isAsked reports whether a location is for auth_request alone: it needs no route, since
// the server asks by itself.
func (t *site) isAsked(l *location) bool {
	if l.own("internal") == nil || !slices.ContainsFunc(t.im.all(t.server.scope, "auth_request"), func(d *draft.Directive) bool { return t.asked(d.Arg(0)) == l }) {
		return false
	}
	for _, d := range l.list {
		t.im.Standard(d, "auth.url asks with the client's fields and X-Forwarded-Uri, -Method and -Host")
	}
	t.answers(l, plan.Deny(404))
	return true
}

// copied reports whether a field for the upstream is taken from the answer to
// auth_request, by the same name: then auth.copy has it.
func (t *site) copied(l *location, d *draft.Directive) bool {
	if l.authURL == "" {
		return false
	}
	for _, set := range l.all("auth_request_set") {
		field, is := strings.CutPrefix(set.Arg(1), "$upstream_http_")
		if is && d.Arg(1) == set.Arg(0) && strings.EqualFold(headerName(field), d.Arg(0)) {
			t.im.Used(set, d)
			l.copies = append(l.copies, d.Arg(0))
			return true
		}
	}
	return false
}
