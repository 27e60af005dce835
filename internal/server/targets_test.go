package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/lane"
)

// TestTargetsOfOtherForms: a target that is no path reaches no job as one, and the
// absolute form is the path behind its host, which is "/" where there is none (RFC 9112,
// 3.2; RFC 9113, 8.3.1).
func TestTargetsOfOtherForms(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := start(t, plan{lane: lane.Options{Off: off}, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path+" "+r.URL.RawQuery)
		})})
		for line, want := range map[string]string{
			"GET http://a.example HTTP/1.1":             "200 / ",
			"GET http://a.example?x=1 HTTP/1.1":         "200 / x=1",
			"GET http://a.example/a/b?x HTTP/1.1":       "200 /a/b x",
			"GET http://a.example/a/../b HTTP/1.1":      "301",
			"GET http://a.example/%2e%2e/b HTTP/1.1":    "301",
			"GET http://a.example//b HTTP/1.1":          "301",
			"GET * HTTP/1.1":                            "400",
			"GET page HTTP/1.1":                         "400",
			"GET \\page HTTP/1.1":                       "400",
			"GET ?x HTTP/1.1":                           "400",
			"GET http:page HTTP/1.1":                    "400",
			"GET mailto:page HTTP/1.1":                  "400",
			"GET http:///page HTTP/1.1":                 "400",
			"OPTIONS * HTTP/1.1":                        "200",
			"GET ftp://a.example/page HTTP/1.1":         "400",
			"GET HTTP://A.EXAMPLE/page HTTP/1.1":        "200 /page ",
			"GET /* HTTP/1.1":                           "200 /* ",
			"GET http://a.example/?a=http://x HTTP/1.1": "200 / a=http://x",
		} {
			got := rawTarget(t, r.tcp, line)
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", line, got, want)
			}
		}
		for i, path := range []string{"page", "http://a.example/page", "https://a.example/page", "*", "?x", "//", "a:page", "\\page"} {
			h := r.http2(t)
			status, body := h.get(t, uint32(2*i+1), path)
			if status == "200" || strings.HasPrefix(body, "/") {
				t.Errorf(":path %s: %s %q", path, status, body)
			}
		}
	}
}

// rawTarget is the status, and the body of a job's answer, to a request line.
func rawTarget(t *testing.T, addr, line string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(nc, line+"\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	method, _, _ := strings.Cut(line, " ")
	res, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: method})
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	status, _, _ := strings.Cut(res.Status, " ")
	return status + " " + string(body)
}
