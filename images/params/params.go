// Package params reads what a request's query and client hints ask of a
// picture, and allows only what the site's owner has listed or signed: whoever
// could ask for any size could fill the disk and the processors.
package params

import (
	"errors"
	"net/http"

	"millrace/images/convert"
)

// ErrRefused is returned, wrapped with what is allowed, for parameters that are
// neither listed nor signed.
var ErrRefused = errors.New("this size is not allowed")

// Options say what may be asked for. The zero value: nothing.
type Options struct {
	// Widths and Heights in pixels that ?w= and ?h= may have.
	Widths  []int `yaml:"widths"`
	Heights []int `yaml:"heights"`
	// Fits that ?fit= may have, of contain, cover, fill and outside.
	Fits []convert.Fit `yaml:"fits"`
	// Qualities that ?q= may have, 1 to 100.
	Qualities []int `yaml:"qualities"`
	// DPRs that ?dpr= may have: w and h are multiplied by it. 1 to 4.
	DPRs []float64 `yaml:"dprs"`
	// Presets are sizes by name: ?preset=thumb.
	Presets map[string]Preset `yaml:"presets"`
	// Secret allows any parameters in a URL that is signed with it: ?…&s=
	// and the hexadecimal HMAC-SHA256, cut to 32 digits, of the path and the
	// query before "&s=".
	Secret string `yaml:"secret"`
	// ClientHints chooses the nearest of Widths that is not smaller, for
	// requests that say how wide the picture will be shown (Sec-CH-Width,
	// Sec-CH-Viewport-Width, Sec-CH-DPR), and a lower quality with Save-Data.
	ClientHints bool `yaml:"client_hints"`
}

// Preset is a named size.
type Preset struct {
	Width   int         `yaml:"w"`
	Height  int         `yaml:"h"`
	Fit     convert.Fit `yaml:"fit"`
	Quality int         `yaml:"q"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { return nil }

// Enabled reports whether requests may ask for anything at all. If not, queries
// are not looked at.
func (o Options) Enabled() bool { panic("not built") }

// Params are what a request asks for; the zero value is the picture as it is.
type Params struct {
	Width, Height int
	Fit           convert.Fit
	Quality       int // 0: the site's
}

// Parse reads a request. Queries without one of the known parameters ask for
// nothing, whatever else they have.
func (o Options) Parse(r *http.Request) (Params, error) { panic("not built") }

// Consulted are the request headers that Parse looks at: for Vary.
func (o Options) Consulted() []string { panic("not built") }

// AcceptCH is the value of the header Accept-CH, empty when hints are off.
func (o Options) AcceptCH() string { panic("not built") }

// Sign returns the path and query with a signature: "/a.jpg?w=300&s=…".
func Sign(secret, pathAndQuery string) string { panic("not built") }
