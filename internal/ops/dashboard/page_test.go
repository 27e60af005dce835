package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
)

// TestPage: every part of the page can be filled in, and what others chose is text
// in it, in contents and in attributes.
func TestPage(t *testing.T) {
	const hostile = `"><script>alert(1)</script>'&`
	d := New(Source{Meters: meter.New()}, Actions{
		Purge: func(context.Context, string) error { return nil }, Drain: func(string, string, bool) error { return nil },
		Maintenance: func(bool) error { return nil }, Reload: func() error { return nil },
	}, slog.New(slog.DiscardHandler))
	up := servers([]Upstream{{Pool: hostile, Address: hostile, Healthy: true}, {Address: "http://b", Drained: true}})
	problems := Panel{ID: problemsID, Title: hostile, Columns: []Column{{Key: "what"}, {Key: "do"}}, Rows: []Row{
		{Bad, []any{hostile, "mend it by `millrace <x>`."}}, {Warn, []any{"late", ""}},
	}}
	now := second{at: time.Now(), requests: 9, failed: 1, cpu: time.Second, memory: 1 << 20}
	now.heat[2], now.heat[heatRows-1] = 8, 1
	seconds := []second{now}
	summary := Panel{ID: summaryID, Title: "Now", Columns: []Column{{Key: "what"}, {Key: "value"}, {Key: "number", Hidden: true}}, Rows: []Row{
		{Values: []any{"requests", "9 /s", nil}},
		{Values: []any{"errors", "1 /s", 1.0}},
		{Values: []any{"p50", "1 ms", nil}},
		{Values: []any{"p99", "", nil}},
		{Values: []any{"sent", "", nil}},
		{Values: []any{"connections", "", nil}},
		{Values: []any{"CPU", "", nil}},
		{Values: []any{"memory", "", nil}},
		{Values: []any{"version", "v9", nil}},
		{Values: []any{"not known", "", nil}},
	}}
	summary.Cards = cards(summary.Rows, seconds, 2)
	latency := Panel{ID: latencyID, Title: "Times", Heat: heatOf(seconds), Columns: []Column{{Key: "share", Unit: Share}, {Key: "secret", Hidden: true}}, Rows: []Row{{Values: []any{nil, "not shown"}}}, Note: hostile}
	summary.Rows[1].Values[2] = nil
	if quiet := cards(summary.Rows, seconds, 2)[1]; quiet.Level != Fine || quiet.Bad == "" {
		t.Errorf("errors of some minutes ago make the card %+v", quiet)
	}
	log := Panel{ID: tailID, Title: "Log", Empty: hostile, Note: "`log: off` keeps none."}
	linked := Panel{ID: "linked", Title: "Linked", Columns: []Column{{Key: "name"}, {Key: "n"}}, Rows: []Row{{Values: []any{hostile, "1"}}}, Links: []string{"/dashboard/own?channel=%22%3E"}}
	d.source.Pages = []Page{{ID: "own", Title: "A page", Beside: "linked"}}
	profile := Panel{ID: profileID, Title: "CPU profile", Columns: []Column{{Key: "function"}}, Rows: []Row{{Values: []any{"f"}}}}
	all := []Panel{problems, summary, latency, up, log, profile, linked, {ID: "nothing", Title: "Nothing"}}
	for _, c := range []struct {
		name  string
		view  view
		wants []string
	}{
		{"all", view{Title: hostile, Panels: all, Filter: hostile, Where: []string{hostile}, Links: []link{{Href: "#nothing", Title: hostile, For: "nothing", Hidden: true}}}, []string{
			`<b>Bad: </b>`, `<b>Warning: </b>`, `mend it by <code>millrace &lt;x&gt;</code>.</span>`, `<section id="nothing" class="panel panel-nothing" aria-labelledby="nothing-title" hidden>`,
			`>Drain</button>`, `aria-label="Resume http://b">Resume</button>`, `name="do" value="undrain"`, `name="do" value="close"`, `value="purge"`, `value="reload"`,
			`class="bar-bad" d="M`, `<path class="heat-5" d="M`, "<li>more</li>", "As a table", "Flame graph and comparison",
			`<dt>p99</dt><dd><b>–</b>`, `<div class="card bad"><dt>errors</dt>`, `<dt>version</dt> <dd>v9</dd>`, `<code>log: off</code> keeps none.`,
			`<td class="c-name"><a href="/dashboard/own?channel=%22%3E">`, `<p class="note"><a href="/dashboard/own">A page</a></p>`, `data-for="nothing" hidden>`,
		}},
		{"of its own", view{Panels: all[6:7], One: true, Page: &Page{ID: "own", Title: hostile, Filter: hostile}, Filter: hostile, Links: []link{{Href: "/dashboard/own", Title: "A page", Here: true}}}, []string{
			`action="/dashboard/own"><label for="filter">`, `href="/dashboard/own.csv"`, `aria-current="page">A page</a>`,
		}},
		{"closed", view{Closed: true}, []string{`name="do" value="open"`, "All sites are closed"}},
		{"a profile", view{Panels: all[5:6], One: true, profiles: profiles{Flame: "<svg>1</svg>", Difference: template.HTML("<svg>2</svg>"), Earlier: []int{1, 2}}}, []string{
			"<svg>1</svg>", "<svg>2</svg>", `<a href="/dashboard/profile?against=2">2 before</a>`, `<h2 id="profile-title">CPU profile</h2>`,
		}},
	} {
		page := string(d.fill("page", &c.view))
		if !strings.HasSuffix(page, "</html>\n") || strings.Contains(page, "<script>") || strings.Contains(page, "not shown") || strings.Contains(page, "`") || strings.Contains(page, "not known") || strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%s: the page is\n%s", c.name, page)
		}
		for _, want := range c.wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s: %s is not in\n%s", c.name, want, page)
			}
		}
	}
	for id, html := range d.render(all) { // the script hides panels of which this is empty
		if (html == "") != (id == "nothing") {
			t.Errorf("the changing part of %s is %q", id, html)
		}
	}
}

// TestColumns: the columns of a panel have names of their own, in the page and in data, and
// of the key figures none is left alone in a row.
func TestColumns(t *testing.T) {
	m := meter.New()
	m.Cache("/a/").Hit.Add(0, 1)
	m.Images("/b/").Shed.Add(0, 1)
	m.WebSocket("/c/").Open.Add(1)
	m.Plugin("d.wasm").Traps.Add(0, 1)
	m.Refused.Rate.Add(0, 1)
	m.Route("site", "/", "static").Fast.Observe(0, 200, 1, time.Millisecond)
	d := New(Source{
		Meters: m, Recent: new(accesslog.Recent), Upstreams: func() []Upstream { return []Upstream{{Address: "http://a"}} },
		Certificates: func() []Certificate { return []Certificate{{Name: "a"}} },
	}, Actions{}, slog.New(slog.DiscardHandler))
	shown := 0
	for _, p := range d.panels() {
		names, keys := map[string]bool{}, map[string]bool{}
		for _, c := range p.Columns {
			if c.Name == "" || names[c.Name] || keys[c.Key] {
				t.Errorf("%s: the column %s is called %q as another one", p.ID, c.Key, c.Name)
			}
			names[c.Name], keys[c.Key] = true, true
		}
		if len(p.Rows) > 0 {
			shown++
		}
		if p.ID == summaryID && len(p.Cards) != 8 { // see the style sheet
			t.Errorf("there are %d cards", len(p.Cards))
		}
	}
	if shown < 8 {
		t.Errorf("%d panels have rows", shown)
	}
	if first := d.panels()[:2]; first[0].ID != summaryID || first[1].ID != problemsID {
		t.Errorf("%s and %s come first", first[0].ID, first[1].ID)
	}
}

// TestOwnPages: what a page of its own shows is made when it is asked for, with what was
// asked.
func TestOwnPages(t *testing.T) {
	asked := ""
	page := Page{ID: "own", Title: "A page", Beside: problemsID, Filter: "a text", Panels: func(_ context.Context, q url.Values) []Panel {
		asked = q.Get("filter")
		return []Panel{
			{ID: "one", Title: "One", Columns: []Column{{Key: "name", Name: "name"}}, Rows: []Row{{Values: []any{"x"}}}},
			{ID: "two", Title: "Two", Empty: "None."},
		}
	}}
	d := New(Source{Meters: meter.New(), Recent: new(accesslog.Recent), Pages: []Page{page}}, Actions{}, slog.New(slog.DiscardHandler))
	get := func(target string) string {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	if get(Prefix); asked != "" {
		t.Error("the front page makes it")
	}
	for target, want := range map[string][]string{
		Prefix + "own?filter=a%22b": {"<title>A page · Millrace</title>", `value="a&#34;b"`, ">x</td>", `<p class="empty">None.</p>`, `aria-current="page"`, `<a href="/dashboard/#problems"`},
		Prefix + "own.json":         {`"panel":"one"`, `"panel":"two"`},
		Prefix + "own.csv":          {"name\nx\n"},
		Prefix:                      {`<a href="/dashboard/own" data-for="problems">A page</a>`},
		Prefix + "none":             {"404 ", "own"},
	} {
		got := get(target)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s is not in\n%s", target, part, got)
			}
		}
	}
	if get(Prefix + "own?filter=x"); asked != "x" {
		t.Errorf("asked for %q", asked)
	}
	if page := get(Prefix + "own"); strings.Contains(page, "data-live") {
		t.Error("a page of one moment says that it is live")
	}
}

// TestPageThatFails: a fault in a template is an error, and no half of a page.
func TestPageThatFails(t *testing.T) {
	var said strings.Builder
	d := New(Source{Meters: meter.New()}, Actions{}, slog.New(slog.NewTextHandler(&said, nil)))
	d.pages = func() *template.Template {
		return template.Must(template.New("page").Parse(`half of it {{.Missing}}`))
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequest("GET", Prefix, nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "half") || !strings.Contains(said.String(), "Missing") {
		t.Errorf("%d %s, and %s", w.Code, w.Body, said.String())
	}
}
