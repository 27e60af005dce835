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
	"millrace/internal/wire/urlpath"
)

// Proof says by what a [Gate] has let a request in, where that is not in Authorization and
// so a cache cannot see it. The cache treats such a request as one with that field (RFC
// 9111, 3.5). The zero Proof means that there is nothing for the cache to know: it was
// Authorization, a client certificate, or a signature that the job does not get.
type Proof struct {
	// Cookie is the name of the cookie that held the token.
	Cookie string
	// Asked: another server has decided, by anything in the request.
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

// admissionOf returns what gates have added to a context.
func admissionOf(ctx context.Context) admission {
	if a, _ := ctx.Value(admissionKey{}).(*admission); a != nil {
		return *a
	}
	return admission{}
}

// VerifiedFields returns the fields that a Gate has set in a request: they identify the
// client and do not come from it. Nil: none.
func VerifiedFields(ctx context.Context) http.Header { return admissionOf(ctx).fields }

// ProofOf returns by what a Gate has let the request of a context in.
func ProofOf(ctx context.Context) Proof { return admissionOf(ctx).proof }

// Presumed returns what a gate asks for, in words, where the request is an example made by
// [Options.Presume]; "" for a client's request.
func Presumed(ctx context.Context) string { return admissionOf(ctx).presume }

// Presume returns r as a Gate with these options would give it to its job after letting it
// in: for `millrace explain`.
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

// forJob returns r as the job gets it, or the next gate where a route tries another route.
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

// and combines the proofs of two gates.
func (p Proof) and(q Proof) Proof {
	switch {
	case p == Proof{}:
		return q
	case q == Proof{}, p == q:
		return p
	}
	return Proof{Asked: true} // for a cache: for more than it can tell apart
}

// without returns a query without these parameters. Of each, the last one is removed.
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

// cookiesIn returns the cookies of a request: the texts between semicolons.
func cookiesIn(h http.Header) (cookies []string) {
	for _, line := range h["Cookie"] {
		cookies = slices.AppendSeq(cookies, strings.SplitSeq(line, ";"))
	}
	return cookies
}

// namesIn returns the names that programs may read in a cookie, as spelled has them: some
// programs also end a cookie at a comma (RFC 2109).
func namesIn(cookie string) (names []string) {
	for part := range strings.SplitSeq(cookie, ",") {
		name, _, _ := strings.Cut(strings.TrimLeft(part, "= \t"), "=")
		if name = spelled(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// spelled maps all names of cookies and parameters that some program takes for the same to
// one spelling: PHP decodes them, writes _ for what its variables may not contain, and
// ends them at a bracket; Python trims all of Unicode's spaces; others ignore case.
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

// cookieNamed returns the cookies of a request that some program may take for the one with
// this name, unchanged.
func cookieNamed(h http.Header, name string) (found []string) {
	for _, c := range cookiesIn(h) {
		if slices.Contains(namesIn(c), spelled(name)) {
			found = append(found, strings.Trim(c, " \t"))
		}
	}
	return found
}

// keepCookies removes the cookies for which keep is false.
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

// oneOfEach keeps the first cookie of each name: otherwise the server that decides and the
// job could read different ones (RFC 6265, 4.2.2 does not say which counts).
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
	_, came, _ := strings.Cut(urlpath.AsSent(r), "?")
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

// otherScheme reports whether Authorization has credentials that no program takes for a
// token, such as Basic: the job checks them itself.
func otherScheme(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	switch strings.ToLower(scheme) {
	case "basic", "digest", "negotiate", "ntlm":
		return field.Token(scheme)
	}
	return false
}
