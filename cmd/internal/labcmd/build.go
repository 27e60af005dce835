package labcmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/lab/pgo"
)

// Build is `millrace-lab pgo build`.
type Build struct {
	Package string `arg:"" optional:"" default:"." complete:"dir" help:"The main package, as for go build. Default: this folder."`

	Profile string   `short:"p" placeholder:"FILE" complete:"file" help:"The CPU profile. Default: default.pgo in the package's folder."`
	Out     string   `short:"o" placeholder:"FILE" complete:"file" help:"The executable. Default: the package's name, here."`
	Flag    []string `sep:"none" placeholder:"FLAG" help:"Hand this to go build: --flag=-trimpath. May be repeated."`
}

// Run builds and shows the proof.
func (c *Build) Run(s cli.Streams) error {
	profile := c.Profile
	if profile == "" {
		profile = filepath.Join(c.Package, "default.pgo")
		if _, err := os.Stat(profile); err != nil {
			return cli.Failure(fmt.Errorf("there is no %s", profile), "name a profile: millrace-lab pgo build --profile cpu.pprof")
		}
	}
	out := c.Out
	if out == "" {
		dir, err := filepath.Abs(c.Package)
		if err != nil {
			return fmt.Errorf("naming the executable: %w", err)
		}
		out = filepath.Base(dir)
	}
	for _, f := range c.Flag {
		if name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name == "pgo" || name == "o" {
			return cli.Usage(f+" is this command's own business", "--profile FILE says what to build with, -o FILE where to put it")
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s.Print("building %s with %s: everything is compiled anew the first time, which takes a minute or so\n", c.Package, profile)
	built, err := pgo.Build{Package: packagePath(c.Package), Profile: profile, Out: out, Flags: c.Flag}.Run(ctx)
	if err != nil {
		return profileFailure(err)
	}
	_, err = fmt.Fprintf(s.Out, "%s: %.1f MB, built in %v with %s\n\tbuild\t-pgo=%s\n",
		out, float64(built.Size)/1e6, built.Took.Round(100*time.Millisecond), built.Go, built.Proof)
	return err
}

// packagePath makes a folder of what names one: the go command would look for
// cmd/x in the standard library.
func packagePath(name string) string {
	if filepath.IsAbs(name) || strings.HasPrefix(name, ".") {
		return name
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "./" + filepath.ToSlash(name)
	}
	return name
}
