package labcmd

import (
	"fmt"
	"io"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/lab/pgo"
)

// Predict is `millrace-lab pgo predict`.
type Predict struct {
	File string `arg:"" complete:"file" help:"A CPU profile."`
	JSON bool   `name:"json" help:"As JSON."`
}

// Run predicts.
func (c *Predict) Run(s cli.Streams) error {
	p, err := pgo.Read(c.File)
	if err != nil {
		return profileFailure(err)
	}
	found := pgo.Predict(p)
	if c.JSON {
		return s.WriteJSON(found)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s\n\n", found.Sentence(), found.Basis())
	for _, class := range pgo.Classes() {
		note := "not touched"
		if class == pgo.Go {
			note = "inlined further, called directly; " + percent(found.Hot) + " right below a hot call"
		}
		fmt.Fprintf(&b, "  %8s  %-21s  %s\n", percent(found.Shares[class]), class, note)
	}
	if len(found.Calls) > 0 {
		b.WriteString("\nhottest calls into Go code that is not inlined there yet:\n")
		for _, call := range found.Calls {
			fmt.Fprintf(&b, "  %8s  %s:%d → %s\n", percent(call.Share), call.Caller, call.Line, call.Callee)
		}
	}
	_, err = io.WriteString(s.Out, b.String())
	return err
}

// Diff is `millrace-lab pgo diff`.
type Diff struct {
	Base string `arg:"" complete:"file" help:"The CPU profile from before."`
	New  string `arg:"" complete:"file" help:"The CPU profile from after."`

	Top  int    `short:"n" default:"20" placeholder:"N" help:"How many functions to list. Default 20."`
	SVG  string `name:"svg" placeholder:"FILE" complete:"file" help:"Draw a flame graph of the difference: red grew, blue shrank."`
	JSON bool   `name:"json" help:"As JSON."`
}

// Run compares.
func (c *Diff) Run(s cli.Streams) error {
	base, err := pgo.Read(c.Base)
	if err != nil {
		return profileFailure(err)
	}
	after, err := pgo.Read(c.New)
	if err != nil {
		return profileFailure(err)
	}
	d := pgo.Diff(base, after)
	if c.SVG != "" {
		if err := writeWhole(c.SVG, d.Flame); err != nil {
			return err
		}
		s.Print("wrote %s\n", c.SVG)
	}
	top := d.Changes[:max(0, min(c.Top, len(d.Changes)))]
	if c.JSON {
		return s.WriteJSON(struct {
			Base    pgo.Side     `json:"base"`
			New     pgo.Side     `json:"new"`
			Moved   float64      `json:"moved"`
			Changes []pgo.Change `json:"changes"`
		}{d.Base, d.Other, d.Moved, top})
	}
	_, err = io.WriteString(s.Out, diffText(d, top))
	return err
}

func diffText(d *pgo.Difference, top []pgo.Change) string {
	var b strings.Builder
	for _, side := range []pgo.Side{d.Base, d.Other} {
		fmt.Fprintf(&b, "%s: %d samples, %.1f s of CPU time\n", side.Name, side.Samples, side.CPU)
	}
	fmt.Fprintf(&b, "shares of each one's own CPU time; %s of it is in other functions than before, chance included\n\n", percent(d.Moved))
	const row = "%8s  %8s  %8s  %1s  %s\n"
	fmt.Fprintf(&b, row, "points", "before", "after", "", "sort of code")
	for _, class := range pgo.Classes() {
		was, is := d.Base.Shares[class], d.Other.Shares[class]
		fmt.Fprintf(&b, row, points(is-was), percent(was), percent(is), "", class)
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, row, "points", "before", "after", "", "function")
	for _, c := range top {
		note := ""
		if c.Noise {
			note = "~"
		}
		fmt.Fprintf(&b, row, points(c.Delta()), percent(c.Base), percent(c.Other), note, c.Func)
	}
	b.WriteString("\n~: less than three standard errors, sampling alone could have made it\n")
	return b.String()
}
