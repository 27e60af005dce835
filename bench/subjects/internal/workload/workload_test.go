package workload

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/bench/subjects/internal/testsite"
)

// TestRequestsAreRequests: the reader of the standard library agrees on each.
func TestRequestsAreRequests(t *testing.T) {
	for _, w := range slices.Concat(All(), Pictures()) {
		for _, request := range w.Requests("127.0.0.1:8080") {
			r := bufio.NewReader(strings.NewReader(request.Head))
			got, err := http.ReadRequest(r)
			if err != nil {
				t.Errorf("%s, %s: %v", w.Name, request.File.Path, err)
				continue
			}
			if rest, _ := io.ReadAll(r); len(rest) != 0 {
				t.Errorf("%s, %s: %q is left over", w.Name, request.File.Path, rest)
			}
			if got.RequestURI != request.File.Path || got.Host != "127.0.0.1:8080" || got.ContentLength != 0 {
				t.Errorf("%s: got %s of %s, want %s", w.Name, got.RequestURI, got.Host, request.File.Path)
			}
			if accept := got.Header.Get("Accept"); !w.Browser && accept != w.Accept {
				t.Errorf("%s accepts %q", w.Name, accept)
			}
			if hasCookie := got.Header.Get("Cookie") != ""; hasCookie != w.Browser {
				t.Errorf("%s, %s: cookie: %v", w.Name, request.File.Path, hasCookie)
			}
		}
	}
}

func TestBrowserAsksByKind(t *testing.T) {
	want := map[testsite.Kind]string{
		testsite.Navigation: "document", testsite.Script: "script", testsite.Image: "image", testsite.Fetch: "empty",
	}
	for _, request := range All()[2].Requests("h") {
		got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request.Head)))
		if err != nil {
			t.Fatal(err)
		}
		if dest := got.Header.Get("Sec-Fetch-Dest"); dest != want[request.File.Kind] {
			t.Errorf("%s: Sec-Fetch-Dest is %q, want %q", request.File.Path, dest, want[request.File.Kind])
		}
		for _, name := range []string{"Accept", "Accept-Encoding", "Accept-Language", "Referer", "User-Agent", "Sec-Ch-Ua", "Sec-Fetch-Mode"} {
			if len(got.Header.Values(name)) != 1 {
				t.Errorf("%s: %d header lines %s, want one", request.File.Path, len(got.Header.Values(name)), name)
			}
		}
		if n := len(got.Header.Get("Cookie")); n < 180 || n > 240 {
			t.Errorf("the cookie has %d bytes, want about 200", n)
		}
	}
}
