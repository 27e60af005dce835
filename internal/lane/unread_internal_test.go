package lane

import (
	"strings"
	"testing"
)

// TestUnread: only what net/http says of requests that it cannot read becomes a page; the
// answers of handlers stay as they are, however much they look like it.
func TestUnread(t *testing.T) {
	for answer, page := range map[string]bool{
		"HTTP/1.1 400 Bad Request" + unreadFields + "400 Bad Request":                                                             true,
		"HTTP/1.1 400 Bad Request: missing required Host header" + unreadFields + "400 Bad Request: missing required Host header": true,
		"HTTP/1.1 501 Not Implemented" + unreadFields + "Unsupported transfer encoding":                                           true,
		"HTTP/1.1 200 OK" + unreadFields + "200 OK":                                                                               false,
		"HTTP/1.1 400 Bad Request" + unreadFields + "a: b":                                                                        false,
		"HTTP/1.1 400 Bad Request\r\nDate: now" + unreadFields + "400 Bad Request":                                                false,
		"HTTP/1.1 400 Bad Request\r\n\r\n400 Bad Request":                                                                         false,
		"HTTP/1.1 ":                           false,
		"HTTP/1.1 4" + unreadFields + "4":     false,
		"HTTP/1.1 4xx" + unreadFields + "4xx": false,
	} {
		if got := string(unread([]byte(answer))); (got != "") != page || page && !strings.HasPrefix(got, answer[:len("HTTP/1.1 400")]) {
			t.Errorf("%q became %q", answer, got)
		}
	}
}
