package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// unsized is a body whose length its client does not say.
type unsized struct{ io.Reader }

// TestUploadsGoOnWithTheirLength: an application that knows nothing of chunks gets
// what its client has sent, however that was framed; and of a request without a body
// nothing says that it has one.
func TestUploadsGoOnWithTheirLength(t *testing.T) {
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, r.TransferEncoding, r.Header["Content-Length"], r.Header["Trailer"], len(b), r.Trailer)
	})
	dir, socket := overFastCGI(t, scripted(func(params, body string) string {
		length := []string{}
		if at := strings.Index(params, "CONTENT_LENGTH"); at > 0 {
			length = append(length, params[at+len("CONTENT_LENGTH"):][:params[at-1]])
		}
		at := strings.Index(params, "REQUEST_METHOD")
		return fmt.Sprint("\r\n", params[at+len("REQUEST_METHOD"):][:params[at-1]], []string{}, length, []string{}, len(body), map[string]string{})
	}), "a.php")
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /proxy/: {proxy: %[1]s}
    /cache/: {cache: %[1]s}
    /ws/: {websocket: {proxy: %[1]s}}
    /stream/: {proxy: {to: %[1]s, stream: true}}
    /php/: {static: {root: %[2]q}, php: %[3]q}
`, up, dir, socket), func(w *way) {
		for _, job := range []string{"proxy", "cache", "ws", "stream", "php"} {
			for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"} {
				for _, size := range []int{0, 5, 40_000, 3 << 20} {
					if job == "ws" && method != "GET" || method == "HEAD" && size > 0 {
						continue
					}
					if size > 1<<20 && method != "GET" && method != "POST" { // of the other methods those that are small will do
						continue
					}
					if job == "stream" && (size > 0 || len(method) < 6 && method[0] == 'P') { // it goes on as it comes
						continue
					}
					for _, body := range []io.Reader{unsized{strings.NewReader(strings.Repeat("x", size))}, strings.NewReader(strings.Repeat("x", size))} {
						r, err := http.NewRequestWithContext(w.Context(), method, w.base+"/"+job+"/a.php?"+strings.ReplaceAll(w.Name(), "/", ""), body)
						if err != nil {
							w.Fatal(err)
						}
						res, err := w.client.Do(r)
						if err != nil {
							w.Fatal(err)
						}
						b, err := io.ReadAll(res.Body)
						_ = res.Body.Close()
						want := fmt.Sprint(method, []string{}, []string{fmt.Sprint(size)}, []string{}, size, map[string]string{})
						if size == 0 && method[0] != 'P' {
							want = fmt.Sprint(method, []string{}, []string{}, []string{}, size, map[string]string{})
						}
						if got := strings.TrimSpace(string(b)); method != "HEAD" && got != want || err != nil {
							w.Errorf("%s %s, %d bytes in %T: the application got %s, want %s (%v)", job, method, size, body, got, want, err)
						}
					}
				}
			}
		}
		if strings.HasSuffix(w.Name(), "h3") {
			return // its client sends no trailers
		}
		for sent, want := range map[string]string{"": "POST[] [5] [] 5 map[]", "v": "POST[chunked] [] [] 5 map[X-Sum:[v]]"} {
			r, err := http.NewRequestWithContext(w.Context(), "POST", w.base+"/proxy/", unsized{strings.NewReader("hello")})
			if err != nil {
				w.Fatal(err)
			}
			if r.Trailer = (http.Header{"X-Sum": nil}); sent != "" {
				r.Trailer = http.Header{"X-Sum": {sent}}
			}
			res, err := w.client.Do(r)
			if err != nil {
				w.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if string(b) != want {
				w.Errorf("with the trailer %q the application got %s, want %s", sent, b, want)
			}
		}
	})
}
