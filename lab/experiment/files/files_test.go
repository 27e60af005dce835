package files

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/result"
	"millrace/lab/trial"
)

func TestPlan(t *testing.T) {
	var arms []trial.Arm
	for _, name := range []string{nginx, millrace, "nethttp", "fasthttp", "millrace-nolane", "nginx-log", millraceLog} {
		arms = append(arms, trial.Arm{Name: name})
	}
	for mode, n := range map[result.Mode]int{result.Quick: 4, result.Full: len(arms)} {
		p := newPlan(arms[:n], experiment.Env{Mode: mode}, 1<<20)
		if err := p.Check(); err != nil {
			t.Error(err)
		}
		for _, w := range p.Workloads {
			c := w.Load
			c.URL = "http://127.0.0.1:1/"
			if err := c.Check(); err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
		}
	}
}

// TestLarge: the file has its size, no holes, and the same bytes each time.
func TestLarge(t *testing.T) {
	const size = 3 << 20
	var all [][]byte
	for range 2 {
		name := filepath.Join(t.TempDir(), "large")
		if err := writeLarge(name, size); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if len(all[0]) != size || !bytes.Equal(all[0], all[1]) || bytes.Contains(all[0], make([]byte, 16)) {
		t.Error("the large file is another one, or has holes")
	}
}
