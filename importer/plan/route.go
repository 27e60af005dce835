package plan

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Route is what answers for the paths of a key: an action, or a job with what belongs to it.
type Route struct {
	Action
	Static Static   `yaml:"static"`
	PHP    PHP      `yaml:"php"` // beside Static
	Proxy  Proxy    `yaml:"proxy"`
	Cache  Proxy    `yaml:"cache"`
	Try    []string `yaml:"try"`
	Shared
	Intercept bool   `yaml:"intercept_errors"`
	Body      string `yaml:"body_bytes,bare"`
	NoLog     bool   `yaml:"no_log"`
}

// Shared are the keys that a route has of its own, or from its site.
type Shared struct {
	Access  Access `yaml:"access"`
	Limit   Limit  `yaml:"rate_limit"`
	Auth    Auth   `yaml:"auth"`
	Errors  Pages  `yaml:"errors"`
	Headers Fields `yaml:"headers"`
}

// Static are the files of a folder.
type Static struct {
	Root         string            `yaml:"root"`
	Index        []string          `yaml:"index,one"`
	CacheControl []Lifetime        `yaml:"cache_control"`
	NoCompress   bool              `yaml:"no_compress"`
	Listing      bool              `yaml:"listing"`
	CleanURLs    bool              `yaml:"clean_urls"`
	Private      []string          `yaml:"private"`
	Types        map[string]string `yaml:"types"`
	Charset      string            `yaml:"charset"`
}

// Lifetime is the Cache-Control of the files whose names match a pattern.
type Lifetime struct {
	Match string `yaml:"match"`
	Value string `yaml:"value"`
}

// Access says which addresses may come in.
type Access struct {
	Allow []string `yaml:"allow"`
	Deny  []string `yaml:"deny"`
}

// Limit says how often a client may ask.
type Limit struct {
	Rate   string `yaml:"rate,plain"`
	Burst  int    `yaml:"burst"`
	By     string `yaml:"by"`
	Header string `yaml:"header"`
}

// Auth is what a client must show.
type Auth struct {
	Realm      string            `yaml:"realm"`
	File       string            `yaml:"file"`
	Passwords  map[string]string `yaml:"passwords,plain"`
	URL        string            `yaml:"url"`
	Copy       []string          `yaml:"copy"`
	UserHeader string            `yaml:"user_header"`
	Except     []string          `yaml:"except"`
}

// None reports whether nothing is asked.
func (a Auth) None() bool { return reflect.ValueOf(a).IsZero() }

// None reports whether all addresses may come in.
func (a Access) None() bool { return len(a.Allow)+len(a.Deny) == 0 }

// Pages are those of errors, in the order in which they are written.
type Pages []Page

// Page is a path of the site, or the name of a route, for a status such as 404 or 5xx.
type Page struct{ Status, Page string }

// Of is the page of a status, "" if there is none.
func (p Pages) Of(status string) string {
	for _, one := range p {
		if one.Status == status {
			return one.Page
		}
	}
	return ""
}

// Set gives a status a page; "" is none.
func (p *Pages) Set(status, page string) {
	list := slices.DeleteFunc(slices.Clone(*p), func(one Page) bool { return one.Status == status })
	if page != "" {
		list = append(list, Page{status, page})
	}
	*p = list
}

// Passes reports whether the route passes requests on to another server.
func (r *Route) Passes() bool { return r.Proxy.To != nil || r.Cache.To != nil }

// Guarded reports whether the route keeps anybody out.
func (r *Route) Guarded() bool { return !r.Access.None() || !r.Auth.None() || r.Limit != (Limit{}) }

// Clone is a copy, whose keys may be set without changing the route's.
func (r *Route) Clone() *Route {
	c := *r
	return &c
}

// Equal reports whether two routes are written alike.
func (r *Route) Equal(o *Route) bool { return r.String() == o.String() }

// String is the route as YAML.
func (r *Route) String() string { return written(*r).String() }

// withoutPrefix takes the beginning of paths away by an expression in a route that has a
// name instead of a path.
func (r *Route) withoutPrefix() {
	for _, p := range []*Proxy{&r.Proxy, &r.Cache} {
		if p.StripPrefix != "" && p.Rewrite == nil {
			p.Rewrites(regexp.QuoteMeta(p.StripPrefix)+"(.*)", "/{1}")
		}
		p.StripPrefix = ""
	}
}

// WithoutPath is a route for use under a name, which takes no path away: its folder is the
// one above. Where the folder is not named like the path, it stays as it is, and is none.
func WithoutPath(key string, r *Route) (named *Route, ok bool) {
	named = r.Clone()
	if r.Static.Root == "" || !strings.HasSuffix(key, "/") || key == "/" {
		return named, true
	}
	dir, is := strings.CutSuffix(r.Static.Root, strings.TrimSuffix(key, "/"))
	if is = is && r.PHP.To == nil; is {
		named.Static.Root = cmp.Or(dir, "/")
	}
	return named, is
}

// fields are the values of the shared keys, which may be set.
func (s *Shared) fields() (list []reflect.Value) {
	of := reflect.ValueOf(s).Elem()
	for i := range of.NumField() {
		list = append(list, of.Field(i))
	}
	return list
}

// fill takes over the shared keys that it does not have itself.
func (s *Shared) fill(o *Shared) {
	others := o.fields()
	for i, v := range s.fields() {
		if v.IsZero() {
			v.Set(others[i])
		}
	}
}
