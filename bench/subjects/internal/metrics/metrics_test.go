package metrics

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

const page = `# HELP millrace_requests_total Answered requests.
# TYPE millrace_requests_total counter
millrace_requests_total{code="200",job="static",lane="fast"} 1.5e+06
millrace_requests_total{code="304",job="static",lane="fast"} 10
millrace_requests_total{code="200",job="static",lane="slow"} 7
millrace_requests_total{code="404",job="static",lane="slow"} 2
millrace_request_seconds_bucket{lane="fast",le="+Inf"} 9
millrace_log_dropped_total 3
millrace_sent_bytes_total{path="sendfile"} 100
millrace_sent_bytes_total{path="writev"} 20
millrace_sent_bytes_total{path="copied"} 5
go_goroutines 12
`

func TestParse(t *testing.T) {
	got, err := Parse(page)
	want := Counts{Fast: 1500010, Slow: 9, Failed: 2, LogDropped: 3, Sendfile: 100, Writev: 20, Copied: 5}
	if err != nil || got != want {
		t.Errorf("Parse = %+v, %v; want %+v", got, err, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, page := range map[string]string{
		"a page without lanes":  "go_goroutines 12\n",
		"labels without an end": `millrace_requests_total{lane="fast" 7`,
		"no value":              `millrace_requests_total{lane="fast"}`,
		"not a number":          `millrace_requests_total{lane="fast"} x`,
		"less than nothing":     `millrace_requests_total{lane="fast"} -1`,
		"NaN":                   `millrace_requests_total{lane="fast"} NaN`,
	} {
		if got, err := Parse(page); err == nil {
			t.Errorf("%s: Parse = %+v, want an error", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(page)
	f.Add(`millrace_x{a="b",c="d"} 1`)
	f.Add(`millrace_{`)
	f.Fuzz(func(t *testing.T, page string) {
		Parse(page) // must end and not panic
	})
}

func TestScrape(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "a.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(page))
	}))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	got, err := Scrape(context.Background(), socket)
	if err != nil || got.Slow != 9 {
		t.Errorf("Scrape = %+v, %v", got, err)
	}
	if _, err := Scrape(context.Background(), socket+"x"); err == nil {
		t.Error("Scrape of no socket has no error")
	}
}

func TestSub(t *testing.T) {
	after, before := Counts{9, 8, 7, 6, 5, 4, 3}, Counts{1, 2, 3, 4, 5, 3, 1}
	if got, want := after.Sub(before), (Counts{8, 6, 4, 2, 0, 1, 2}); got != want {
		t.Errorf("Sub = %+v, want %+v", got, want)
	}
}
