package nginx

import (
	"regexp"
	"strings"
	"testing"

	"millrace/importer/plan"
)

// TestReferers: which pages a list of valid_referers takes for good.
func TestReferers(t *testing.T) {
	s := &site{Site: &plan.Site{Server: &plan.Server{Names: []string{"a.example"}}}}
	for words, values := range map[string]map[string]bool{
		"none server_names":    {"": true, "https://a.example/x": true, "http://a.example": true, "https://a.example.evil/": false, "https://evil/?https://a.example/": false, "x": false},
		"blocked a.example":    {"": false, "hidden": true, "https://b.example/": false, "HTTPS://A.example/": true, "http:/": true},
		"*.b.example":          {"https://x.b.example/": true, "https://b.example/": false, "https://x/.b.example": false},
		".b.example":           {"https://x.b.example/": true, "https://b.example/": true, "https://xb.example/": false},
		"b.*":                  {"https://b.example:8080/": true, "https://c.b.example/": false},
		"b.example/in/":        {"https://b.example/in/x": true, "https://b.example/out": false},
		`~\.google\. ~^bing\.`: {"https://www.google.de/": true, "https://bing.com/": true, "https://www.bing.com/": false},
	} {
		ways, err := s.referers(strings.Fields(words))
		if err != nil {
			t.Error(words, err)
			continue
		}
		re := regexp.MustCompile("(?i)^(?:" + strings.Join(ways, "|") + ")")
		for value, want := range values {
			if re.MatchString(value) != want {
				t.Errorf("%s: %q is %v (%s)", words, value, !want, re)
			}
		}
	}
}
