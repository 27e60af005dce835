package compare

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answers is a server that answers by path: "STATUS body", and fields as "Name: value".
func answers(t *testing.T, byPath map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := byPath[r.URL.Path]
		if text == "" {
			text = "404 nothing"
		}
		lines := strings.Split(text, "\n")
		w.Header()["Content-Type"] = nil
		for _, field := range lines[1:] {
			name, value, _ := strings.Cut(field, ": ")
			w.Header().Set(name, value)
		}
		status, body, _ := strings.Cut(lines[0], " ")
		w.WriteHeader(map[string]int{"200": 200, "301": 301, "403": 403, "404": 404, "500": 500}[status])
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestRanks: what is open here and closed there comes before all else, and what comes of
// a default of Millrace is told apart.
func TestRanks(t *testing.T) {
	const page = "403 <hr><center>nginx</center>"
	cases := []struct {
		target       string
		theirs, ours string
		rank         Rank
		known        string
	}{
		{"/same", "200 a", "200 a", None, ""},
		{"/secret", "403 no", "200 secret", Opened, ""},
		{"/gone", "404 no", "200 page", Opened, ""},
		{"/closed", "200 a", "403 no", Statuses, ""},
		{"/fault", "500 a", "200 a", Statuses, ""},
		{"/moved", "301 a\nLocation: /x", "301 a\nLocation: /y", Locations, ""},
		{"/text", "200 a", "200 b", Bodies, ""},
		{"/cookie", "200 a\nSet-Cookie: a=b", "200 a", Obeyed, ""},
		{"/field", "200 a\nX-Powered-By: a", "200 a", Fields, ""},
		{"/both", "200 a\nX-Powered-By: a", "200 b", Bodies, ""},
		{"/a.yaml", "200 a\nContent-Type: text/plain", "200 a\nContent-Type: application/yaml", Default, Types},
		{"/a.html", "200 a\nContent-Type: text/plain", "200 a\nContent-Type: text/html", Obeyed, ""},
		{"/dump.sql", "200 a", "404 nothing", Default, Private},
		{"/page", "200 a", "404 nothing", Statuses, ""},
		{"/src.php", "200 <?php", "404 nothing", Default, Private},
		{"/front/dir/", page, "200 front", Default, NoIndex},
		{"/front/kept/", page, "200 listing\nContent-Type: text/html", Opened, ""},
		{"/front/a.php", "404 no", "200 front", Default, NoScript},
		{"/front/a.txt", "404 no", "200 front", Opened, ""},
		{"/folder", "200 a", "301 \nLocation: /folder/", Default, Slash},
		{"/closed2", "403 a", "301 \nLocation: /closed2/", Statuses, ""},
		{"/error", "404 a", "404 a\nX-Frame-Options: DENY", Default, OnErrors},
		{"/refused", page + "\nVary: Accept-Encoding", "403 no\nVary: Accept", None, ""},
		{"/none", "200 \nServer: Caddy", "404 nothing", Default, NoRoute},
	}
	theirs, ours := map[string]string{}, map[string]string{"/front/millrace-no-such-path": "200 front"}
	for _, c := range cases {
		theirs[c.target], ours[c.target] = c.theirs, c.ours
	}
	s := Site{Host: "a.example", Theirs: answers(t, theirs), Ours: answers(t, ours)}
	for _, strict := range []bool{false, true} {
		client := NewClient(strict)
		for _, c := range cases {
			v, _, err := client.Ask(t.Context(), s, c.target)
			if err != nil {
				t.Fatal(err)
			}
			if !strict && (v.Rank != c.rank || v.Known != c.known) {
				t.Errorf("%s: %v %q, want %v %q: %v", c.target, v.Rank, v.Known, c.rank, c.known, v.Differences)
			}
			if strict && (v.Rank == Default || v.Known != "") {
				t.Errorf("%s: strict, and %q is no difference", c.target, v.Known)
			}
		}
		client.Close()
	}
}
