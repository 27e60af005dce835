package labcmd

import (
	"strings"
	"testing"
)

// FuzzWeights: a file of weights is read or refused with its line; every weight
// that comes out can be merged by.
func FuzzWeights(f *testing.F) {
	f.Add("a.pprof = 3 # hot\n\nb.pprof\n")
	f.Add("=1")
	f.Add("a=b=2")
	f.Add("a=NaN")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readWeights("weights", strings.NewReader(text), "dir")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "weights") {
				t.Errorf("%v", err)
			}
			return
		}
		for _, w := range list {
			if !(w.weight > 0) || w.file == "" {
				t.Errorf("%+v", w)
			}
		}
	})
}
