package cachecmd

import (
	"slices"
	"testing"
	"time"

	"millrace/cache"
	"millrace/cache/control"
)

// TestUnseen: following the ring log shows every decision once, those of one
// moment included.
func TestUnseen(t *testing.T) {
	at := func(second int, url string) control.Decision {
		return control.Decision{Decision: cache.Decision{Time: time.Unix(int64(second), 0), URL: url}}
	}
	a, b, b2, c := at(1, "a"), at(2, "b"), at(2, "b2"), at(3, "c")
	for _, x := range []struct{ now, before, want []control.Decision }{
		{[]control.Decision{a, b}, nil, []control.Decision{a, b}},
		{[]control.Decision{a, b}, []control.Decision{a, b}, nil},
		{[]control.Decision{a, b, b2, c}, []control.Decision{a, b}, []control.Decision{b2, c}},
		{[]control.Decision{c}, []control.Decision{a}, []control.Decision{c}},
		{nil, []control.Decision{a}, nil},
	} {
		if got := unseen(x.now, x.before); !slices.Equal(got, x.want) {
			t.Errorf("of %v after %v: %v, want %v", x.now, x.before, got, x.want)
		}
	}
}
