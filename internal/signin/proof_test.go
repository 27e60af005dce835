package signin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzOneProof: of the cookies that reach the job, no program can take another one for
// the token than the one that was read here.
func FuzzOneProof(f *testing.F) {
	f.Add("session=a", "", "")
	f.Add("session=a; session=b", "x=1, session=c", "")
	f.Add(`a="b; session=c"`, "Session=d;%73ession=e;session[]=f", "Bearer g")
	f.Add("session =a;session", ";;=;, session=b", "bearer\tx")
	f.Add("session=\"a\"; ses.sion=b", "session=a", "Basic x")
	b := &bearer{cookie: "session"}
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
					name, value, _ := strings.Cut(c, "=")
					name, _, _ = strings.Cut(strings.Trim(name, " \t\""), "[")
					if plain, err := url.QueryUnescape(name); err == nil {
						name = plain
					}
					if !strings.EqualFold(strings.Trim(name, " \t\""), "session") {
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
