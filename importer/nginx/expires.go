package nginx

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/importer/draft"
)

// cacheControl translates expires, and a Cache-Control that is added.
func (t *site) cacheControl(l *location) (*draft.Node, bool) {
	if d := l.last("expires"); d != nil {
		if name, is := strings.CutPrefix(d.Arg(0), "$"); is {
			return t.expiresMap(d, name)
		}
	}
	value := t.lifetime(l)
	rules := draft.List()
	rules.Add(draft.Map().Set("match", draft.Text("*")).Set("value", draft.Text(value)).Flow())
	return rules.Flow(), value != ""
}

// lifetime is the Cache-Control that expires and add_header make together.
func (t *site) lifetime(l *location) string {
	var parts []string
	if d := l.last("expires"); d != nil {
		value, err := expires(d)
		if err != nil {
			t.im.Leave(d, err.Error())
		} else {
			t.im.Used(d)
		}
		if value != "" {
			parts = append(parts, value)
		}
	}
	for _, d := range l.all("add_header") {
		if strings.EqualFold(d.Arg(0), "Cache-Control") && !strings.Contains(d.Arg(1), "$") {
			t.im.Used(d)
			for p := range strings.SplitSeq(d.Arg(1), ",") {
				parts = append(parts, strings.TrimSpace(p))
			}
		}
	}
	return strings.Join(draft.Unique(parts), ", ")
}

// expires is the Cache-Control of one.
func expires(d *draft.Directive) (string, error) {
	switch v := d.Arg(0); {
	case v == "off":
		return "", nil
	case v == "max":
		return "max-age=315360000", nil
	case v == "epoch", strings.HasPrefix(v, "-"):
		return "no-cache", nil
	default:
		age, ok := elapsed(strings.TrimPrefix(v, "+"))
		if !ok {
			return "", fmt.Errorf("write a value for Cache-Control into static.cache_control: %s is no fixed age", strings.Join(d.Words(), " "))
		}
		return "max-age=" + strconv.Itoa(int(age.Seconds())), nil
	}
}

// expiresMap translates a map from content types to ages.
func (t *site) expiresMap(d *draft.Directive, name string) (*draft.Node, bool) {
	m := t.im.maps[name]
	if m == nil || !strings.HasSuffix(m.Arg(0), "_http_content_type") {
		t.im.Leave(d, "write the ages into static.cache_control, by the files' names")
		return nil, false
	}
	names := map[string][]string{
		"text/html": {"*.html", "*/", "*.htm"}, "text/css": {"*.css"}, "application/javascript": {"*.js", "*.mjs"}, "text/javascript": {"*.js", "*.mjs"},
		"~image/": {"*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp", "*.avif", "*.svg", "*.ico"}, "~font/": {"*.woff", "*.woff2", "*.ttf", "*.otf"},
		"application/font-woff2": {"*.woff2"}, "application/json": {"*.json"}, "application/pdf": {"*.pdf"}, "image/svg+xml": {"*.svg"}, "image/x-icon": {"*.ico"},
	}
	rules, rest := draft.List(), ""
	t.im.Used(d, m)
	for _, e := range m.Block {
		value, err := expires(&draft.Directive{Args: e.Args})
		patterns := names[e.Name]
		switch {
		case e.Name == "default":
			rest = value
		case err != nil || patterns == nil:
			t.im.Leave(m, fmt.Sprintf("write a line into static.cache_control for %s", e.Name))
		case value != "":
			for _, p := range patterns {
				if !strings.HasSuffix(p, "/") {
					rules.Add(draft.Map().Set("match", draft.Text(p)).Set("value", draft.Text(value)).Flow())
				}
			}
		}
	}
	if rest != "" {
		rules.Add(draft.Map().Set("match", draft.Text("*")).Set("value", draft.Text(rest)).Flow())
	}
	return rules, rules.Len() > 0
}
