package labcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"millrace/cmd/internal/cli"
	"millrace/lab/pgo"
)

// Merge is `millrace-lab pgo merge`.
type Merge struct {
	Profiles []string `arg:"" optional:"" complete:"file" help:"Profiles with their weights, FILE=WEIGHT. A weight says how much of the whole a profile is, however many samples it has; without one it is 1."`

	Weights string `short:"w" placeholder:"FILE" complete:"file" help:"Read profiles and weights from this file, one FILE=WEIGHT to a line, # begins a comment. Files are looked for beside it, or in --from."`
	From    string `placeholder:"DIR" complete:"dir" help:"The folder of the profiles in --weights."`
	Out     string `short:"o" default:"default.pgo" placeholder:"FILE" complete:"file" help:"Where to write the profile. The go command finds default.pgo beside a main package by itself. Default default.pgo."`
	MaxKB   int    `name:"max-kb" default:"300" placeholder:"KB" help:"Leave out the rarest stacks to stay below this size. Default 300."`
}

// weighted is a file with its weight.
type weighted struct {
	file   string
	weight float64
}

// Run merges.
func (c *Merge) Run(s cli.Streams) error {
	list, err := c.list()
	if err != nil {
		return err
	}
	if c.MaxKB < 1 {
		return cli.Usage(fmt.Sprintf("--max-kb %d: a profile has at least 1", c.MaxKB), "for instance --max-kb 300")
	}
	var parts []pgo.Part
	var sum float64
	for _, w := range list {
		p, err := pgo.Read(w.file)
		if err != nil {
			return profileFailure(err)
		}
		parts = append(parts, pgo.Part{Profile: p, Weight: w.weight})
		sum += w.weight
	}
	merged, err := pgo.Merge(parts, c.MaxKB<<10)
	if err != nil {
		return profileFailure(err)
	}
	if err := replaceFile(c.Out, merged.Data); err != nil {
		return err
	}
	table := tabwriter.NewWriter(s.Out, 0, 8, 2, ' ', 0)
	for _, p := range parts {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d samples\n", p.Profile.Name, percent(p.Weight/sum), p.Profile.Samples()) // into memory
	}
	if err := table.Flush(); err != nil {
		return err
	}
	s.Print("wrote %s: %d bytes, %d stacks", c.Out, len(merged.Data), merged.Stacks-merged.Dropped)
	if merged.Dropped > 0 {
		s.Print("; the %d rarest were left out for the size, with %s of the CPU time", merged.Dropped, percent(merged.Lost))
	}
	s.Print("\n")
	return nil
}

func (c *Merge) list() ([]weighted, error) {
	var out []weighted
	if c.Weights != "" {
		f, err := os.Open(c.Weights)
		if err != nil {
			return nil, fmt.Errorf("reading the weights: %w", err)
		}
		defer f.Close()
		dir := c.From
		if dir == "" {
			dir = filepath.Dir(c.Weights)
		}
		if out, err = readWeights(c.Weights, f, dir); err != nil {
			return nil, err
		}
	}
	for _, arg := range c.Profiles {
		w, err := parseWeight(arg)
		if err != nil {
			return nil, cli.Usage(err.Error(), "write FILE=WEIGHT, for instance files.pprof=3")
		}
		out = append(out, w)
	}
	if len(out) == 0 {
		return nil, cli.Usage("nothing to merge", "millrace-lab pgo merge files.pprof=3 ranges.pprof=1")
	}
	return out, nil
}

// parseWeight reads FILE=WEIGHT. A file whose own name has a = needs a weight.
func parseWeight(s string) (weighted, error) {
	at := strings.LastIndexByte(s, '=')
	if at < 0 {
		at = len(s)
		s += "=1"
	}
	file, number := strings.TrimSpace(s[:at]), strings.TrimSpace(s[at+1:])
	weight, err := strconv.ParseFloat(number, 64)
	switch {
	case file == "":
		return weighted{}, fmt.Errorf("%q names no file", s)
	case err != nil || !(weight > 0) || math.IsInf(weight, 0):
		return weighted{}, fmt.Errorf("the weight of %s is %q: it must be a number above 0", file, number)
	}
	return weighted{file, weight}, nil
}

// maxWeights is how many lines a file of weights may have; a merge takes no
// more than 100 profiles.
const maxWeights = 1000

// readWeights reads a file of weights; name is for errors, dir is where its
// profiles are.
func readWeights(name string, r io.Reader, dir string) ([]weighted, error) {
	var out []weighted
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		if n++; n > maxWeights {
			return nil, fmt.Errorf("%s has more than %d lines", name, maxWeights)
		}
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		w, err := parseWeight(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if !filepath.IsAbs(w.file) {
			w.file = filepath.Join(dir, w.file)
		}
		out = append(out, w)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: %w", name, errors.New("no profiles are named in it"))
	}
	return out, nil
}
