package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/lab/experiment"
	"millrace/lab/gate"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// braces is a name that nobody has filled in.
var braces = regexp.MustCompile(`{([a-z]+)}`)

// TestSpecs: every page names what there is, and nothing else: arms, metrics, tasks,
// programs, configs and the fields of their templates; and no workload is without
// something to do.
func TestSpecs(t *testing.T) {
	all, err := Experiments()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		for _, mode := range []record.Mode{record.Quick, record.Full} {
			s, err := experiment.Read(e.Name, mode)
			if err != nil {
				t.Error(err)
				continue
			}
			if s.Name != e.Name {
				t.Errorf("%s calls itself %s", e.Name, s.Name)
			}
			r := experiment.NewRun(experiment.Env{Mode: mode, Work: t.TempDir(), Seed: 1}, s, &record.Result{})
			var hooks experiment.Hooks
			if e.Hooks != nil {
				hooks = e.Hooks(r)
			}
			c := checker{T: t, name: e.Name + ", " + string(mode), spec: s, hooks: hooks}
			c.arms()
			c.workloads()
			c.reports()
		}
	}
}

type checker struct {
	*testing.T
	name  string
	spec  *experiment.Spec
	hooks experiment.Hooks
	known []string // arms
}

func (c *checker) wrong(format string, args ...any) { c.Errorf(c.name+": "+format, args...) }

func (c *checker) arms() {
	places := []string{
		"site", "dir", "address", "second", "host", "port", "secondport", "socket", "memory", "config", "user", "log", "cert", "key", "both", "asroot",
		"upstream", "upstreamhost", "upstreamport", "expiry", "seconds", "delay", "errors", "seed", "answers", "in", "out",
	} // by hooks
	for name := range c.spec.Values {
		if slices.Contains(places, name) {
			c.wrong("the value {%s} has the name of what a place has", name)
		}
	}
	for _, u := range c.spec.Upstreams {
		places = append(places, strings.ToLower(u.Name))
	}
	for _, a := range slices.Concat(c.spec.Upstreams, c.spec.Arms) {
		if a.Name == "" || a.Run == "" || slices.Contains(c.known, a.Name) {
			c.wrong("the arm %q has no name or command, or is there twice", a.Name)
		}
		c.known = append(c.known, a.Name)
		texts := a.Run + a.Text
		for name, value := range a.Fields {
			texts += value
			places = append(places, strings.ToLower(name))
		}
		for _, url := range a.URL {
			texts += url
		}
		for _, name := range braces.FindAllStringSubmatch(texts, -1) {
			if !slices.Contains(places, name[1]) {
				c.wrong("%s has an unknown {%s}", a.Name, name[1])
			}
		}
		if a.Config != "" {
			if _, err := os.Stat(filepath.Join("bench", "peers", a.Config)); err != nil {
				c.wrong("%v", err)
			}
		}
	}
	if c.hooks.Arms != nil {
		for _, a := range c.hooks.Arms() {
			c.known = append(c.known, a.Name)
		}
	}
	for _, p := range c.spec.Programs {
		if _, err := os.Stat(filepath.Join("bench", "subjects", p.Folder)); err != nil {
			c.wrong("%v", err)
		}
	}
}

func (c *checker) workloads() {
	tasks := []string{"", "h2load", "idle", "page", "rest"}
	for name := range c.hooks.Tasks {
		tasks = append(tasks, name)
	}
	seen := map[string]bool{}
	for _, w := range c.spec.Workloads {
		for _, text := range append([]string{w.Name, w.About, w.Differ, w.Figure}, w.Paths...) {
			if braces.MatchString(text) {
				c.wrong("%q is not filled in", text)
			}
		}
		switch {
		case w.Name == "" || w.About == "" || seen[w.Name]:
			c.wrong("the workload %q has no name or text, or is there twice", w.Name)
		case !slices.Contains(tasks, w.Task):
			c.wrong("%s has no task %q", w.Name, w.Task)
		case w.Task == "" && w.Connections == 0:
			c.wrong("%s does nothing", w.Name)
		}
		seen[w.Name] = true
		for _, arm := range w.Arms {
			if !slices.Contains(c.known, arm) {
				c.wrong("%s is for an unknown arm %q", w.Name, arm)
			}
		}
		for _, m := range append(slices.Clone(w.Decide), w.Metric) {
			if m != trial.NoVerdict {
				c.metric(m)
			}
		}
	}
}

func (c *checker) metric(key string) {
	has := func(m record.Metric) bool { return m.Key == key }
	if !slices.ContainsFunc(c.spec.Metrics, has) && !slices.ContainsFunc(gate.Metrics(), has) {
		c.wrong("there is no metric %q", key)
	}
}

func (c *checker) reports() {
	for _, t := range c.spec.Tables {
		for _, column := range t.Columns {
			if !column.Published && len(t.Rows) == 0 {
				c.metric(column.Metric)
			}
		}
	}
	for _, s := range c.spec.Answer {
		if !s.Rows {
			c.metric(s.Metric)
		}
	}
	for _, m := range c.spec.Decide {
		c.metric(m)
	}
}
