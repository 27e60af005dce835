package labcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/lab/experiment/proof"
	"millrace/lab/record"
	"millrace/lab/report"
	"millrace/lab/subject"
)

// Prove is `millrace-lab pgo prove`.
type Prove struct {
	Package string `arg:"" optional:"" complete:"dir" help:"The main package to build without and with the profile. Default: millrace's own, in the checkout that this folder is in."`

	Profile string   `short:"p" placeholder:"FILE" complete:"file" help:"The CPU profile to build with. Default: default.pgo in the package's folder."`
	Without string   `placeholder:"FILE" complete:"file" help:"An executable that was built without the profile, instead of building one."`
	With    string   `placeholder:"FILE" complete:"file" help:"The same program, built with the profile."`
	Args    string   `placeholder:"ARGS" help:"What makes the program serve; {port} stands for its port on 127.0.0.1: 'serve --listen 127.0.0.1:{port}'."`
	Path    []string `placeholder:"PATH" help:"Ask for this path. May be repeated. Default /."`

	Connections int    `short:"c" default:"50" placeholder:"N" help:"Connections open at once. Default 50."`
	Quick       bool   `help:"Within 90 seconds, as far as building allows. This is the default."`
	Full        bool   `help:"Within 15 minutes, with figures to rely on."`
	Out         string `default:"." placeholder:"DIR" complete:"dir" help:"Where to write pgo-prove.json, .html, .md and .txt (for benchstat)."`
	Bench       string `placeholder:"DIR" complete:"dir" help:"The bench folder of millrace's checkout. Default: the checkout that this folder is in."`
	Seed        uint64 `placeholder:"N" help:"Repeat the order of another run."`

	Progress Progress `embed:""`
}

// Run measures.
func (c *Prove) Run(s cli.Streams) error {
	p, err := c.proof()
	if err != nil {
		return err
	}
	run := Run{Name: "pgo-prove", Quick: c.Quick, Full: c.Full, Out: c.Out, Bench: c.Bench, Seed: c.Seed}
	env, err := run.Env()
	if err != nil {
		return err
	}
	if p.Args == nil && p.Without == "" && env.Bench == nil {
		_, err := subject.Find(".")
		return cli.Failure(err, "or name two executables: "+pgoExamples()["pgo prove"][1])
	}
	if env.Work, err = os.MkdirTemp("", "millrace-pgo-"); err != nil {
		return fmt.Errorf("making a folder for the executables: %w", err)
	}
	defer os.RemoveAll(env.Work) //nolint:errcheck // files of its own, in the folder for such
	res, err := c.Progress.Measure(s, "proof of a profile", func(ctx context.Context, watch record.Watch) (*record.Result, error) {
		env.Watch = watch
		return proof.Prove(ctx, env, p)
	})
	return profileFailure(Conclude(s, res, err, c.Progress.Events == ToOutput, func(res *record.Result) ([]string, error) { return report.Files(c.Out, res) }))
}

// proof is what was asked for.
func (c *Prove) proof() (proof.Proof, error) {
	p := proof.Proof{Profile: c.Profile, Without: c.Without, With: c.With, Paths: c.Path, Connections: c.Connections}
	switch {
	case (c.Without == "") != (c.With == ""):
		return p, cli.Usage("--without and --with: both are needed, or none", pgoExamples()["pgo prove"][1])
	case c.Without != "" && (c.Package != "" || c.Profile != ""):
		return p, cli.Usage("two executables, and a package or profile to build: only one of them can be measured", "leave --without and --with out to build")
	case c.Package != "" && c.Args == "":
		return p, cli.Usage("nobody knows how "+c.Package+" serves", "say so: --args 'serve --listen 127.0.0.1:{port}'")
	case c.Args != "" && c.Package == "" && c.Without == "":
		return p, cli.Usage("--args are for a package or two executables", "name them: millrace-lab pgo prove PACKAGE --args '"+c.Args+"'")
	case c.Args != "" && !strings.Contains(c.Args, "{port}"):
		return p, cli.Usage("--args need {port} where the program's port goes, so that several can run side by side", "for instance --args '--listen 127.0.0.1:{port}'")
	case c.Connections < 1:
		return p, cli.Usage(fmt.Sprintf("%d connections load nothing", c.Connections), "--connections 50")
	}
	for _, path := range c.Path {
		if !strings.HasPrefix(path, "/") {
			return p, cli.Usage(fmt.Sprintf("--path %q: a path begins with /", path), "--path /"+path)
		}
	}
	if c.Args != "" {
		p.Args = strings.Fields(c.Args)
	}
	if c.Package != "" {
		p.Package = packagePath(c.Package)
	}
	for _, file := range []*string{&p.Profile, &p.Without, &p.With} {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file)
		if err != nil {
			return p, fmt.Errorf("finding %s: %w", *file, err)
		}
		*file = abs
	}
	return p, nil
}
