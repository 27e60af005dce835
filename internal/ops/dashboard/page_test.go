package dashboard

import (
	"context"
	"html/template"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	summary := Panel{ID: summaryID, Title: "Now", Strips: strips(seconds, 2), Columns: []Column{{Key: "what"}, {Key: "value"}}, Rows: []Row{
		{Values: []any{"p50", "1 ms"}}, {Values: []any{"p99", ""}},
	}}
	latency := Panel{ID: latencyID, Title: "Times", Heat: heatOf(seconds), Columns: []Column{{Key: "share", Unit: Share}, {Key: "secret", Hidden: true}}, Rows: []Row{{Values: []any{nil, "not shown"}}}, Note: hostile}
	log := Panel{ID: tailID, Title: "Log", Empty: hostile}
	profile := Panel{ID: profileID, Title: "CPU profile", Columns: []Column{{Key: "function"}}, Rows: []Row{{Values: []any{"f"}}}}
	all := []Panel{problems, summary, latency, up, log, profile, {ID: "nothing", Title: "Nothing"}}
	for _, c := range []struct {
		name  string
		view  view
		wants []string
	}{
		{"all", view{Title: hostile, Panels: all, Filter: hostile, Where: []string{hostile}}, []string{
			`<b>Bad: </b>`, `<b>Warning: </b>`, `mend it by <code>millrace &lt;x&gt;</code>.</span>`, `<section id="nothing" class="panel panel-nothing" aria-labelledby="nothing-title" hidden>`,
			`>Drain</button>`, `aria-label="Resume http://b">Resume</button>`, `name="do" value="undrain"`, `name="do" value="close"`, `value="purge"`, `value="reload"`,
			`class="bar-bad" d="M`, `<path class="heat-5" d="M`, "<li>more</li>", "As a table", "Flame graph and comparison",
		}},
		{"closed", view{Closed: true}, []string{`name="do" value="open"`, "All sites are closed"}},
		{"a profile", view{Panels: all[5:6], One: true, profiles: profiles{Flame: "<svg>1</svg>", Difference: template.HTML("<svg>2</svg>"), Earlier: []int{1, 2}}}, []string{
			"<svg>1</svg>", "<svg>2</svg>", `<a href="/dashboard/profile?against=2">2 before</a>`, `<h2 id="profile-title">CPU profile</h2>`,
		}},
	} {
		page := string(d.fill("page", &c.view))
		if !strings.HasSuffix(page, "</html>\n") || strings.Contains(page, "<script>") || strings.Contains(page, "not shown") || strings.Contains(page, "ZgotmplZ") {
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
