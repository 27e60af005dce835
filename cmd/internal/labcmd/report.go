package labcmd

import (
	"fmt"
	"os"

	"millrace/cmd/internal/cli"
	"millrace/lab/live"
	"millrace/lab/record"
	"millrace/lab/report"
)

// Report is `millrace-lab report`.
type Report struct {
	Files []string `arg:"" name:"file" complete:"file" help:"Results that --json or run wrote."`
	Out   string   `placeholder:"DIR" complete:"dir" help:"Write NAME.html, .md, .txt (for benchstat) and PNGs there, but over no file that is there."`
	Into  string   `placeholder:"FILE" complete:"file" help:"Instead, put one table of all results into this Markdown file, between <!-- lab:benchmarks --> and <!-- /lab:benchmarks -->."`
}

// marker names the place of the table in a Markdown file.
const marker = "benchmarks"

// Run draws stored results.
func (c *Report) Run(s cli.Streams) error {
	results := make([]*record.Result, 0, len(c.Files))
	for _, name := range c.Files {
		res, err := readResult(name)
		if err != nil {
			return err
		}
		results = append(results, res)
	}
	if c.Into != "" {
		return into(c.Into, results)
	}
	for _, res := range results {
		if err := report.Text(s.Out, res, live.Width(s.Out, summaryWidth)); err != nil {
			return err
		}
		if c.Out == "" {
			continue
		}
		files, err := report.Draw(c.Out, res)
		for _, name := range files {
			s.Print("wrote %s\n", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readResult(name string) (*record.Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", err)
	}
	defer f.Close()
	res, err := report.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return res, nil
}

// into replaces the table in a Markdown file.
func into(name string, results []*record.Result) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading the file for the table: %w", err)
	}
	if text, err = report.TableInto(text, marker, report.SummaryTable(results)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil { // a readme is meant to be read
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
