package send

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseRanges(t *testing.T) {
	huge := "99999999999999999999999"
	for _, c := range []struct {
		in   string
		size int64
		want []span
		ok   bool
	}{
		{"bytes=0-0", 10, []span{{0, 1}}, true},
		{"bytes=0-99", 10, []span{{0, 10}}, true},
		{"bytes=9-", 10, []span{{9, 1}}, true},
		{"bytes=10-", 10, nil, true},
		{"bytes=-1", 10, []span{{9, 1}}, true},
		{"bytes=-99", 10, []span{{0, 10}}, true},
		{"bytes=-0", 10, nil, true},
		{"bytes=0-" + huge, 10, []span{{0, 10}}, true},
		{"bytes=" + huge + "-", 10, nil, true},
		{"bytes=-" + huge, 10, []span{{0, 10}}, true},
		{"bytes= 0-0 , 2-3 ", 10, []span{{0, 1}, {2, 2}}, true},
		{"bytes=,,0-0,", 10, []span{{0, 1}}, true},
		{"bytes=5-6,0-1", 10, []span{{5, 2}, {0, 2}}, true},
		{"BYTES=0-0", 10, []span{{0, 1}}, true},
		{"bytes=0-0", 0, nil, true},
		{"bytes=-1", 0, nil, false},
		{"bytes=", 10, nil, false},
		{"bytes=,", 10, nil, false},
		{"bytes", 10, nil, false},
		{"bytes=-", 10, nil, false},
		{"bytes=5", 10, nil, false},
		{"bytes=2-1", 10, nil, false},
		{"bytes=+1-2", 10, nil, false},
		{"bytes=1--2", 10, nil, false},
		{"bytes=0x1-2", 10, nil, false},
		{"bytes=1 -2", 10, nil, false},
		{"items=0-0", 10, nil, false},
		{"bytes=0-,0-", 10, nil, false},                        // more than there is
		{"bytes=0-1,1-2,2-3,3-4", 100, nil, false},             // many overlaps
		{"bytes=0-1,1-2", 100, []span{{0, 2}, {1, 2}}, true},   // one is fine
		{"bytes=0-1,0-1,x", 100, nil, false},                   // one bad spoils all
		{"bytes=" + manyRanges(maxRanges), 1000, nil, true},    // checked for length below
		{"bytes=" + manyRanges(maxRanges+1), 1000, nil, false}, // too many
	} {
		got, ok := parseRanges(nil, c.in, c.size)
		if strings.HasSuffix(c.in, manyRanges(maxRanges)) && ok {
			if len(got) != maxRanges {
				t.Errorf("%d of %d ranges", len(got), maxRanges)
			}
			continue
		}
		if ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%q of %d: %v, %v; want %v, %v", c.in, c.size, got, ok, c.want, c.ok)
		}
	}
}

func manyRanges(n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf("%d-%d", 10*i, 10*i+1))
	}
	return strings.Join(parts, ",")
}

func FuzzParseRanges(f *testing.F) {
	f.Add("bytes=0-0,-1,5-", int64(10))
	f.Add("bytes=9999999999999999999999-", int64(math.MaxInt64))
	f.Add("bytes=-0,,1-2", int64(0))
	f.Fuzz(func(t *testing.T, s string, size int64) {
		if size < 0 {
			return
		}
		spans, ok := parseRanges(nil, s, size)
		if !ok && spans != nil || len(spans) > maxRanges {
			t.Fatalf("%q: %v, %v", s, spans, ok)
		}
		for _, sp := range spans {
			if sp.start < 0 || sp.length <= 0 || sp.length > size-sp.start {
				t.Fatalf("%q of %d: %v lies outside", s, size, sp)
			}
		}
	})
}
