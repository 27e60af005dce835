package headers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func answers(t testing.TB, site, route *AnswerOptions, always bool) *AnswerRules {
	t.Helper()
	a, faults := CompileAnswers(Lists(site, route, always))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return a
}

func TestAnswers(t *testing.T) {
	site := &AnswerOptions{
		Security: &Security{},
		Options:  Options{Set: map[string]string{"X-A": "site"}, Remove: []string{"x-gone"}},
		When: []When{
			{Status: []string{"404", "5xx"}, Options: Options{Set: map[string]string{"X-Bad": "yes"}}},
			{Type: []string{"image/*", "application/*+json"}, Options: Options{Set: map[string]string{"X-Type": "yes", "Content-Language": "de"}, Remove: []string{"X-Frame-Options"}}},
			{Status: []string{"200"}, Type: []string{"text/html"}, Options: Options{Default: map[string]string{"X-Both": "yes"}}},
			{Protocol: "https", Options: Options{Set: map[string]string{"X-TLS": "yes"}}},
			{Protocol: "http", Status: []string{"5xx"}, Options: Options{Set: map[string]string{"X-Plain": "yes"}}},
		},
	}
	route := &AnswerOptions{Options: Options{Set: map[string]string{"X-A": "route", "Referrer-Policy": "no-referrer"}, Add: map[string]string{"X-B": "b"}}}
	a := answers(t, site, route, true)
	for _, c := range []struct {
		status int
		kind   string
		secure bool
		want   string // names in order; = value
	}{
		{200, "text/html; charset=utf-8", true, "X-A=route X-B=b X-Both=yes X-Frame-Options=SAMEORIGIN Strict-Transport-Security=max-age=31536000 Referrer-Policy=no-referrer X-Gone= X-Bad= X-Powered-By= X-TLS=yes X-Plain="},
		{200, "Image/PNG", false, "X-Type=yes X-Frame-Options= Content-Language=de Strict-Transport-Security= X-Content-Type-Options=nosniff"},
		{200, "application/problem+json", false, "X-Type=yes X-TLS= X-Plain="},
		{200, "", false, "X-Type= X-Both= X-Frame-Options=SAMEORIGIN"},
		{304, "text/html", false, "X-Both=yes X-Bad="},
		{304, "image/png", false, "X-Type=yes Content-Language="},
		{404, "text/html", false, "X-Bad=yes X-Both="},
		{503, "", false, "X-Bad=yes X-Plain=yes"},
		{503, "", true, "X-Plain= X-TLS=yes"},
	} {
		h := http.Header{"X-Gone": {"old"}, "X-Powered-By": {"old"}}
		m := Moment{Status: c.status, Type: c.kind, Secure: c.secure}
		if c.status == 304 {
			m.Kept = func(name string) bool { return name != "Content-Language" }
		}
		a.Apply(Of(h), &m)
		for pair := range strings.FieldsSeq(c.want) {
			name, want, _ := strings.Cut(pair, "=")
			if got := h.Get(name); got != want {
				t.Errorf("%d %s: %s is %q, want %q", c.status, c.kind, name, got, want)
			}
		}
	}
	h := http.Header{"X-Frame-Options": {"DENY"}, "Content-Type": {"text/plain"}}
	answers(t, &AnswerOptions{Options: Options{Remove: []string{"Content-Type"}}, Security: &Security{Frames: "none", CSP: "default-src 'self'"}}, nil, false).Apply(Of(h), &Moment{Status: 200})
	if v, ok := h["Content-Type"]; !ok || v != nil || h.Get("X-Frame-Options") != "DENY" || h.Get("Content-Security-Policy") != "default-src 'self'" {
		t.Errorf("%v", h)
	}
	if off := answers(t, &AnswerOptions{Security: &Security{}}, &AnswerOptions{Security: &Security{Off: true}}, true); off != nil {
		t.Error("security off is on")
	}
	if answers(t, nil, nil, true) != nil || answers(t, &AnswerOptions{}, nil, true) != nil {
		t.Error("rules of nothing")
	}
}

func TestWhatAnswersVaryOn(t *testing.T) {
	for value, want := range map[string]struct {
		vary        string
		private, id bool
	}{
		"x": {}, "{scheme}{path}": {}, "{host}": {vary: "Host"}, "{client_ip}": {private: true}, "{uri}": {private: true},
		"{request_id}": {private: true, id: true}, "{method}": {private: true},
	} {
		a := answers(t, &AnswerOptions{Options: Options{Default: map[string]string{"X-A": value}}}, nil, false)
		if got := strings.Join(a.Vary(), " "); got != want.vary || a.Private() != want.private || a.NeedsID() != want.id {
			t.Errorf("%s: %q %v %v", value, got, a.Private(), a.NeedsID())
		}
	}
	if !answers(t, &AnswerOptions{Options: Options{Add: map[string]string{"set-cookie": "a=b"}}}, nil, false).Private() {
		t.Error("a cookie is for everybody")
	}
	ctx := WithID(t.Context(), "mine")
	one, other := ID(t.Context()), ID(t.Context())
	if ID(ctx) != "mine" || one == "" || one == other {
		t.Error("ids")
	}
}

func TestCheckAnswers(t *testing.T) {
	o := AnswerOptions{
		Options: Options{
			Set:     map[string]string{"Date": "x", "Vary": "x", "Etag": `"x"`, "a b": "c", "X-Line": "a\nb", "x-twice": "1", "X-Twice": "2"},
			Default: map[string]string{"X-A": "{nothing}", "Cache-Status": "x"},
			Remove:  []string{"Content-Length", "Server", "Vary", "Etag", "Cache-Status"},
		},
		When: []When{
			{},
			{Status: []string{"200", "2x", "600", "1xx"}, Type: []string{"html", "text/html; charset=utf-8", "Text/HTML", "text/[", "*/*"}, Options: Options{Remove: []string{"Cache-Status"}}},
		},
	}
	want := []string{
		"default[Cache-Status]", "default[X-A]", "remove[0]", "remove[1]", "remove[2]", "set[Date]", "set[Etag]", "set[Vary]", "set[X-Line]", "set[a b]", "set[x-twice]",
		"when[0].status", "when[1].remove[0]", "when[1].status[1]", "when[1].status[2]", "when[1].status[3]", "when[1].type[0]", "when[1].type[1]", "when[1].type[2]", "when[1].type[3]",
	}
	if got := slices.Sorted(maps.Keys(o.Check())); !slices.Equal(got, want) {
		t.Errorf("faults with %q\nwant %q", got, want)
	}
	s := Security{HSTS: time.Millisecond, Frames: "some", CSP: "a\nb", Referrer: " x"}
	if got := len(s.Check()); got != 4 {
		t.Errorf("%v", s.Check())
	}
	for text, ok := range map[string]bool{"on": true, "off": true, "true": true, "yes": false, "": false} {
		if err := new(Security).UnmarshalText([]byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzAnswers: what Check lets through leaves a header that may be sent.
func FuzzAnswers(f *testing.F) {
	f.Add("X-A", "a {host}", "5xx", "text/*", 502, "text/html")
	f.Add("content-type", "{path}", "304", "*/*", 304, "a;b")
	f.Fuzz(func(t *testing.T, name, value, status, kind string, code int, is string) {
		o := AnswerOptions{When: []When{{Status: []string{status}, Type: []string{kind}, Options: Options{Set: map[string]string{name: value}}}}}
		if len(o.Check()) > 0 {
			return
		}
		a := answers(t, &o, nil, false)
		h := http.Header{"Content-Length": {"1"}}
		a.Apply(Of(h), &Moment{Status: code, Type: is, Value: func(string) string { return is }})
		for name, values := range h {
			for _, v := range values {
				if strings.ContainsAny(name+v, "\r\n\x00") || strings.TrimSpace(v) != v && v != "" {
					t.Errorf("%q: %q", name, v)
				}
			}
		}
		if !slices.Equal(h["Content-Length"], []string{"1"}) {
			t.Error("another length")
		}
	})
}

// TestNoGuess: where an application has said that its answer has no type, a rule that
// removes the type does not have net/http guess one.
func TestNoGuess(t *testing.T) {
	h := http.Header{"Content-Type": nil}
	answers(t, &AnswerOptions{Options: Options{Remove: []string{"Content-Type"}}}, nil, false).Apply(Of(h), &Moment{Status: 200})
	if v, there := h["Content-Type"]; !there || v != nil {
		t.Errorf("%q, there: %v", v, there)
	}
}
