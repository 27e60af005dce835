// Package cors answers for an upstream that knows nothing of cross-origin
// requests: it decides by the Origin what a browser may read (Fetch Standard, 3.2).
package cors

import "net/http"

// Options of CORS. Empty Origins: off, and the upstream's own headers pass.
type Options struct {
	// Origins that may read: https://blog.example, https://*.example.org, or * for any.
	Origins []string `yaml:"origins"`
	// Methods beyond GET, HEAD and POST.
	Methods []string `yaml:"methods"`
	// Headers that requests may carry; * for any.
	Headers []string `yaml:"headers"`
	// Expose lists response headers that scripts may read.
	Expose []string `yaml:"expose"`
	// Credentials lets cookies come along; not with Origins *.
	Credentials bool `yaml:"credentials"`
	// MaxAge in seconds of a preflight's answer. Default 86400.
	MaxAge int `yaml:"max_age"`
}

// UnmarshalText lets a config say "cors: https://blog.example".
func (o *Options) UnmarshalText(text []byte) error { panic("not built") }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { panic("not built") }

// Policy decides. A nil *Policy is off.
type Policy struct{}

// New prepares o; nil without origins.
func New(o Options) (*Policy, error) { panic("not built") }

// Preflight answers an OPTIONS request that is a preflight, and reports whether it was one.
func (p *Policy) Preflight(w http.ResponseWriter, r *http.Request) bool { panic("not built") }

// Apply sets the answer's fields for r: Access-Control-Allow-Origin and
// -Credentials, -Expose-Headers, and Vary: Origin where the answer depends on it.
// The upstream's own Access-Control fields in h are replaced.
func (p *Policy) Apply(h http.Header, r *http.Request) { panic("not built") }

// Varies reports whether Apply looks at Origin.
func (p *Policy) Varies() bool { panic("not built") }
