package signin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzOneProof: of the cookies that reach the job, no program can take another one for
// the token than the one that was read here.
func FuzzOneProof(f *testing.F) {
	f.Add("session=a", "", "")
	f.Add("session=a; session=b", "x=1, session=c", "")
	f.Add(`a="b; session=c"`, "Session=d;%73ession=e;session[]=f", "Bearer g")
	f.Add("session =a;session", ";;=;, session=b", "bearer\tx")
	f.Add("session=\"a\"; ses.sion=b", "session=a", "Basic x")
	f.Add("session=a", "\u00a0session=b;\u2003session\u3000=c;\xa0session=d", "")
	f.Add("session=a; =session=b", "\x85session=b", "")
	b := &bearer{cookie: "session"}
	space := func(c rune) bool { return unicode.IsSpace(c) || c == '"' || c == utf8.RuneError } // as Python has it, of UTF-8 and of Latin 1
	f.Fuzz(func(t *testing.T, one, two, authorization string) {
		r, err := http.NewRequest(http.MethodGet, "http://a.example/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Cookie"] = []string{one, two}
		if authorization != "" {
			r.Header["Authorization"] = []string{authorization}
		}
		token, proof, no := b.find(r)
		if no != nil {
			return
		}
		if proof.Cookie != "" && len(r.Header["Authorization"]) > 0 && !otherScheme(authorization) {
			t.Errorf("%q reaches the job beside the cookie", authorization)
		}
		for _, line := range r.Header["Cookie"] {
			for _, separators := range []string{";", ";,"} {
				for _, c := range strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
					name, value, _ := strings.Cut(strings.TrimLeft(c, "= \t"), "=")
					name, _, _ = strings.Cut(strings.TrimFunc(name, space), "[")
					if plain, err := url.QueryUnescape(name); err == nil {
						name = plain
					}
					if !strings.EqualFold(strings.TrimFunc(name, space), "session") {
						continue
					}
					if value, _, _ = strings.Cut(value, ","); proof.Cookie == "" || strings.Trim(value, " \t\"") != strings.Trim(token, " ") && !strings.Contains(token, ",") {
						t.Errorf("with %q and %q, %q was read, and %q reaches the job", one, two, token, c)
					}
				}
			}
		}
	})
}
