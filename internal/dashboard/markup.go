package dashboard

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// markup is HTML that is safe to send: texts in it are escaped.
type markup string

// writer writes HTML. The templates of the standard library look methods up by name,
// which would make the program 16 MB larger (decision 37).
type writer struct{ strings.Builder }

// put writes HTML of our own, in which each %s is a text that is escaped, in quotes
// where it is an attribute.
func (w *writer) put(format string, texts ...string) {
	args := make([]any, len(texts))
	for i, t := range texts {
		args[i] = html.EscapeString(t)
	}
	_, _ = fmt.Fprintf(w, format, args...)
}

// add writes what is markup already.
func (w *writer) add(m markup) { w.WriteString(string(m)) }

// when writes something if it is the case.
func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// shown reports whether a panel has anything to show.
func (p *Panel) shown() bool { return len(p.Rows) > 0 || p.Empty != "" }

// value is that of a row in a column, as text.
func (p *Panel) value(row Row, key string) string {
	for i, c := range p.Columns {
		if c.Key == key {
			return Show(c.Unit, row.Values[i])
		}
	}
	return ""
}

// inner is the part of a panel that changes; empty if there is nothing to show.
func (d *Dashboard) inner(p *Panel) markup {
	w := new(writer)
	if !p.shown() {
		return ""
	}
	w.add(p.Drawing)
	switch {
	case len(p.Rows) == 0:
		w.put(`<p class="empty">%s</p>`, p.Empty)
	case p.ID == problemsID:
		w.add(p.problemList())
	case p.ID == summaryID:
		w.add(p.tiles())
	case p.ID == latencyID:
		w.put(`<details><summary>As a table</summary>`)
		w.add(d.table(p))
		w.put(`</details>`)
	default:
		w.add(d.table(p))
	}
	if p.Note != "" {
		w.put(`<p class="note">%s</p>`, p.Note)
	}
	return markup(w.String())
}

func (p *Panel) problemList() markup {
	w := new(writer)
	w.put(`<ul class="problems">`)
	for _, row := range p.Rows {
		kind := "Warning: "
		if row.Level == Bad {
			kind = "Bad: "
		}
		w.put(`<li class="%s"><b>%s</b>%s.`, string(row.Level), kind, p.value(row, "what"))
		if do := p.value(row, "do"); do != "" {
			w.put(` <span class="do">%s</span>`, do)
		}
		w.put(`</li>`)
	}
	w.put(`</ul>`)
	return markup(w.String())
}

func (p *Panel) tiles() markup {
	w := new(writer)
	w.put(`<dl class="tiles">`)
	for _, row := range p.Rows {
		if value := p.value(row, "value"); value != "" {
			w.put(`<div><dt>%s</dt><dd>%s</dd></div>`, p.value(row, "what"), value)
		}
	}
	w.put(`</dl>`)
	return markup(w.String())
}

func (d *Dashboard) table(p *Panel) markup {
	w := new(writer)
	drains := p.ID == upstreamsID && d.actions.Drain != nil
	w.put(`<div class="scroll" tabindex="0" role="region" aria-label="%s: figures"><table><thead><tr>`, p.Title)
	for _, c := range p.Columns {
		if !c.Hidden {
			w.put(`<th scope="col" class="%s">%s</th>`, when(c.Number(), "n"), c.Name)
		}
	}
	if drains {
		w.put(`<th scope="col">drain</th>`)
	}
	w.put(`</tr></thead><tbody>`)
	for _, row := range p.Rows {
		w.put(`<tr class="%s">`, string(row.Level))
		for i, c := range p.Columns {
			if !c.Hidden {
				w.put(`<td class="c-%s%s">%s</td>`, c.Key, when(c.Number(), " n"), Show(c.Unit, row.Values[i]))
			}
		}
		if drains {
			w.add(d.drainButton(p, row))
		}
		w.put(`</tr>`)
	}
	w.put(`</tbody></table></div>`)
	return markup(w.String())
}

func (d *Dashboard) drainButton(p *Panel, row Row) markup {
	w := new(writer)
	do, label, text := "drain", "Drain ", "Drain"
	if state := p.value(row, "state"); state == "drained" || state == "draining" {
		do, label, text = "undrain", "Resume ", "Resume"
	}
	server := p.value(row, "server")
	w.put(`<td>`)
	w.add(d.form(do))
	w.put(`<input type="hidden" name="pool" value="%s"><input type="hidden" name="server" value="%s"><button aria-label="%s">%s</button></form></td>`,
		p.value(row, "pool"), server, label+server, text)
	return markup(w.String())
}

// form begins one that does something; its secret shows that it is ours.
func (d *Dashboard) form(do string) markup {
	w := new(writer)
	w.put(`<form method="post" action="/dashboard/do"><input type="hidden" name="form" value="%s"><input type="hidden" name="do" value="%s">`, d.secret, do)
	return markup(w.String())
}

// view is what a page shows.
type view struct {
	panels      []Panel
	one         bool // a page of one panel
	filter      string
	now         time.Time
	where       []string
	closed      bool
	flame, diff markup
	earlier     []int // profiles to compare with
}

const pageHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<link rel="icon" href="/dashboard/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/assets/dashboard.css">
<script type="module" src="/dashboard/assets/dashboard.js"></script>
</head>
<body>
<a class="skip" href="#main">To the figures</a>
<header>
`

// html is the whole page.
func (d *Dashboard) html(v *view) markup {
	w := new(writer)
	title := "Millrace"
	if v.one {
		title = v.panels[0].Title + " · Millrace"
	}
	w.put(pageHead, title)
	if v.one {
		w.put("<h1><a href=\"/dashboard/\">Millrace</a></h1>\n")
	} else {
		w.put("<h1>Millrace</h1>\n")
	}
	w.put(`<p class="where">`)
	for _, at := range v.where {
		w.put(`<span>%s</span> `, at)
	}
	w.put("</p>\n<p class=\"state\" id=\"state\">as of <time datetime=\"%s\">%s</time></p>\n<p class=\"said\" id=\"said\" role=\"status\"></p>\n</header>\n",
		v.now.Format(time.RFC3339), v.now.Format(time.TimeOnly))
	if !v.one {
		w.put(`<nav aria-label="Panels">`)
		for i := range v.panels {
			p := &v.panels[i]
			w.put(`<a href="#%s" data-for="%s"`+when(!p.shown(), " hidden")+`>%s</a>`, p.ID, p.ID, p.Title)
		}
		w.put("<a href=\"#controls\">Controls</a></nav>\n")
	}
	w.put("<main id=\"main\">\n")
	for i := range v.panels {
		w.add(d.section(v, &v.panels[i]))
	}
	if !v.one {
		w.add(d.controls(v.closed))
	}
	w.put("</main>\n<footer><p>All of it as <a href=\"/dashboard/all.json\">JSON</a>; for Prometheus at <a href=\"/metrics\">/metrics</a>.</p></footer>\n</body>\n</html>\n")
	return markup(w.String())
}

// section is a panel with its heading.
func (d *Dashboard) section(v *view, p *Panel) markup {
	w := new(writer)
	w.put(`<section id="%s" class="panel panel-%s" aria-labelledby="%s-title"`+when(!v.one && !p.shown(), " hidden")+`><div class="head"><h2 id="%s-title">`, p.ID, p.ID, p.ID, p.ID)
	if v.one {
		w.put(`%s`, p.Title)
	} else {
		w.put(`<a href="/dashboard/%s">%s</a>`, p.ID, p.Title)
	}
	w.put(`</h2><p class="data"><a href="/dashboard/%s.json" aria-label="%s as JSON">JSON</a> <a href="/dashboard/%s.csv" aria-label="%s as CSV">CSV</a></p></div>`, p.ID, p.Title, p.ID, p.Title)
	if p.ID == tailID {
		w.put(`<form class="filter" role="search" method="get" action="/dashboard/log"><label for="filter">Only lines with all of these words</label>
<input id="filter" name="filter" type="search" value="%s" maxlength="200" autocomplete="off" spellcheck="false" placeholder="for example 5xx /api/"><input type="submit" value="Filter"></form>`, v.filter)
	}
	w.put(`<div data-live="%s">`, p.ID)
	w.add(d.inner(p))
	w.put(`</div>`)
	if p.ID == profileID {
		w.add(v.profile(p))
	}
	w.put("</section>\n")
	return markup(w.String())
}

// profile are the drawings of the profile's own page, or the way there.
func (v *view) profile(p *Panel) markup {
	w := new(writer)
	switch {
	case !v.one && len(p.Rows) > 0:
		w.put(`<p class="note"><a href="/dashboard/profile">Flame graph and comparison</a></p>`)
	case v.flame != "":
		w.put(`<h3>Flame graph</h3><div class="scroll" tabindex="0" role="region" aria-label="Flame graph">`)
		w.add(v.flame)
		w.put(`</div>`)
	}
	if v.diff != "" {
		w.put(`<h3>Compared with an earlier one</h3><p class="note">Against the profile `)
		for _, n := range v.earlier {
			w.put(`<a href="/dashboard/profile?against=%s">%s before</a> `, fmt.Sprint(n), fmt.Sprint(n))
		}
		w.put(`</p><div class="scroll" tabindex="0" role="region" aria-label="Difference of two flame graphs">`)
		w.add(v.diff)
		w.put(`</div>`)
	}
	return markup(w.String())
}

// controls are the buttons that do not belong to a row.
func (d *Dashboard) controls(closed bool) markup {
	w := new(writer)
	a := &d.actions
	w.put(`<section id="controls" class="panel controls" aria-labelledby="controls-title"><div class="head"><h2 id="controls-title">Controls</h2></div>`)
	if a.Purge != nil {
		w.put(`<details><summary>Purge the cache</summary>`)
		w.add(d.form("purge"))
		w.put(`<label for="what">A URL, a pattern with *, or * for everything</label>
<input id="what" name="what" required maxlength="2048" autocomplete="off" spellcheck="false" placeholder="https://example.org/news/*"><button>Purge</button></form></details>`)
	}
	if a.Maintenance != nil {
		do, says, sure, text := "close", "All sites would answer 503 until they are opened again.", "Close all sites?", "Close the sites"
		if closed {
			do, says, sure, text = "open", "All sites are closed and answer 503.", "", "Open the sites"
		}
		w.put(`<details><summary>Maintenance</summary>`)
		w.add(d.form(do))
		w.put(`<p>%s</p><button data-sure="%s">%s</button></form></details>`, says, sure, text)
	}
	if a.Reload != nil {
		w.put(`<details><summary>Reload the config</summary>`)
		w.add(d.form("reload"))
		w.put(`<p>The file is read again. If anything is wrong with it, the config that is in use stays.</p><button>Reload</button></form></details>`)
	}
	if a.Drain != nil {
		w.put(`<p class="note">An upstream is drained in its row under <a href="#upstreams">Upstreams</a>, where there is one.</p>`)
	}
	w.put("</section>\n")
	return markup(w.String())
}
