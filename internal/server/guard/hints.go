package guard

import (
	"fmt"
	"net/http"
	"strings"

	"millrace/internal/wire/field"
)

// EarlyHints sends links ahead of what h answers, with status 103 (RFC 8297), so
// that a browser loads them while h is at work: where one goes to a page, over
// HTTP/2 and HTTP/3. Over HTTP/1.1 no browser reads them, and some clients take them
// for the answer (RFC 8297, 3).
func EarlyHints(links []string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mode := r.Header["Sec-Fetch-Mode"]; r.ProtoMajor >= 2 && r.Method == http.MethodGet && len(mode) == 1 && mode[0] == "navigate" {
			header := w.Header()
			before, had := header["Link"]
			header["Link"] = links
			w.WriteHeader(http.StatusEarlyHints)
			if delete(header, "Link"); had {
				header["Link"] = before
			}
		}
		h.ServeHTTP(w, r)
	})
}

// maxHints bounds the links of one route: they are sent with every page.
const maxHints = 20

// CheckHints says what is wrong with links.
func CheckHints(links []string) error {
	if len(links) > maxHints {
		return fmt.Errorf("%d links are too many: at most %d", len(links), maxHints)
	}
	for _, link := range links {
		target, rest, ok := strings.Cut(link, ">")
		if !ok || !strings.HasPrefix(target, "<") || len(target) < 2 || !strings.Contains(rest, "rel=") || !field.Value(link) || strings.ContainsAny(link, "{}") {
			return fmt.Errorf("%q is not a link: write one like </app.css>; rel=preload; as=style", link)
		}
	}
	return nil
}
