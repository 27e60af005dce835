package plan

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"millrace/importer/draft"
)

// Jobs are structs whose tags say the key of a field in the config, and how its value is
// written:
//
//	one    a list of one is written as its text
//	plain  dollar signs in it are themselves
//	bare   it is no text, but a number or a size
//	lines  it is not written on one line
//	flow   it is, where its kind is not otherwise

// Node is the proxy as a route has it.
func (p Proxy) Node() *draft.Node {
	n := written(p)
	if to := n.Get("to"); n.Len() == 1 && to.Len() == 0 { // "proxy: ADDRESS"
		return to
	}
	return n
}

// Below puts a path in front of all others.
func (p *Proxy) Below(path string) {
	for i := range p.To {
		p.To[i] += path + "/"
	}
}

// Node is the PHP as a route has it.
func (p PHP) Node() *draft.Node {
	n := written(p)
	if n.Len() == 1 { // "php: SOCKET"
		return n.Get("to")
	}
	return n
}

// PHP runs the scripts of the folder beside it.
type PHP struct {
	To      []string          `yaml:"to,one"`
	Root    string            `yaml:"root"`
	Index   string            `yaml:"index"`
	Timeout string            `yaml:"timeout"`
	Connect string            `yaml:"connect"`
	Only    string            `yaml:"only,plain"`
	Except  []string          `yaml:"except"`
	Params  map[string]string `yaml:"params"`
	Front   string            `yaml:"front"`
}

// Rewrites gives a request another path on its way: expr is for the whole path.
func (p *Proxy) Rewrites(expr, to string) { p.Rewrite = append(p.Rewrite, PathRewrite{expr, to}) }

// Proxy are other servers that requests are passed on to.
type Proxy struct {
	To              []string      `yaml:"to,one"`
	StripPrefix     string        `yaml:"strip_prefix"`
	Rewrite         []PathRewrite `yaml:"rewrite,lines"`
	Balance         string        `yaml:"balance"`
	HashBy          string        `yaml:"hash_by,plain"`
	Sticky          string        `yaml:"sticky"`
	Weights         []string      `yaml:"weights,bare"`
	Host            string        `yaml:"host"`
	Redirects       string        `yaml:"redirects"` // keep
	TrustForwarded  []string      `yaml:"trust_forwarded"`
	IdleConnections string        `yaml:"idle_connections,bare"`
	IdleTimeout     string        `yaml:"idle_timeout"`
	Concurrency     string        `yaml:"concurrency,bare"`
	ConnectTimeout  string        `yaml:"connect_timeout"`
	HeaderTimeout   string        `yaml:"header_timeout"`
	BodyTimeout     string        `yaml:"body_timeout"`
	Stream          bool          `yaml:"stream"`
	Health          Health        `yaml:"health"`
	Retries         Retries       `yaml:"retries"`
	TLS             ProxyTLS      `yaml:"tls"`
	Fields          Fields        `yaml:"request_headers,flow"`

	TTL                  string      `yaml:"ttl"` // of a cache, as all below
	Rules                []CacheRule `yaml:"rules,lines"`
	StaleWhileRevalidate string      `yaml:"stale_while_revalidate"`
	StaleIfError         string      `yaml:"stale_if_error"`
	Key                  CacheKey    `yaml:"key"`
	Disk                 string      `yaml:"disk"`
	DiskSize             string      `yaml:"disk_size,bare"`
}

// PathRewrite gives a request another path on its way.
type PathRewrite struct {
	Path string `yaml:"path,plain"` // an expression for the whole path
	To   string `yaml:"to"`
}

// Health says which servers are asked.
type Health struct {
	Path           string   `yaml:"path"`
	Interval       string   `yaml:"interval"`
	Timeout        string   `yaml:"timeout"`
	Status         []string `yaml:"status"`
	Body           string   `yaml:"body,plain"`
	HealthyAfter   string   `yaml:"healthy_after,bare"`
	UnhealthyAfter string   `yaml:"unhealthy_after,bare"`
	Failures       string   `yaml:"failures,bare"`
	Eject          string   `yaml:"eject"`
}

// Retries says how often a request is tried.
type Retries struct {
	Attempts string   `yaml:"attempts,bare"`
	Status   []string `yaml:"status"`
}

// ProxyTLS is how other servers are spoken to.
type ProxyTLS struct {
	CA         string `yaml:"ca"`
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"`
	Insecure   bool   `yaml:"insecure"`
}

// CacheRule is how long answers with some statuses are kept.
type CacheRule struct {
	Status []string `yaml:"status"`
	TTL    string   `yaml:"ttl"`
}

// CacheKey is what else tells answers apart, or does not.
type CacheKey struct {
	Headers []string `yaml:"headers"`
	Cookies []string `yaml:"cookies"`
	NoQuery bool     `yaml:"no_query"`
}

// written is a struct as a map, by the tags of its fields. What is empty is left out.
func written(v any) *draft.Node {
	n, of := draft.Map(), reflect.ValueOf(v)
	for i := range of.NumField() {
		field, value := of.Type().Field(i), of.Field(i)
		tag, tagged := field.Tag.Lookup("yaml")
		key, how, _ := strings.Cut(tag, ",")
		switch {
		case field.Anonymous:
			written(value.Interface()).CopyTo(n)
		case !tagged || value.IsZero() || (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0:
		default:
			if node := valueNode(value, how); node != nil {
				n.Set(key, node)
			}
		}
	}
	return n
}

// valueNode is one value as it is written.
func valueNode(v reflect.Value, how string) *draft.Node {
	text := func(s string) *draft.Node {
		switch {
		case how == "bare":
			return draft.Number(s)
		case how == "plain" && !draft.HasEnvironment(s):
			return draft.Verbatim(s)
		}
		return draft.Text(s)
	}
	switch value := v.Interface().(type) {
	case string:
		return text(value)
	case bool, int:
		return draft.Number(value)
	case []string:
		if how == "one" {
			return draft.OneOrMore(value...)
		}
		list := draft.List().Flow()
		for _, s := range value {
			list.Add(text(s))
		}
		return list
	case map[string]string:
		entries := draft.Map().Flow()
		for _, key := range slices.Sorted(maps.Keys(value)) {
			entries.Set(key, text(value[key]))
		}
		return entries
	case Pages:
		entries := draft.Map().Flow()
		for _, p := range value {
			entries.Set(p.Status, draft.Text(p.Page))
		}
		return entries
	case Fields:
		n := value.Node()
		if how == "flow" && n != nil {
			n.Flow()
		}
		return n
	case interface{ Node() *draft.Node }:
		return value.Node()
	}
	n := draft.List()
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			n.Add(written(v.Index(i).Interface()).Flow())
		}
	} else {
		n = written(v.Interface())
	}
	if how != "lines" {
		n.Flow()
	}
	return n
}
