// Package key makes cache keys: what must be equal for two requests to get the
// same stored response, beyond what Vary says.
package key

import "net/http"

// Options say what a key is made of. The zero value is the host and the
// request's target as it came.
type Options struct {
	// SortQuery makes the order of query parameters irrelevant.
	SortQuery bool `yaml:"sort_query"`
	// DropTracking leaves parameters out that only tell advertisers where a
	// visitor came from (utm_*, gclid, fbclid …). They still reach the upstream.
	DropTracking bool `yaml:"drop_tracking"`
	// Query lists the only parameters that count; empty: all. A name may end in *.
	Query []string `yaml:"query"`
	// WithoutQuery lists parameters that do not count. A name may end in *.
	WithoutQuery []string `yaml:"without_query"`
	// NoQuery leaves the whole query out.
	NoQuery bool `yaml:"no_query"`
	// Headers are request headers whose values count.
	Headers []string `yaml:"headers"`
	// Cookies are cookies whose values count.
	Cookies []string `yaml:"cookies"`
	// IgnoreHost makes all hosts share.
	IgnoreHost bool `yaml:"ignore_host"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { panic("not built") }

// Maker makes keys. It is immutable.
type Maker struct{}

// New prepares o.
func New(o Options) (*Maker, error) { panic("not built") }

// Key is the exact key of a request: scheme, host in lower case, target, and
// what the options add, in a form that no client can forge (every part is
// escaped or has its length). The method is no part of it. class is the
// request's class for CORS, "" for none.
func (m *Maker) Key(r *http.Request, class string) string { panic("not built") }

// ForURL is the key of a plain GET without cookies and headers of scheme, host and
// target, for purging and explaining; all is false when requests for that URL may have other keys as well.
func (m *Maker) ForURL(scheme, host, target string) (key string, all bool) { panic("not built") }

// Plain reports whether the key of this request is nothing but host and the
// raw target, so that the fast lane may file it under that.
func (m *Maker) Plain(r *http.Request) bool { panic("not built") }

// Consulted lists the request headers, canonical, that Key looks at beyond the
// host and the target.
func (m *Maker) Consulted() []string { panic("not built") }
