package headers

// This file answers for a job that knows nothing of cross-origin requests: it
// decides by the Origin what a browser may read (Fetch Standard, 3.2). The
// server has a Policy around every job of a route that says so; a cache has one
// inside, so that what it stores is for all origins.
//
// A cache does three things where a Policy is on:
//
//   - It answers preflights by [Policy.Preflight], before anything else.
//   - It takes Origin out of the request to the upstream, whose answer then
//     cannot depend on it, and leaves Origin out of the key: one stored object
//     serves all origins.
//   - It calls [Policy.Apply] on every answer's header on its way out, also on
//     errors and on 304, to a map that is not the stored one. Apply also says by
//     Vary what caches behind this one need to know; that of the stored object
//     stays as it was.
//
// [Policy.Class] is for those who have to file answers with Apply's fields in
// them, such as the fast lane's table: see there.
//
// CORS protects what browsers let pages read, and nothing else: a request from
// an origin that is not allowed is answered as any other, only without the
// fields that would let a page see it. Whoever must not have the answer at all
// has to be kept out by authorization.

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wire/field"
)

// CORSOptions of CORS. Empty Origins: off, and the upstream's own headers pass.
type CORSOptions struct {
	// Origins that may read: https://blog.example, https://*.example.org, or * for any.
	// https://*.example.org is every host below example.org, not itself. null
	// is what sandboxed frames and local files send, of any site.
	Origins []string `yaml:"origins"`
	// Methods beyond GET, HEAD and POST; * for any.
	Methods []string `yaml:"methods"`
	// Headers that requests may carry; * for any.
	Headers []string `yaml:"headers"`
	// Expose lists response headers that scripts may read; * for all.
	Expose []string `yaml:"expose"`
	// Credentials lets cookies come along; not with Origins *.
	Credentials bool `yaml:"credentials"`
	// MaxAge in seconds of a preflight's answer. Default 86400, which is as long
	// as browsers keep it at most; -1 makes them ask every time.
	MaxAge int `yaml:"max_age"`
}

const defaultMaxAge = 86400

// wildcard stands for all origins, methods or headers.
const wildcard = "*"

// The names of the fields, canonical.
const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	allowMethods     = "Access-Control-Allow-Methods"
	allowHeaders     = "Access-Control-Allow-Headers"
	exposeHeaders    = "Access-Control-Expose-Headers"
	maxAge           = "Access-Control-Max-Age"
	requestMethod    = "Access-Control-Request-Method"
	requestHeaders   = "Access-Control-Request-Headers"
	vary             = "Vary"
)

// upstreams are the fields of an upstream that Apply takes away.
var upstreams = []string{
	allowOrigin, allowCredentials, allowMethods, allowHeaders, exposeHeaders, maxAge,
	"Access-Control-Allow-Private-Network", "Access-Control-Allow-Local-Network",
}

// CORS decides. It is immutable. A nil *Policy is off.
type CORS struct {
	exact    map[string]int // normal origin → index of its rule
	below    []below
	classes  []string // by rule
	constant []string // Access-Control-Allow-Origin when it is the same for everyone; nil: the request's

	credentials bool
	methods     string // "*": what is asked for
	headers     string // likewise
	expose      []string
	age         []string
}

// NewCORS prepares o; nil without origins. Its error is one of those that Check finds.
func NewCORS(o CORSOptions) (*CORS, error) {
	faults := o.Check()
	for _, name := range []string{"origins", "credentials", "methods", "headers", "expose", "max_age"} {
		if err := faults[name]; err != nil {
			return nil, err
		}
	}
	if len(o.Origins) == 0 {
		return nil, nil
	}
	p := &CORS{exact: map[string]int{}, credentials: o.Credentials}
	for i, text := range o.Origins {
		p.classes = append(p.classes, strconv.Itoa(i))
		if text == wildcard {
			p.constant = []string{wildcard}
			continue
		}
		origin, err := parseOrigin(strings.Replace(text, "://*.", "://", 1))
		if err != nil {
			return nil, err
		}
		if strings.Contains(text, "://*.") {
			p.below = append(p.below, below{origin, i})
		} else if _, known := p.exact[origin.String()]; !known {
			p.exact[origin.String()] = i
		}
		if len(p.exact) == 1 && len(p.below) == 0 {
			p.constant = []string{origin.String()}
		} else {
			p.constant = nil
		}
	}
	p.methods = splitList([]string{http.MethodGet, http.MethodHead, http.MethodPost}, o.Methods)
	p.headers = splitList(nil, o.Headers)
	if len(o.Expose) > 0 {
		p.expose = []string{splitList(nil, o.Expose)}
	}
	seconds := cmp.Or(o.MaxAge, defaultMaxAge)
	p.age = []string{strconv.Itoa(max(seconds, 0))}
	return p, nil
}

// splitList joins names to a field's value; "*" if that is one of them.
func splitList(names, more []string) string {
	if slices.Contains(more, wildcard) {
		return wildcard
	}
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// CORSDenied is the class of requests from origins that may not read.
const CORSDenied = "denied"

// Class is the request's class: all requests of one class get the same fields
// from Apply, but for the name of an origin that is echoed. It is "" when the
// origin makes no difference: for all requests where Varies is false, else for
// those without an Origin. Otherwise it is the number of the rule that allows
// the origin, or Denied: a small set, whatever clients send.
//
// What Apply has made for one host of https://*.example.org is not right for
// another, though both are of one class.
func (p *CORS) Class(r *http.Request) string {
	if !p.Varies() {
		return ""
	}
	origin, there := requestOrigin(r)
	if !there {
		return ""
	}
	if rule := p.rule(origin); rule >= 0 {
		return p.classes[rule]
	}
	return CORSDenied
}

// Varies reports whether Apply looks at Origin.
func (p *CORS) Varies() bool { return p != nil && p.constant == nil }

// Allows reports whether scripts of an origin may read an answer. Where nothing says what
// the origin is, they may.
func (p *CORS) Allows(o Origin) bool { return !o.There || p.rule(o.Text) >= 0 }

// IsPreflight reports whether r is what [Policy.Preflight] answers.
func IsPreflight(r *http.Request) bool {
	if r.Method != http.MethodOptions {
		return false
	}
	_, there := requestOrigin(r)
	return there && r.Header.Get(requestMethod) != ""
}

// Origin is the field Origin of a request. Several are none that could be allowed.
type Origin struct {
	Text  string
	There bool
}

// OriginOf is that of a request with these fields.
func OriginOf(l *field.Lines) (o Origin) {
	for i := range *l {
		if one := &(*l)[i]; one.Name == "Origin" {
			if o.There {
				return Origin{There: true}
			}
			o = Origin{one.Value, true}
		}
	}
	if o.Text == "" {
		o.There = false
	}
	return o
}

// requestOrigin is OriginOf for a request of net/http.
func requestOrigin(r *http.Request) (origin string, there bool) {
	values := r.Header["Origin"]
	switch {
	case len(values) == 0, len(values) == 1 && values[0] == "":
		return "", false
	case len(values) > 1:
		return "", true
	}
	return values[0], true
}

// rule is the index of the first rule that allows an origin, or -1.
func (p *CORS) rule(text string) int {
	if p.constant != nil && p.constant[0] == wildcard {
		return 0
	}
	if rule, ok := p.exact[text]; ok { // browsers send the normal form
		return rule
	}
	origin, err := parseOrigin(text)
	if err != nil {
		return -1
	}
	if rule, ok := p.exact[origin.String()]; ok {
		return rule
	}
	for _, b := range p.below {
		if b.has(origin) {
			return b.rule
		}
	}
	return -1
}

// Apply sets the answer's fields for r: Access-Control-Allow-Origin and
// -Credentials, -Expose-Headers, and Vary: Origin where the answer depends on it.
// The upstream's own Access-Control fields in h are replaced. r must still have
// its Origin. h must be this answer's own map; the slices in it are left alone,
// and those put into it must be.
func (p *CORS) Apply(h http.Header, r *http.Request) {
	if p == nil {
		return
	}
	origin, there := requestOrigin(r)
	p.apply(field.Map(h), origin, there)
}

// ApplyTo is Apply for a header in any form.
func (p *CORS) ApplyTo(h field.Fields, o Origin) {
	if p != nil {
		p.apply(h, o.Text, o.There)
	}
}

func (p *CORS) apply(h field.Fields, origin string, there bool) {
	for _, name := range upstreams {
		h.Delete(name)
	}
	if p.constant != nil {
		// The same answer for everyone, with or without an Origin, and so no
		// Vary: the browser compares (Fetch Standard, 3.2.5).
		h.Set(allowOrigin, p.constant[0])
	} else {
		if !h.Lists(vary, wildcard) && !h.Lists(vary, "Origin") {
			h.Add(vary, "Origin")
		}
		if !there || p.rule(origin) < 0 {
			return
		}
		h.Set(allowOrigin, origin)
	}
	if p.credentials {
		h.Set(allowCredentials, "true")
	}
	if p.expose != nil {
		h.Set(exposeHeaders, p.expose[0])
	}
}
