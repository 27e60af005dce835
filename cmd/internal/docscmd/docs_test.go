package docscmd

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/cmd/internal/cli"
	"millrace/docs"
)

func manualOf(t *testing.T) *manual {
	t.Helper()
	m, err := open(docs.Files)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func get(m *manual, target string) (int, string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	b, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(b)
}

var (
	hrefs = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	named = regexp.MustCompile(` id="([^"]*)"`)
)

// TestNoDeadLinks follows each link of each page, those to headings as well.
func TestNoDeadLinks(t *testing.T) {
	m := manualOf(t)
	ids := map[string][]string{}
	pages := map[string]string{}
	next := []string{"/"}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if _, seen := pages[at]; seen {
			continue
		}
		status, body := get(m, at)
		if status != http.StatusOK {
			t.Errorf("%s: %d", at, status)
		}
		pages[at] = body
		for _, id := range named.FindAllStringSubmatch(body, -1) {
			ids[at] = append(ids[at], id[1])
		}
		for _, link := range hrefs.FindAllStringSubmatch(body, -1) {
			if to, _, _ := strings.Cut(link[1], "#"); strings.HasPrefix(to, "/") {
				next = append(next, to)
			}
		}
	}
	if len(pages) < 80 {
		t.Errorf("only %d pages were found", len(pages))
	}
	for at, body := range pages {
		for _, link := range hrefs.FindAllStringSubmatch(body, -1) {
			to, id, _ := strings.Cut(link[1], "#")
			if to == "" {
				to = at
			}
			switch {
			case strings.HasPrefix(to, "http://"), strings.HasPrefix(to, "https://"), strings.HasPrefix(to, "mailto:"):
			case !strings.HasPrefix(to, "/"):
				t.Errorf("%s links to %s", at, link[1])
			case id != "" && !slices.Contains(ids[to], id):
				t.Errorf("%s links to %s, and there is no such heading", at, link[1])
			}
		}
	}
}

// TestAllPagesAreInIt: no page of the folder is missing, and each has a title and parts.
func TestAllPagesAreInIt(t *testing.T) {
	m := manualOf(t)
	files, err := filepath.Glob("../../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(files) + len(more); n != len(m.pages) || n < 80 {
		t.Errorf("the folder has %d pages, the manual %d", n, len(m.pages))
	}
	for _, p := range m.pages {
		if p.title == "" || len(p.sections) == 0 || strings.Contains(string(p.html), "<!-- raw HTML omitted -->") && !bytes.Contains(p.source, []byte("<!--")) {
			t.Errorf("%s: %q with %d sections", p.name, p.title, len(p.sections))
		}
	}
}

func TestSearch(t *testing.T) {
	m := manualOf(t)
	for query, want := range map[string]string{
		"purge by tag":        "cache",
		"rate_limit":          "config",
		"webassembly traefik": "plugins",
		"WordPress":           "php",
		"nginx not carried":   "coming-from/nginx",
		"let's encrypt DNS":   "tls",
		"upgrade without":     "",
		"xyzzy":               "",
		"  ":                  "",
		"<script>alert(1)":    "",
		"compose certificate": "install",
	} {
		found := m.search(query)
		if want != "" && !slices.ContainsFunc(found[:min(len(found), 5)], func(s section) bool { return s.page.name == want }) {
			t.Errorf("%q: none of the first of %d is in %s", query, len(found), want)
		}
		if query == "xyzzy" && len(found) > 0 {
			t.Errorf("%q is found in %v", query, found[0].page.name)
		}
		for _, s := range found {
			_ = s.Says(query) // of any piece of any section
		}
	}
	if _, body := get(m, "/?q=%3Cscript%3Ealert"); strings.Contains(body, "<script") {
		t.Error("what was searched for is not escaped")
	}
	if _, body := get(m, "/?q=purge"); !strings.Contains(body, `<a href="/cache#`) {
		t.Errorf("the page of a search: %s", body)
	}
}

func TestPlain(t *testing.T) {
	p := &page{source: []byte("# A *title*\n\nSome [words](other.md) " + strings.Repeat("and more words ", 10) + "\n\n| a | b |\n|---|---|\n| `x` | one \\| two |\n\n- an item " + strings.Repeat("that goes on ", 8) + "\n\n```yaml\nlisten: :80 " + strings.Repeat("x", 90) + "\n```\n")}
	var b bytes.Buffer
	if err := plain(&b, p, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A *title*\n=========\n", "Some words and", "  `x`\n      b: one | two\n", "\n- an item", "\n  on that goes on", "    listen: :80 xxx"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > width+1 && !strings.Contains(line, "listen") {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
	for _, p := range manualOf(t).pages {
		if err := plain(io.Discard, p, true); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// TestTopics: pages are found by their names, and mistakes are answered with what was meant.
func TestTopics(t *testing.T) {
	m := manualOf(t)
	for topic, want := range map[string]string{"cache": "cache", "Cache.md": "cache", "nginx": "coming-from/nginx", "58": "decisions/0058-one-request"} {
		if p, err := m.find(topic); err != nil || p.name != want {
			t.Errorf("%s: %v, %v", topic, p, err)
		}
	}
	for topic, hint := range map[string]string{"cahce": `did you mean "cache"?`, "stale_while_revalidate": "it is mentioned in", "xyzzy": "lists the topics"} {
		_, err := m.find(topic)
		var b bytes.Buffer
		if (cli.Streams{Err: &b}).Explain(err) != cli.ExitFailure || !strings.Contains(b.String(), hint) {
			t.Errorf("%s: %s", topic, &b)
		}
	}
	var b bytes.Buffer
	if err := (&Docs{}).Run(cli.Streams{Out: &b}); err != nil || !strings.Contains(b.String(), "cache  ") || strings.Contains(b.String(), "decisions/") {
		t.Errorf("%v:\n%s", err, &b)
	}
	b.Reset()
	t.Setenv("PAGER", "cat")
	if err := (&Docs{Topic: "sandbox"}).Run(cli.Streams{Out: &b}); err != nil || !strings.HasPrefix(strings.TrimSpace(b.String()), "Sandbox") && !strings.Contains(b.String(), "sandbox") {
		t.Errorf("%v:\n%s", err, &b)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := paged(out, func(w io.Writer) error { _, err := io.WriteString(w, "a page"); return err }); err != nil {
		t.Error(err)
	}
	if shown, err := os.ReadFile(out.Name()); err != nil || string(shown) != "a page" {
		t.Errorf("the pager has shown %q, %v", shown, err)
	}
}

func TestOnlyReading(t *testing.T) {
	m := manualOf(t)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if status, body := get(m, "/nothing"); status != http.StatusNotFound || !strings.Contains(body, "No such page") {
		t.Errorf("%d %s", status, body)
	}
}
