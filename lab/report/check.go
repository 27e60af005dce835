package report

import (
	"fmt"

	"millrace/lab/record"
)

// Check reports the first thing about a result that cannot be: another format,
// a sample of an arm that is not listed, a verdict whose interval is upside
// down, a table row with more cells than columns. A result that passes is
// consistent, not true.
func Check(res *record.Result) error {
	c := checker{arms: map[string]bool{}, workloads: map[string]bool{}, metrics: map[string]bool{}}
	if res.Format != record.Format {
		return fmt.Errorf("%w: its format is %q, not %q", errInconsistent, res.Format, record.Format)
	}
	for _, check := range []func(*record.Result) error{c.head, c.lists, c.samples, c.verdicts, c.gatesAndTables, c.charts} {
		if err := check(res); err != nil {
			return fmt.Errorf("%w: %w", errInconsistent, err)
		}
	}
	return nil
}

// A checker knows the names that a result declares.
type checker struct{ arms, workloads, metrics map[string]bool }

func (c *checker) head(res *record.Result) error {
	switch res.Kind {
	case record.KindLoad, record.KindCompare, record.KindExperiment, record.KindPGO:
	default:
		return fmt.Errorf("%q is not a kind of result", shorten(string(res.Kind), 40))
	}
	switch res.Mode {
	case "", record.Quick, record.Full:
	default:
		return fmt.Errorf("%q is not a mode", shorten(string(res.Mode), 40))
	}
	if !res.Ended.IsZero() && res.Ended.Before(res.Started) {
		return fmt.Errorf("it ended at %v, before it started at %v", res.Ended, res.Started)
	}
	return nil
}

// lists takes the names down, and refuses two of a kind.
func (c *checker) lists(res *record.Result) error {
	for _, a := range res.Arms {
		if c.arms[a.Name] {
			return fmt.Errorf("there are two arms %q", shorten(a.Name, 60))
		}
		c.arms[a.Name] = true
	}
	for _, a := range res.Arms {
		if a.Placebo != "" && !c.arms[a.Placebo] {
			return fmt.Errorf("arm %q is the placebo of %q, which is not an arm", shorten(a.Name, 60), shorten(a.Placebo, 60))
		}
	}
	for _, w := range res.Workloads {
		if c.workloads[w.Name] {
			return fmt.Errorf("there are two workloads %q", shorten(w.Name, 60))
		}
		c.workloads[w.Name] = true
	}
	for _, m := range res.Metrics {
		if c.metrics[m.Key] {
			return fmt.Errorf("there are two metrics %q", shorten(m.Key, 60))
		}
		c.metrics[m.Key] = true
	}
	return nil
}

// known refuses a name that is not declared; what has its article ("an arm").
func known(what string, names map[string]bool, name string) error {
	if names[name] {
		return nil
	}
	return fmt.Errorf("%q is not %s of this result", shorten(name, 60), what)
}

func (c *checker) samples(res *record.Result) error {
	for i, s := range res.Samples {
		err := known("an arm", c.arms, s.Arm)
		if err == nil {
			err = known("a workload", c.workloads, s.Workload)
		}
		for key := range s.Values {
			if err == nil {
				err = known("a metric", c.metrics, key)
			}
		}
		if err == nil && (s.Seconds < 0 || s.Block < 0 || s.Restart < 0 || s.Order < 0) {
			err = fmt.Errorf("a negative length or place (%v s, restart %d, block %d, order %d)", s.Seconds, s.Restart, s.Block, s.Order)
		}
		if err != nil {
			return fmt.Errorf("sample %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *checker) verdicts(res *record.Result) error {
	for i, v := range res.Verdicts {
		err := known("an arm", c.arms, v.Arm)
		if err == nil {
			err = known("an arm", c.arms, v.Baseline)
		}
		if err == nil {
			err = known("a workload", c.workloads, v.Workload)
		}
		if err == nil {
			err = known("a metric", c.metrics, v.Metric)
		}
		if err == nil {
			err = figures(v)
		}
		if err != nil {
			return fmt.Errorf("verdict %d: %w", i+1, err)
		}
	}
	return nil
}

// figures refuses a verdict that its own figures contradict.
func figures(v record.Verdict) error {
	decided := true
	switch v.Outcome {
	case record.Better, record.Worse, record.Equal:
	case record.Undecided:
		decided = false
	default:
		return fmt.Errorf("%q is not an outcome", shorten(string(v.Outcome), 40))
	}
	switch {
	case v.Ratio < 0 || v.Low < 0 || v.High < 0 || v.Delta < 0 || v.Blocks < 0 || v.Restarts < 0 || v.More < 0 || v.Minutes < 0:
		return fmt.Errorf("a ratio, interval or number below 0")
	case v.P < 0 || v.P > 1 || v.Level < 0 || v.Level > 1:
		return fmt.Errorf("p %v at the level %v: both are from 0 to 1", v.P, v.Level)
	case decided && v.Ratio == 0:
		return fmt.Errorf("%q without a ratio", v.Outcome)
	case v.Low > v.High:
		return fmt.Errorf("its interval ends (%v) before it begins (%v)", v.High, v.Low)
	case v.Low > 0 && (v.Ratio < v.Low*(1-slack) || v.Ratio > v.High*(1+slack)):
		return fmt.Errorf("its ratio %v is outside of its interval, %v to %v", v.Ratio, v.Low, v.High)
	}
	return nil
}

// slack is how far a centre may be outside of its interval: both are estimates,
// rounded, and of few blocks.
const slack = 0.05

func (c *checker) gatesAndTables(res *record.Result) error {
	for _, g := range res.Gates {
		switch g.Status {
		case record.Passed, record.Failed, record.Doubtful, record.Unknown:
		default:
			return fmt.Errorf("gate %q: %q is not a status", shorten(g.Name, 60), shorten(string(g.Status), 40))
		}
	}
	for _, t := range res.Tables {
		for i, row := range t.Rows {
			if len(row) > len(t.Columns) {
				return fmt.Errorf("table %q: row %d has %d cells for %d columns", shorten(t.Title, 60), i+1, len(row), len(t.Columns))
			}
		}
	}
	return nil
}

func (c *checker) charts(res *record.Result) error {
	for _, ch := range res.Charts {
		for _, s := range ch.Series {
			for i := 1; i < len(s.Points); i++ {
				if s.Points[i][0] < s.Points[i-1][0] {
					return fmt.Errorf("chart %q, series %q: x goes back at point %d", shorten(ch.Title, 60), shorten(s.Name, 60), i+1)
				}
			}
		}
	}
	return nil
}
