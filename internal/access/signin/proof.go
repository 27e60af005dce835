package signin

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"millrace/internal/access/token"
	"millrace/internal/wire/field"
)

// Proof is what a [Gate] has let a request in for, where a cache cannot see that by
// its Authorization. What others may get of the answer is decided as if the request
// had that field (RFC 9111, 3.5). The zero Proof is no such thing: Authorization
// itself, a client certificate, or a signature that the job does not get.
type Proof struct {
	// Cookie is the name of the cookie that held the token.
	Cookie string
	// Asked: another server has been asked, and may have gone by anything.
	Asked bool
}

// admission is what a gate adds to a request's context.
type admission struct {
	by      []*Gate
	fields  http.Header
	proof   Proof
	presume string // what a gate asks for, where the request only stands for one that has it
}

// admissionKey is the key of a context's value.
type admissionKey struct{}

// admissionOf is what gates have added to a context; the zero one for none.
func admissionOf(ctx context.Context) admission {
	if a, _ := ctx.Value(admissionKey{}).(*admission); a != nil {
		return *a
	}
	return admission{}
}

// VerifiedFields are the fields of a request that a Gate has set: they say who the
// client is, and the client has had no say in it. Nil for none.
func VerifiedFields(ctx context.Context) http.Header { return admissionOf(ctx).fields }

// ProofOf is what a Gate has let the request of a context in for.
func ProofOf(ctx context.Context) Proof { return admissionOf(ctx).proof }

// Presumed is what a gate asks for, in words, where a request stands for all that it
// lets in; see [Options.Presume]. "" for a request that has come.
func Presumed(ctx context.Context) string { return admissionOf(ctx).presume }

// Presume is r as a Gate with these options would give it to its job, if it let it in:
// for who asks what would become of such requests.
func (o Options) Presume(r *http.Request) *http.Request {
	who := visitor{}
	switch {
	case o.Off:
		return r
	case o.URL != "":
		who.proof.Asked = true
	case o.JWT != nil && o.JWT.Cookie != "" && len(r.Header["Authorization"]) == 0:
		if who.proof.Cookie = o.JWT.Cookie; token.InCookie(r, o.JWT.Cookie) == "" {
			r = r.Clone(r.Context())
			r.Header.Add("Cookie", o.JWT.Cookie+"=what-is-asked-for")
		}
	case o.Signed != nil:
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			if name, _, _ := strings.Cut(pair, "="); name == signatureKey || name == expiresKey {
				who.spent = append(who.spent, pair)
			}
		}
	case len(r.Header["Authorization"]) == 0:
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "what is asked for")
	}
	r = who.forJob(r, nil)
	return r.WithContext(context.WithValue(r.Context(), admissionKey{}, &admission{proof: who.proof, presume: o.Kind()}))
}

// forJob is r as the job gets it, or the next gate: a route may try another one, which
// has a gate of its own.
func (who *visitor) forJob(r *http.Request, g *Gate) *http.Request {
	if len(who.fields) > 0 || who.proof != (Proof{}) || len(who.spent) > 0 {
		a := admissionOf(r.Context())
		a.by = append(slices.Clip(a.by), g)
		a.proof = a.proof.and(who.proof)
		if len(a.fields) > 0 {
			fields := a.fields.Clone()
			maps.Copy(fields, who.fields)
			a.fields = fields
		} else {
			a.fields = who.fields
		}
		r = r.WithContext(context.WithValue(r.Context(), admissionKey{}, &a))
	}
	if len(who.spent) == 0 {
		return r
	}
	c, u := *r, *r.URL
	u.RawQuery = without(u.RawQuery, who.spent)
	c.URL = &u
	if path, query, ok := strings.Cut(c.RequestURI, "?"); ok {
		if query = without(query, who.spent); query != "" {
			path += "?" + query
		}
		c.RequestURI = path
	}
	return &c
}

// and is what two gates have let a request in for.
func (p Proof) and(q Proof) Proof {
	switch {
	case p == Proof{}:
		return q
	case q == Proof{}, p == q:
		return p
	}
	return Proof{Asked: true} // for a cache: for more than it can tell apart
}

// without is a query without these parameters, each left out once and from the end.
func without(query string, spent []string) string {
	pairs := strings.Split(query, "&")
	for _, s := range spent {
		for i, pair := range slices.Backward(pairs) {
			if pair == s {
				pairs = slices.Delete(pairs, i, i+1)
				break
			}
		}
	}
	return strings.Join(pairs, "&")
}

// cookiesIn are the cookies of a request, however a program behind the gate may read
// them: each is what stands between two semicolons.
func cookiesIn(h http.Header) (cookies []string) {
	for _, line := range h["Cookie"] {
		cookies = slices.AppendSeq(cookies, strings.SplitSeq(line, ";"))
	}
	return cookies
}

// namesIn are the names that a cookie may be taken for, in one spelling: some
// programs end a cookie at a comma as well (RFC 2109).
func namesIn(cookie string) (names []string) {
	for part := range strings.SplitSeq(cookie, ",") {
		name, _, _ := strings.Cut(strings.TrimLeft(part, "= \t"), "=")
		if name = spelled(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// spelled is the one spelling of the names of cookies and parameters that some
// program takes for the same: PHP decodes them, writes _ for what its variables may
// not hold, and ends them at a bracket; Python leaves out all that Unicode has for a
// space, at both ends; others do not mind letter case.
func spelled(name string) string {
	name, _, _ = strings.Cut(name, "[")
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, name)
	return strings.Map(func(c rune) rune {
		if c == '.' || c == ' ' || c == '+' {
			return '_'
		}
		return c
	}, strings.ToLower(strings.Trim(name, ` "`)))
}

// cookieNamed are the cookies of a request that some program may take for the one of
// a name, as they stand there.
func cookieNamed(h http.Header, name string) (found []string) {
	for _, c := range cookiesIn(h) {
		if slices.Contains(namesIn(c), spelled(name)) {
			found = append(found, strings.Trim(c, " \t"))
		}
	}
	return found
}

// keepCookies leaves out the cookies that keep is false for.
func keepCookies(h http.Header, keep func(cookie string) bool) {
	all := cookiesIn(h)
	kept := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return !keep(c) })
	switch {
	case len(kept) == len(all): // byte for byte as it came
	case len(kept) == 0:
		delete(h, "Cookie")
	default:
		h["Cookie"] = []string{strings.Trim(strings.Join(kept, ";"), " \t")}
	}
}

// oneOfEach leaves the first cookie of each name: who is asked about a request and
// the job behind might go by different ones (RFC 6265, 4.2.2 says nothing of which
// counts).
func oneOfEach(h http.Header) {
	var seen []string
	keepCookies(h, func(c string) bool {
		names := namesIn(c)
		if slices.ContainsFunc(names, func(n string) bool { return slices.Contains(seen, n) }) {
			return false
		}
		seen = append(seen, names...)
		return true
	})
}

// asksBy reports whether the query of a request has a parameter of one of these
// names.
func asksBy(r *http.Request, names ...string) bool {
	_, came, _ := strings.Cut(target(r), "?")
	for _, query := range []string{came, r.URL.RawQuery} { // rules may have given it another
		for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
			name, _, _ := strings.Cut(pair, "=")
			if slices.Contains(names, spelled(name)) {
				return true
			}
		}
	}
	return false
}

// otherScheme reports whether Authorization holds credentials that no program takes
// for a token: the job has to check them itself.
func otherScheme(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	switch strings.ToLower(scheme) {
	case "basic", "digest", "negotiate", "ntlm":
		return field.Token(scheme)
	}
	return false
}
