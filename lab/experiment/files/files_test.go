package files

import (
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

func TestPlan(t *testing.T) {
	var arms []trial.Arm
	for _, name := range []string{nginx, millrace, "nethttp", "fasthttp", "millrace-nolane", "nginx-log", millraceLog} {
		arms = append(arms, trial.Arm{Name: name})
	}
	for mode, n := range map[record.Mode]int{record.Quick: 4, record.Full: len(arms)} {
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
