package site

import (
	"net/http"
	"testing"
)

func route(pattern string) *Route { return &Route{Pattern: pattern, Handler: http.NotFoundHandler()} }

func TestRouteLongestMatchWins(t *testing.T) {
	s := New(1, []*Route{route("/"), route("/private/"), route("/private/public/"), route("/exact"), route("/exact/")})
	for path, want := range map[string]string{
		"/":                   "/",
		"/a":                  "/",
		"/private":            "/private/", // a rule for a folder holds for its name, too
		"/private/":           "/private/",
		"/private/x":          "/private/",
		"/privateer":          "/",
		"/private/public/x":   "/private/public/",
		"/exact":              "/exact",
		"/exact/":             "/exact/",
		"/private/public/../": "/private/public/",
	} {
		if got := s.Route(path); got == nil || got.Pattern != want {
			t.Errorf("Route(%q) = %v, want %s", path, got, want)
		}
	}
	if got := New(1, []*Route{route("/a/")}).Route("/b"); got != nil {
		t.Errorf("Route of an unknown path = %s, want none", got.Pattern)
	}
}

func TestSiteByHost(t *testing.T) {
	a, w, f := New(1, nil), New(2, nil), New(3, nil)
	table := NewTable()
	table.Add(a, []string{"example.org"})
	table.Add(w, []string{"*.example.org"})
	b, c := New(4, nil), New(5, nil)
	table.Add(b, []string{"app.*"})
	table.Add(c, []string{"app.example.*"})
	for host, want := range map[string]*Site{
		"example.org": a, "EXAMPLE.org:8080": a, "example.org.": a,
		"www.example.org": w, "a.b.example.org:1": w,
		"example.com": nil, "": nil, "xexample.org": nil,
		"app.example.org": w, "app.example.com": c, "App.example.com.:80": c, "app.test": b, "app.a.b": b, "app": nil, "app.": nil, "my.app.test": nil,
	} {
		if got := table.Site(host); got != want {
			t.Errorf("Site(%q) = %v, want %v", host, got, want)
		}
	}
	table.Add(f, nil)
	for _, host := range []string{"example.com", "[::1]:8080", "", "127.0.0.1:1"} {
		if got := table.Site(host); got != f {
			t.Errorf("Site(%q) = %v, want the fallback", host, got)
		}
		if id := table.ID([]byte(host)); id != 3 {
			t.Errorf("ID(%q) = %d, want 3", host, id)
		}
	}
	if !table.Has(2) || table.Has(6) {
		t.Error("Has does not know the table's sites")
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	table := NewTable()
	table.Add(New(1, nil), []string{"example.org"})
	table.Add(New(2, nil), []string{"*.example.net"})
	host := []byte("www.example.net:8080")
	if n := testing.AllocsPerRun(100, func() { table.ID(host) }); n != 0 {
		t.Errorf("ID allocates %v times", n)
	}
}

func TestTableIdlesAfterItsLastRequest(t *testing.T) {
	table := NewTable()
	if !table.Enter() {
		t.Fatal("a new table cannot be entered")
	}
	table.Retire()
	select {
	case <-table.Idle():
		t.Fatal("idle while a request is inside")
	default:
	}
	table.Leave()
	<-table.Idle()
	if table.Enter() {
		t.Fatal("a table that has ended was entered")
	}
}
