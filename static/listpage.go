package static

import (
	"cmp"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/pages"
)

// order is how a listing is sorted.
type order struct {
	by   string // name, size or date
	down bool
}

// orderOf is what a query asks for.
func orderOf(query url.Values) order {
	o := order{by: query.Get("sort"), down: query.Get("order") == "desc"}
	if o.by != "size" && o.by != "date" {
		o.by = "name"
	}
	return o
}

// sort sorts a listing, folders first.
func (o order) sort(list []listed) {
	slices.SortStableFunc(list, func(a, b listed) int {
		c := 0
		switch o.by {
		case "size":
			c = cmp.Compare(a.Size, b.Size)
		case "date":
			c = a.Modified.Compare(b.Modified)
		}
		if c = cmp.Or(c, compareNames(a.Name, b.Name)); o.down {
			c = -c
		}
		return cmp.Or(strings.Compare(b.Type, a.Type), c)
	})
}

// compareNames compares names as people do: file2 comes before file10, and B behind a.
func compareNames(a, b string) int {
	return cmp.Or(compareParts(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

// compareParts compares digits by the number that they make, and what is between them by
// its bytes.
func compareParts(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(x):], b[len(y):]
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// digits are those that a text begins with.
func digits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}

// sizeText is a size as people read it: 3.1 MB.
func sizeText(n int64) string {
	const step, few = 1000, 9.95 // from here on there are no decimals
	if n < step {
		return strconv.FormatInt(n, 10) + " B"
	}
	units, x := "kMGTPE", float64(n)/step
	for x >= step-0.5 && len(units) > 1 {
		units, x = units[1:], x/step
	}
	decimals := 0
	if x < few {
		decimals = 1
	}
	return strconv.FormatFloat(x, 'f', decimals, 64) + " " + units[:1] + "B"
}

// listStyle is that of a listing.
const listStyle = pages.Style + `main{max-width:60rem;margin:2rem auto}
nav{margin:0 0 .5rem}
table{border-collapse:collapse;width:100%}
td,th{padding:.4rem .75rem .4rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
td:last-child,th:last-child{padding-right:0}
.n,.d{white-space:nowrap;font-variant-numeric:tabular-nums;overflow-wrap:normal}
.n{text-align:right}
@media(max-width:40rem){.t{display:none}}
`

// listPage is a listing for people.
type listPage struct {
	path     string // of the folder, with a slash at its end
	list     []listed
	order    order
	all      bool // nothing is left out
	archives bool

	b strings.Builder
}

// add appends to the page. What comes from names must have been escaped.
func (p *listPage) add(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func (p *listPage) html() []byte {
	p.add("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n",
		html.EscapeString(p.path), listStyle)
	p.crumbs()
	p.add("<table>\n<thead>\n<tr>")
	for _, column := range []struct{ by, class, name string }{{"name", "", "Name"}, {"size", "n", "Size"}, {"date", "d", "Changed"}} {
		p.heading(column.by, column.class, column.name)
	}
	p.add("</tr>\n</thead>\n<tbody>\n")
	for i := range p.list {
		p.row(&p.list[i])
	}
	p.add("</tbody>\n</table>\n")
	switch {
	case !p.all:
		p.add("<p>Only %d of the names are shown.</p>\n", maxListed)
	case len(p.list) == 0:
		p.add("<p>This folder is empty.</p>\n")
	}
	if p.archives {
		p.add("<p>Download the whole folder: <a href=\"?archive=zip\">zip</a>, <a href=\"?archive=tar.gz\">tar.gz</a></p>\n")
	}
	p.add("</main>\n</body>\n</html>\n")
	return []byte(p.b.String())
}

// crumbs is the way from the top folder. Its links are relative: the path may be a part of
// the one that the client has asked for.
func (p *listPage) crumbs() {
	names := strings.Split(strings.Trim(p.path, "/"), "/")
	if names[0] == "" {
		p.add("<h1>Files</h1>\n")
		return
	}
	p.add("<nav aria-label=\"Folders above\"><a href=\"./%s\">Files</a>", strings.Repeat("../", len(names)))
	for i, name := range names[:len(names)-1] {
		p.add(" / <a href=\"./%s\">%s</a>", strings.Repeat("../", len(names)-1-i), html.EscapeString(name))
	}
	p.add("</nav>\n<h1>%s</h1>\n", html.EscapeString(names[len(names)-1]))
}

// heading is that of a column, whose link sorts by it, or the other way round.
func (p *listPage) heading(by, class, name string) {
	order, sorted, arrow := "", "", ""
	if by == p.order.by {
		if sorted, arrow = " aria-sort=\"ascending\"", " ↑"; p.order.down {
			sorted, arrow = " aria-sort=\"descending\"", " ↓"
		} else {
			order = "&amp;order=desc"
		}
	}
	p.add("<th scope=\"col\" class=\"%s\"%s><a href=\"?sort=%s%s\">%s</a>%s</th>", class, sorted, by, order, name, arrow)
}

func (p *listPage) row(e *listed) {
	slash, size := "", sizeText(e.Size)
	if e.Type == "folder" {
		slash, size = "/", ""
	}
	p.add("<tr><td><a href=\"./%s%s\">%s%s</a></td><td class=\"n\">%s</td><td class=\"d\"><time datetime=\"%s\">%s<span class=\"t\"> %s</span></time></td></tr>\n",
		html.EscapeString(url.PathEscape(e.Name)), slash, html.EscapeString(e.Name), slash, size,
		e.Modified.Format(time.RFC3339), e.Modified.Format(time.DateOnly), e.Modified.Format("15:04"))
}
