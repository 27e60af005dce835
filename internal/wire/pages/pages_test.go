package pages

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFormOf(t *testing.T) {
	for accept, want := range map[string]Form{
		"":    Text,
		"*/*": Text,
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8": HTML, // browsers
		"text/html":                             HTML,
		"image/avif,image/webp,*/*;q=0.8":       Text,
		"text/css,*/*;q=0.1":                    Text,
		"text/event-stream":                     Text,
		"application/json":                      JSON,
		"application/json, text/plain, */*":     JSON, // axios
		"text/plain, application/json":          Text,
		"text/html, application/json":           HTML,
		"application/json, text/html":           JSON,
		"application/problem+json":              JSON,
		"APPLICATION/VND.API+JSON":              JSON,
		"text/html;q=0.5, application/json":     JSON,
		"text/html, application/json;q=0.9":     HTML,
		"application/json;q=0, text/html;q=0.1": HTML,
		"application/json;q=0":                  Text,
		"application/json;q=nan":                Text,
		"Application/JSON; charset=utf-8":       JSON,
		`text/plain;x="a,application/json"`:     Text,
		"image/*, application/xhtml+xml":        HTML,
		"|application/json":                     JSON, // two lines
	} {
		lines := strings.Split(accept, "|")
		if accept == "" {
			lines = nil
		}
		if got := FormOf(lines); got != want {
			t.Errorf("%q: form %d, want %d", accept, got, want)
		}
	}
	if many := strings.Repeat("a/b,", maxAccept) + "text/html"; FormOf([]string{many}) != Text {
		t.Error("a long list is read to its end")
	}
}

// ask has a request answered with an error.
func ask(method, accept string, status int, text string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	for i := 0; i < len(header); i += 2 {
		w.Header().Add(header[i], header[i+1])
	}
	Error(w, r, status, text)
	return w
}

func TestErrorAsText(t *testing.T) {
	for _, c := range []struct {
		status     int
		text, wait string
		want       string
	}{
		{404, "", "", "Nothing is here. Check the address for mistakes, or start at the front page of the site.\n"},
		{404, "No such shelf.\n", "", "No such shelf.\n"},
		{418, "", "", "418 I'm a teapot\n"},
		{429, "", "1", "You have sent too many requests. Try again in 1 second.\n"},
		{429, "", "90", "You have sent too many requests. Try again in 90 seconds.\n"},
		{429, "", "91", "You have sent too many requests. Try again in 2 minutes.\n"},
		{429, "", "5400", "You have sent too many requests. Try again in 90 minutes.\n"},
		{429, "", "5401", "You have sent too many requests. Try again in 2 hours.\n"},
		{502, "", "", "The server behind this site could not be reached, or gave no proper answer. Try again in a moment.\n"},
		{503, "It is busy.", "5", "It is busy. Try again in 5 seconds.\n"},
		{503, "", "Fri, 31 Dec 1999 23:59:59 GMT", "This site is overloaded or down. Try again in a moment.\n"},
		{501, "", "", "This server cannot do what the request asks for.\n"},
		{507, "", "", "507 Insufficient Storage\n"},
	} {
		var header []string
		if c.wait != "" {
			header = []string{"Retry-After", c.wait}
		}
		w := ask("GET", "", c.status, c.text, header...)
		if got := w.Body.String(); w.Code != c.status || got != c.want {
			t.Errorf("%d %q: %d %q, want %q", c.status, c.text, w.Code, got, c.want)
		}
		if h := w.Header(); h.Get("Content-Security-Policy") != "" || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%d: header %v", c.status, h)
		}
	}
}

// Every page is short, complete, and needs nothing that its policy forbids.
func TestErrorAsHTML(t *testing.T) {
	const most = 3 << 10
	for status := range messages {
		w := ask("GET", "text/html", status, "", "Retry-After", "30")
		body := w.Body.String()
		if len(body) > most || w.Header().Get("Content-Security-Policy") != Policy(Style) {
			t.Errorf("%d: %d bytes, policy %q, want %q", status, len(body), w.Header().Get("Content-Security-Policy"), Policy(Style))
		}
		for _, want := range []string{"<title>" + messages[status].title, strings.ReplaceAll(messages[status].text, "'", "&#39;"), "Try again in 30 seconds.", "</html>"} {
			if !strings.Contains(body, want) {
				t.Errorf("%d: without %q:\n%s", status, want, body)
			}
		}
		for _, bad := range []string{"<script", " style=", "src=", "href=", "http:", "https:"} {
			if strings.Contains(body, bad) {
				t.Errorf("%d has %s", status, bad)
			}
		}
	}
	if body := ask("GET", "text/html", 400, `<b>&"`).Body.String(); !strings.Contains(body, "<p>&lt;b&gt;&amp;&#34;</p>") {
		t.Errorf("not escaped:\n%s", body)
	}
}

func TestErrorAsJSON(t *testing.T) {
	for _, c := range []struct {
		text, wait, id string
		want           map[string]any
	}{
		{"", "", "", map[string]any{"title": "Too Many Requests", "status": 429.0, "detail": "You have sent too many requests."}},
		{"Slowly.", "7", "A1", map[string]any{"title": "Too Many Requests", "status": 429.0, "detail": "Slowly. Try again in 7 seconds.", "retry_after": 7.0, "id": "A1"}},
		{"\"<é>\\\n.", "", "", map[string]any{"title": "Too Many Requests", "status": 429.0, "detail": "\"<é>\\\n."}},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set("Accept", "application/json")
		if c.wait != "" {
			w.Header().Set("Retry-After", c.wait)
		}
		ErrorOf(w, r, 429, c.text, c.id)
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: %v in %s %q", c.text, err, w.Header(), w.Body)
		}
		if len(got) != len(c.want) {
			t.Errorf("%q: %v", c.text, got)
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%q: %s is %v, want %v", c.text, name, got[name], want)
			}
		}
		if cc := w.Header().Get("Cache-Control"); (cc == "no-store") != (c.id != "") {
			t.Errorf("%q: Cache-Control %q", c.id, cc)
		}
	}
}

// A client that asks with HEAD gets the header of a GET.
func TestErrorToHEAD(t *testing.T) {
	for _, accept := range []string{"", "text/html", "application/json"} {
		get, head := ask("GET", accept, 404, ""), ask("HEAD", accept, 404, "")
		if head.Body.Len() != 0 || head.Header().Get("Content-Length") != get.Header().Get("Content-Length") || head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
			t.Errorf("%q: %v and %d bytes, for GET %v", accept, head.Header(), head.Body.Len(), get.Header())
		}
	}
}

func TestVary(t *testing.T) {
	for before, want := range map[string]string{"": "Accept", "Origin": "Origin, Accept", "accept, Origin": "accept, Origin", "*": "*", "Accept-Encoding": "Accept-Encoding, Accept"} {
		var header []string
		if before != "" {
			header = []string{"Vary", before}
		}
		if got := strings.Join(ask("GET", "", 404, "", header...).Header()["Vary"], ", "); got != want {
			t.Errorf("%q became %q, want %q", before, got, want)
		}
	}
}

type withID struct{ http.ResponseWriter }

func (withID) RequestID() string { return "ID<7>" }

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestRequestID(t *testing.T) {
	for accept, want := range map[string]string{"": "\nRequest id: ID<7>\n", "text/html": "<code>ID&lt;7&gt;</code>", "application/json": `"id":"ID\u003c7\u003e"`} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set("Accept", accept)
		Error(wrapped{withID{w}}, r, 500, "")
		if !strings.Contains(w.Body.String(), want) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %v %s", accept, w.Header(), w.Body)
		}
	}
}

// What is prepared is what Error sends.
func TestPrepare(t *testing.T) {
	for form, accept := range [Forms]string{Text: "", HTML: "text/html", JSON: "application/json"} {
		a, w := Prepare(Form(form), 503, "Soon.", 60), ask("GET", accept, 503, "Soon.", "Retry-After", "60")
		if string(a.Body) != w.Body.String() || len(a.Header) != len(w.Header()) || a.Size != int64(len(a.Body)) {
			t.Errorf("%q: %v %s, want %v %s", accept, a.Header, a.Body, w.Header(), w.Body)
		}
		for name := range a.Header {
			if a.Header.Get(name) != w.Header().Get(name) {
				t.Errorf("%q: %s is %q, want %q", accept, name, a.Header.Get(name), w.Header().Get(name))
			}
		}
	}
}

func FuzzFormOf(f *testing.F) {
	f.Add("text/html;q=0.5, application/json", "")
	f.Add(`a/b;x="\",text/html"`, "*/*")
	f.Fuzz(func(t *testing.T, one, two string) {
		form := FormOf([]string{one, two})
		all := strings.ToLower(one + "," + two)
		if form == HTML && !strings.Contains(all, "html") || form == JSON && !strings.Contains(all, "json") {
			t.Errorf("%q, %q: form %d, which is not named", one, two, form)
		}
	})
}

// discard is a ResponseWriter that does nothing.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)               {}

func BenchmarkError(b *testing.B) {
	for _, c := range []struct{ name, accept string }{
		{"text", "*/*"},
		{"html", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{"json", "application/json"},
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set("Accept", c.accept)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			w := discard{http.Header{}}
			for b.Loop() {
				clear(w.h)
				Error(w, r, 404, "")
			}
		})
	}
	b.Run("net/http", func(b *testing.B) {
		b.ReportAllocs()
		w := discard{http.Header{}}
		for b.Loop() {
			clear(w.h)
			http.Error(w, "404 Not Found", 404)
		}
	})
}
