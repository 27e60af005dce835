package cache

import (
	"testing"

	"millrace/cache/rules"
)

// TestForm: the keys of answers in the slower tiers begin as they always did. They stand for
// the options that answers are chosen by; an option that is added must be left out while it
// has its default, or each upgrade begins with empty caches.
func TestForm(t *testing.T) {
	o := Options{Preset: "api", Target: "x", TagHeaders: []string{"X-Tag"}, Languages: []string{"de"}, Rules: []rules.Rule{{}}}
	o.To = []string{"http://api.internal"}
	for want, o := range map[string]Options{"4dddb84387cd\n": {}, "1d78fc4b3c96\n": o} {
		if got := storePrefix(o); got != want {
			t.Errorf("it is %q, and was %q", got, want)
		}
	}
}
