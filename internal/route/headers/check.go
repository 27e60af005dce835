package headers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/wire/field"
)

const (
	// maxOrigins is how many origins can be listed: patterns among them are
	// gone through at every request of an origin that is not listed by name.
	maxOrigins = 1000
	// maxNames is how many methods or headers can be listed: all are sent.
	maxNames = 100
	// longestMaxAge is a year, far beyond what any browser keeps.
	longestMaxAge = 365 * 86400
)

// forbidden are methods that no browser sends for a script (Fetch Standard, 2.2.1).
var forbidden = []string{http.MethodConnect, http.MethodTrace, "TRACK"}

// UnmarshalText lets a config say "cors: https://blog.example", or several
// origins with commas between. An empty text is off.
func (o *CORSOptions) UnmarshalText(text []byte) error {
	*o = CORSOptions{}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil
	}
	for one := range strings.SplitSeq(string(text), ",") {
		one = strings.TrimSpace(one)
		if err := checkOrigin(one); err != nil {
			*o = CORSOptions{}
			return err
		}
		o.Origins = append(o.Origins, one)
	}
	return nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o CORSOptions) Check() map[string]error {
	faults := map[string]error{}
	set := func(key string, err error) {
		if err != nil {
			faults[key] = err
		}
	}
	set("origins", o.checkOrigins())
	set("methods", check(o.Methods, checkMethod))
	set("headers", check(o.Headers, checkHeader))
	set("expose", check(o.Expose, checkHeader))
	if o.Credentials {
		switch {
		case slices.Contains(o.Origins, wildcard):
			set("credentials", errors.New(`credentials cannot go with origins "*", browsers refuse it: list the origins`))
		case slices.Contains(o.Origins, "null"):
			set("credentials", errors.New(`credentials cannot go with the origin "null", which any site can have: list the origins`))
		case slices.Contains(o.Expose, wildcard):
			set("expose", errors.New(`"*" does not hold with credentials: list the headers`))
		}
	}
	if o.MaxAge < -1 || o.MaxAge > longestMaxAge {
		set("max_age", fmt.Errorf("%d is not between -1 and %d seconds", o.MaxAge, longestMaxAge))
	}
	return faults
}

func (o CORSOptions) checkOrigins() error {
	switch {
	case len(o.Origins) == 0:
		if len(o.Methods) > 0 || len(o.Headers) > 0 || len(o.Expose) > 0 || o.Credentials || o.MaxAge != 0 {
			return errors.New(`cors needs "origins": those that may read, like https://blog.example`)
		}
		return nil
	case len(o.Origins) > maxOrigins:
		return fmt.Errorf("%d origins, the limit is %d", len(o.Origins), maxOrigins)
	case len(o.Origins) > 1 && slices.Contains(o.Origins, wildcard):
		return errors.New(`"*" is every origin: list it alone, or leave it out`)
	}
	for _, text := range o.Origins {
		if err := checkOrigin(text); err != nil {
			return err
		}
	}
	return nil
}

// checkOrigin says what is wrong with one origin or pattern, and how to write it.
func checkOrigin(text string) error {
	if text == wildcard {
		return nil
	}
	_, err := parseOrigin(text)
	if err == nil {
		return nil
	}
	if scheme, host, ok := strings.Cut(text, "://*."); ok {
		o, err := parseOrigin(scheme + "://" + host)
		switch {
		case err != nil:
			return fmt.Errorf("%q: %w", text, err)
		case o.host[0] == '[':
			return fmt.Errorf("%q: an address has no subdomains", text)
		}
		return nil
	}
	switch {
	case strings.Contains(text, wildcard):
		return fmt.Errorf("%q: a * stands alone, or for the beginning of a host, like https://*.example.org", text)
	case !strings.Contains(text, "://"):
		return fmt.Errorf("%q: %w, with its scheme", text, err)
	}
	if origin, _, more := strings.Cut(text[strings.Index(text, "://")+3:], "/"); more {
		return fmt.Errorf("%q: an origin has no path, write %s://%s", text, text[:strings.Index(text, "://")], origin)
	}
	return fmt.Errorf("%q: %w", text, err)
}

func check(list []string, fault func(string) error) error {
	if len(list) > maxNames {
		return fmt.Errorf("%d names, the limit is %d", len(list), maxNames)
	}
	for _, name := range list {
		if err := fault(name); err != nil {
			return err
		}
	}
	return nil
}

func checkMethod(name string) error {
	switch upper := strings.ToUpper(name); {
	case !field.Token(name):
		return fmt.Errorf("%q is not a method: write one like PUT", name)
	case slices.Contains(forbidden, upper):
		return fmt.Errorf("no browser sends %s for a script", upper)
	case name != upper: // RFC 9110, 9.1
		return fmt.Errorf("methods are case-sensitive: write %s instead of %s", upper, name)
	}
	return nil
}

func checkHeader(name string) error {
	if !field.Token(name) {
		return fmt.Errorf("%q is not the name of a header: write one like Content-Type", name)
	}
	return nil
}
