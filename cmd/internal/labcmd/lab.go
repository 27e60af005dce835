// Package labcmd is the program millrace-lab: the verbs that measure servers, and those
// about profiles for guided optimisation.
package labcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
	"millrace/lab/live"
	"millrace/lab/record"
	"millrace/lab/report"
)

// command is the command line: one field for each verb.
type command struct {
	Load    Load    `cmd:"" help:"Load a server and say how it did."`
	Compare Compare `cmd:"" help:"Hold servers against each other until it is clear which is better."`
	List    List    `cmd:"" help:"List the built-in experiments."`
	Run     Run     `cmd:"" help:"Run a built-in experiment."`
	Report  Report  `cmd:"" help:"Draw a stored result again."`
	PGO     PGO     `cmd:"" name:"pgo" help:"Profile-guided optimisation: record, judge, build with and prove profiles."`

	Version    cli.VersionCommand `cmd:"" help:"Print which millrace-lab this is."`
	Completion cli.Completion     `cmd:"" help:"Print a script that completes millrace-lab's command line in a shell."`
	Man        cli.Man            `cmd:"" help:"Print the manual page (in roff: pipe it to \"man -l -\")."`

	Which bool `name:"version" hidden:"" alone:"" help:"Print which millrace-lab this is."` // the verb is in the help
}

// name is the program's, and about the first line of its help.
const (
	name  = "millrace-lab"
	about = "Measures servers: loads one, compares several, runs experiments, and proves what profiles bring."
)

// Model is the command line.
func Model() (*kong.Kong, error) { return cli.New(name, about, new(command)) }

// Main is the program but for the end of its process: it returns the exit status.
func Main(args []string, s cli.Streams) int {
	s.Program = name
	if len(args) == 0 {
		args = []string{"--help"}
	}
	model, err := Model()
	if err != nil {
		s.Print(name+": %v\n", err) // a mistake in the tags: every test would see it
		return cli.ExitFailure
	}
	ctx, alone, err := cli.Parse(model, args)
	switch {
	case err != nil:
		err = cli.CommandUsage(err, nil)
	case alone == nil:
		err = run(ctx, model, s)
	case alone.Name == "version":
		err = (&cli.VersionCommand{}).Run(s)
	default:
		_, err = io.WriteString(s.Out, cli.Page(cli.Selected(ctx), Examples()))
	}
	return s.Explain(err)
}

// run calls a verb's Run with what it takes.
func run(ctx *kong.Context, model *kong.Kong, s cli.Streams) error {
	switch v := cli.Selected(ctx).Target.Addr().Interface().(type) {
	case interface{ Run(s cli.Streams) error }:
		return v.Run(s)
	case interface {
		Run(k *kong.Kong, s cli.Streams) error
	}:
		return v.Run(model, s)
	case interface {
		Run(k *kong.Kong, s cli.Streams, of cli.Examples) error
	}:
		return v.Run(model, s, Examples())
	}
	return fmt.Errorf("%s has no Run of those that there are", cli.Words(cli.Selected(ctx)))
}

// Progress are what the verbs that measure have in common.
type Progress struct {
	Events string `placeholder:"FILE" complete:"file" help:"Write what happens, as it happens, to this file, each event as a line of JSON; - is the standard output."`
}

// Measure runs work while the person at the terminal watches: a live view where
// there is a terminal, plain lines on the standard error elsewhere. The standard
// output stays free for the result. An interrupt ends work's context, a second
// one the program.
func (p Progress) Measure(s cli.Streams, title string, work func(ctx context.Context, watch record.Watch) (*record.Result, error)) (*record.Result, error) {
	ctx, stop := cli.UntilInterrupted()
	defer stop()
	events, done, err := p.events(s)
	if err != nil {
		return nil, err
	}
	var res *record.Result
	run := func(ctx context.Context, watch record.Watch) (err error) {
		res, err = work(ctx, func(e record.Event) {
			events(e)
			watch(e)
		})
		if res != nil {
			v := cli.Read()
			res.Version, res.Command = strings.TrimSpace(v.Version+" "+v.Revision), os.Args
			events(record.Event{Time: time.Now(), Kind: record.EventEnd, Text: strings.Join(report.Sentence(res), "\n"), Verdicts: res.Verdicts, Done: 1})
		}
		return err
	}
	if terminal := s.Terminal(); terminal != nil && p.Events != ToOutput {
		err = live.Show(ctx, terminal, title, run)
		if errors.Is(err, live.ErrForced) {
			return nil, err // the work still has its hands on res
		}
	} else {
		err = run(ctx, live.Plain(s.Err))
	}
	return res, errors.Join(err, done())
}

// ToOutput is the name of a file that means the standard output.
const ToOutput = "-"

// events is where --events goes; done closes it, and says whether all of it was
// written.
func (p Progress) events(s cli.Streams) (watch record.Watch, done func() error, err error) {
	switch p.Events {
	case "":
		return func(record.Event) {}, func() error { return nil }, nil
	case ToOutput:
		return live.NDJSON(s.Out), func() error { return nil }, nil
	}
	f, err := os.Create(p.Events)
	if err != nil {
		return nil, nil, fmt.Errorf("writing the events: %w", err)
	}
	return live.NDJSON(f), f.Close, nil
}

// summaryWidth is that of the summary where there is no terminal to fit in.
const summaryWidth = 100

// Conclude prints what was found on the standard output, keeps it in files, and
// makes an error of what must not be taken for a finding. Where the standard
// output is for JSON, the text goes to the standard error.
func Conclude(s cli.Streams, res *record.Result, err error, json bool, keep func(*record.Result) ([]string, error)) error {
	if res == nil || len(res.Samples)+len(res.Tables) == 0 {
		if err == nil {
			err = errors.New("stopped before anything was measured")
		}
		return err
	}
	to := s.Out
	if json {
		to = s.Err
	}
	if textErr := report.Text(to, res, live.Width(to, summaryWidth)); textErr != nil {
		err = errors.Join(err, textErr)
	}
	files, keepErr := keep(res)
	for _, f := range files {
		s.Print("wrote %s\n", f)
	}
	switch err = errors.Join(err, keepErr); {
	case err != nil:
		return err
	case res.Void():
		return cli.Failure(errors.New("the result is void: a check of the measurement itself failed"), "see the checks above for which, and what was allowed")
	case res.Interrupted != "":
		return errors.New(res.Interrupted)
	}
	return nil
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	load := []string{
		"millrace-lab load http://127.0.0.1:8080/ -c 50 -d 10s",
		"millrace-lab load https://127.0.0.1:8443/ -k --protocol http2 --streams 8",
		"millrace-lab load http://127.0.0.1:8080/ --rate 2000 --poisson --html load.html",
		"millrace-lab load http://127.0.0.1:8080/login --form user={{user}} --data users.csv --expect 'status 303'",
		"millrace-lab load ws://127.0.0.1:8080/echo -c 1000",
	}
	run := []string{"millrace-lab run embed-vs-disk --quick --out results"}
	all := cli.Examples{
		"": load, "load": load,
		"compare": {
			"millrace-lab compare A=http://127.0.0.1:8080/ B=http://127.0.0.1:8081/",
			"millrace-lab compare old='./old -listen 127.0.0.1:{port}' new='./new -listen 127.0.0.1:{port}' --html compare.html",
		},
		"run": run, "list": run,
		"report": {"millrace-lab report results/embed-vs-disk.json"},
	}
	maps.Copy(all, pgoExamples())
	maps.Copy(all, cli.OwnExamples(name))
	return all
}
