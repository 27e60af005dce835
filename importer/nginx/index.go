package nginx

import (
	"path"
	"slices"
	"strings"

	"millrace/importer/draft"
	"millrace/importer/plan"
)

// folders closes the folders of a location whose index file another location keeps from
// clients: nginx looks for a location anew with the path of that file, and here the route
// of the folder sends it.
func (t *site) folders(l *location) {
	names := withoutPHP(l.last("index").Words())
	if l.last("index") == nil {
		names = []string{"index.html"}
	}
	for _, name := range names {
		for _, o := range t.locations {
			folder := path.Dir(o.path + "x")
			if folder != "/" {
				folder += "/"
			}
			switch at, _ := t.find(nil, folder); {
			case o.kind == regexLocation || o.kind == namedLocation || at != l || !strings.HasPrefix(folder+name, o.path) || o.path == folder:
			case t.hides(l, folder+name):
				l.add(plan.Exactly(folder), plan.Deny(403), o.block.At()+": what it asks of clients is for the index of "+folder+", too")
			}
		}
		if l.kind == exactLocation && strings.HasSuffix(l.path, "/") && t.hides(l, l.path+name) {
			l.add(l.match(), plan.Deny(403), l.block.At()+": its index is of another location, which keeps clients out")
		}
		if l.isPrefix() && strings.HasSuffix(l.path, "/") && t.hides(l, l.path+name) {
			l.add(plan.Cond{Regex: "/$"}, plan.Deny(403), "the index of its folders is of another location, which keeps clients out")
		}
	}
}

// hides reports whether the location for an index file keeps clients out whom another lets
// in. One that is internal is for nginx's own requests.
func (t *site) hides(l *location, file string) bool {
	o, _ := t.find(nil, file)
	if o == nil || o == l {
		return false
	}
	want := o.asks()
	return slices.ContainsFunc(o.list, func(d *draft.Directive) bool {
		return d.Name != "internal" && d.Name != "deny" && keepsClientsOut(d) && d.Name != "location" && !strings.HasPrefix(d.Name, "auth_")
	}) ||
		len(want) > 0 && !slices.Equal(want, l.asks()) && slices.ContainsFunc(want, keepsClientsOut)
}
