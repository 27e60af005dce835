package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"millrace/internal/access/signin"
)

// TestSignIn: who is let in by a token, by another server or by a signed address
// gets the answer, again and again; nobody else does, whoever asked before, and
// nobody can say who they are but the one who was asked.
func TestSignIn(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	verify := application(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.Header.Get("Cookie"), "session=alice"):
			w.Header().Set("Remote-User", "alice")
		case r.Header.Get("X-Key") == "k":
			w.Header().Set("Remote-User", "carol")
		case r.Header.Get("X-Forwarded-Uri") == "/asked/open":
		default:
			w.Header().Set("Location", "https://id.example/?back="+r.Header.Get("X-Forwarded-Host"))
			w.WriteHeader(http.StatusFound)
		}
	})
	app := application(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprintf(w, "user=%s token=%s\n", strings.Join(r.Header["Remote-User"], ","), strings.Join(r.Header["X-User"], ","))
	})
	dir := folder(t, map[string]string{"a.txt": "the file"})
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob"}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := (&signin.Signed{Secret: secret}).Sign("/signed/a.txt", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	everyWay(t, `sites:
- routes:
    /asked/: {proxy: '`+app+`', auth: {url: '`+verify+`', copy: [Remote-User]}}
    /cached/: {cache: '`+app+`', auth: {url: '`+verify+`', copy: [Remote-User]}}
    /shared/: {cache: {to: '`+app+`', preset: assets}, auth: {jwt: {secret: `+secret+`, cookie: session}, user_header: X-User}}
    /everybodys/: {cache: {to: '`+app+`', rules: [{share: true}]}, auth: {jwt: {secret: `+secret+`, cookie: session}, user_header: X-User}}
    /token/: {proxy: '`+app+`', auth: {jwt: {secret: `+secret+`}, user_header: X-User}}
    /signed/: {static: {root: '`+dir+`'}, auth: {signed: {secret: `+secret+`}}}
`, func(w *way) {
		says := func(target string, status int, text string, head ...string) {
			t.Helper()
			for range 3 {
				resp, body := w.ask("GET", target, "", head...)
				if resp.StatusCode != status || !strings.Contains(body+resp.Header.Get("Location"), text) {
					t.Fatalf("%s: %s %v: %d %q %q, want %d and %q", w.Name(), target, head, resp.StatusCode, body, resp.Header.Get("Location"), status, text)
				}
			}
		}
		says("/asked/x", 200, "user=alice token=", "Cookie", "session=alice")
		says("/asked/x", 302, "https://id.example/?back=")
		says("/asked/x", 302, "https://id.example/?back=", "Remote-User", "alice")
		says("/asked/open", 200, "user= token=", "Remote-User", "mallory")
		says("/asked/open/%2e%2e/x", 301, "/asked/x") // the one who is asked and the upstream read the same path
		says("/cached/open//x", 301, "/cached/open/x")
		says("/cached/x", 200, "user=carol", "X-Key", "k") // whatever she was let in for, it is hers
		says("/shared/x", 200, "user= token=bob", "Cookie", "session="+token)
		says("/everybodys/x", 200, "user= token=\n", "Cookie", "session="+token) // nobody's name has a say in it
		says("/shared/x", 401, "")
		says("/cached/x", 200, "user=alice", "Cookie", "session=alice")
		says("/cached/x", 302, "https://id.example/")
		says("/token/x", 200, "user= token=bob", "Authorization", "Bearer "+token, "X-User", "mallory")
		says("/token/x", 401, "", "Authorization", "Bearer x")
		says("/token/x", 401, "")
		says(signed, 200, "the file")
		says("/signed/a.txt", 403, "")
		says(signed+"&x=1", 403, "")
	})
}
