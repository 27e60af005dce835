package static

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// listsForPeople checks what TestListing's folder looks like.
func (h *Handler) listsForPeople(t *testing.T) {
	t.Helper()
	for query, want := range map[string][]string{
		"":                      {`<nav aria-label="Folders above"><a href="./../">Files</a></nav>`, "<h1>d</h1>", `aria-sort="ascending"><a href="?sort=name&amp;order=desc">Name</a> ↑`, `<td class="n">4 B</td>`, `<a href="?sort=size">Size</a></th>`},
		"?sort=size&order=desc": {`aria-sort="descending"><a href="?sort=size">Size</a> ↓`},
		"?sort=%22%3E%3Cb%3E":   {`aria-sort="ascending"><a href="?sort=name&amp;order=desc">Name</a> ↑`},
	} {
		w := ask(h, http.MethodGet, "/d/"+query, "Accept", "text/html")
		for _, want := range want {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: no %s in:\n%s", query, want, w.Body)
			}
		}
	}
	if body := ask(h, http.MethodGet, "/").Body.String(); !strings.Contains(body, "<h1>Files</h1>") || strings.Contains(body, "<nav") {
		t.Errorf("the top folder:\n%s", body)
	}
	if body := ask(h, http.MethodGet, "/d/sub/").Body.String(); !strings.Contains(body, `<a href="./../../">Files</a> / <a href="./../">d</a></nav>`) {
		t.Errorf("the way:\n%s", body)
	}
}

// A folder's name is text, wherever it stands in the page.
func TestListingEscapes(t *testing.T) {
	const evil = `<script>alert(1)<script>"'&`
	p := listPage{path: "/" + evil + "/" + evil + "/", all: true, list: []listed{{Name: evil, Type: "folder"}, {Name: "javascript:alert(1)", Type: "file"}}, order: order{by: "name"}}
	body := string(p.html())
	if strings.Contains(body, "<script") || strings.Contains(body, `href="javascript:`) || strings.Count(body, "&lt;script&gt;alert(1)&lt;script&gt;&#34;&#39;&amp;") != 5 {
		t.Errorf("%s", body)
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 9949: "9.9 kB", 9950: "10 kB", 999_499: "999 kB", 999_500: "1.0 MB", 3_000_000: "3.0 MB",
		12_345_678: "12 MB", 5e9: "5.0 GB", 1<<63 - 1: "9.2 EB",
	} {
		if got := sizeText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestCompareNames(t *testing.T) {
	want := []string{"", "1", "01", "2", "10", "a", "A", "a2b", "a10", "file", "file1.txt", "File2.txt", "file2.txt", "file10.txt", "file10a.txt", "v1.2.9", "v1.2.10", "z", "é"}
	for i, a := range want {
		for j, b := range want {
			if a == "1" && b == "01" || a == "01" && b == "1" || a == "a" && b == "A" || a == "A" && b == "a" {
				continue // equal to people; the bytes decide
			}
			if c := compareNames(a, b); (c < 0) != (i < j) || (c == 0) != (i == j) {
				t.Errorf("%q and %q: %d", a, b, c)
			}
		}
	}
}

// An order is one: otherwise sorting could do anything.
func FuzzCompareNames(f *testing.F) {
	f.Add("file2", "file10", "File02")
	f.Add("", "0", "00a")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		list := []string{a, b, c}
		slices.SortFunc(list, compareNames)
		for i, x := range list {
			for _, y := range list[i:] {
				if compareNames(x, y) > 0 || compareNames(y, x) < 0 || (compareNames(x, y) == 0) != (x == y) {
					t.Fatalf("%q and %q in %q", x, y, list)
				}
			}
		}
	})
}
