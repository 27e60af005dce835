package headers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// Security is the preset for fields that protect visitors. What an answer has
// already stays.
type Security struct {
	// Off: none of them, where the site has them on.
	Off bool `yaml:"off"`
	// HSTS is for how long browsers shall use nothing but HTTPS for this host
	// (Strict-Transport-Security). It is sent over HTTPS only. Default 8760h, a
	// year, where tls.redirect is on and the site names its hosts; otherwise,
	// and when it is negative, nothing is said.
	HSTS time.Duration `yaml:"hsts" negative:"never"`
	// Frames says who may show pages in a frame: self, none or any. Default self.
	Frames string `yaml:"frames"`
	// CSP is the Content-Security-Policy. Default: "base-uri 'self'; object-src
	// 'none'", and frame-ancestors as "frames" says.
	CSP string `yaml:"csp"`
	// Referrer is the Referrer-Policy. Default strict-origin-when-cross-origin.
	Referrer string `yaml:"referrer"`
}

// year is what lists of preloaded hosts ask for.
const year = 365 * 24 * time.Hour

// UnmarshalText lets a config say "security: on".
func (s *Security) UnmarshalText(text []byte) error {
	switch string(text) {
	case "on", "true":
		*s = Security{}
	case "off", "false":
		*s = Security{Off: true}
	default:
		return fmt.Errorf("%.40q is neither on nor off", text)
	}
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (s Security) Check() map[string]error {
	faults := map[string]error{}
	if s.HSTS > 0 && s.HSTS < time.Second {
		faults["hsts"] = fmt.Errorf("%s is less than a second", s.HSTS)
	}
	switch s.Frames {
	case "", "self", "none", "any":
	default:
		faults["frames"] = fmt.Errorf("%q is not self, none or any", s.Frames)
	}
	for key, text := range map[string]string{"csp": s.CSP, "referrer": s.Referrer} {
		if !field.Value(text) || strings.TrimSpace(text) != text {
			faults[key] = fmt.Errorf("%.64q is not the value of a header field", text)
		}
	}
	return faults
}

// lists are the rules that the preset stands for.
func (s *Security) lists(always bool) []List {
	if s == nil || s.Off {
		return nil
	}
	set := map[string]string{
		"X-Content-Type-Options":     "nosniff",
		"Referrer-Policy":            "strict-origin-when-cross-origin",
		"Cross-Origin-Opener-Policy": "same-origin-allow-popups",
		"Content-Security-Policy":    s.CSP,
	}
	if s.Referrer != "" {
		set["Referrer-Policy"] = s.Referrer
	}
	ancestors := ""
	switch s.Frames {
	case "none":
		set["X-Frame-Options"], ancestors = "DENY", "frame-ancestors 'none'; "
	case "any":
	default:
		set["X-Frame-Options"], ancestors = "SAMEORIGIN", "frame-ancestors 'self'; "
	}
	if s.CSP == "" {
		set["Content-Security-Policy"] = "base-uri 'self'; " + ancestors + "object-src 'none'"
	}
	for name, value := range set {
		if strings.Contains(value, "{") { // in a policy of the operator
			set[name] = strings.ReplaceAll(value, "{", "{{")
		}
	}
	lists := []List{{Preset: true, Options: Options{Default: set, Remove: []string{"X-Powered-By"}}}}
	age := s.HSTS
	if age == 0 && always {
		age = year
	}
	if age > 0 {
		sts := "max-age=" + strconv.FormatInt(int64(age/time.Second), 10)
		lists = append(lists, List{Preset: true, Protocol: "https", Options: Options{Default: map[string]string{"Strict-Transport-Security": sts}}})
	}
	return lists
}
