package labcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"

	"millrace/cmd/internal/cli"
	"millrace/lab"
	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/report"
	"millrace/lab/subject"
)

// List is `millrace-lab list`.
type List struct{}

// Run lists the experiments.
func (*List) Run(s cli.Streams) error {
	all, err := lab.Experiments()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(s.Out, 0, 8, 2, ' ', 0)
	for _, e := range all {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", e.Name, e.Title); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Run is `millrace-lab run`.
type Run struct {
	Name string   `arg:"" help:"One of those that list names."`
	Only []string `arg:"" optional:"" name:"workload" help:"Measure only these workloads; patterns such as h2-* name several. For tls, protocols, proxy, images and packed."`

	Quick   bool   `help:"Within 90 seconds. This is the default."`
	Full    bool   `help:"Within 15 minutes, with figures to rely on."`
	Out     string `default:"." placeholder:"DIR" complete:"dir" help:"Where to write NAME.json, .html, .md and .txt (for benchstat)."`
	Bench   string `placeholder:"DIR" complete:"dir" help:"The bench folder of a checkout, where the servers to measure are. Default: the checkout that this folder is in."`
	Seed    uint64 `placeholder:"N" help:"Repeat the order of another run."`
	Program string `placeholder:"FILE" complete:"file" help:"The millrace to measure. Default: the one beside this program, else the one in PATH."`

	Progress Progress `embed:""`
}

// Run runs one experiment.
func (c *Run) Run(s cli.Streams) error {
	env, err := c.Env()
	if err != nil {
		return err
	}
	if env.Work, err = os.MkdirTemp("", "millrace-lab-"); err != nil {
		return fmt.Errorf("making a folder for the experiment's files: %w", err)
	}
	defer os.RemoveAll(env.Work) //nolint:errcheck // files of its own, in the folder for such
	res, err := c.Progress.Measure(s, "experiment "+c.Name, func(ctx context.Context, watch record.Watch) (*record.Result, error) {
		env.Watch = watch
		return lab.Experiment(ctx, c.Name, env)
	})
	return Conclude(s, res, err, c.Progress.Events == ToOutput, func(res *record.Result) ([]string, error) { return report.Files(c.Out, res) })
}

// Env is what the experiment runs in, without a folder for its files.
func (c *Run) Env() (experiment.Env, error) {
	env := experiment.Env{Mode: record.Quick, Seed: c.Seed, Only: c.Only}
	if c.Quick && c.Full {
		return env, cli.Usage("--quick and --full: only one of them", "leave one of them out")
	}
	if c.Full {
		env.Mode = record.Full
	}
	if info, err := os.Stat(c.Out); err == nil && !info.IsDir() {
		return env, cli.Usage(fmt.Sprintf("%s is not a folder", c.Out), "--out . writes here")
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // reports are meant to be read
		return env, fmt.Errorf("making the folder for the report: %w", err)
	}
	var err error
	if env.Millrace, err = millrace(c.Program); err != nil {
		return env, err
	}
	start := cmp.Or(c.Bench, ".")
	if env.Bench, err = subject.Find(start); err != nil && c.Bench != "" {
		return env, err
	}
	return env, nil // without a checkout only what needs no source is measured
}

// millrace finds the program to measure: the one that was named, the one beside this
// program, or the one in PATH. Where there is none, its arms are left out.
func millrace(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", cli.Failure(fmt.Errorf("--program: %w", err), "name a millrace: --program bin/millrace")
		}
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	for _, candidate := range []string{filepath.Join(filepath.Dir(self), "millrace"), "millrace"} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", nil
}
