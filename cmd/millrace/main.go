// Millrace serves a site: files from a folder, fast, with nothing to set up.
//
//	millrace serve ./public              the folder, on http://127.0.0.1:8080
//	millrace cache http://127.0.0.1:5000 a slow API, answered from memory
//	millrace ws                          WebSockets: an echo, channels, a proxy
//	millrace serve ./photos --images     images as WebP and AVIF
//	millrace images ./photos             the same, converted ahead
//	millrace init                        a config to start from
//	millrace check                       what is wrong with the config
//	millrace serve                       by ./millrace.yaml
//
// While it serves:
//
//   - SIGINT or SIGTERM: no new connections, running requests end, then exit
//     with 0. A second one cuts them off, a third one ends whatever it does.
//   - SIGHUP: the config is read again. A bad one is reported, and the old one
//     goes on serving.
//   - SIGUSR1: the log file is opened again by its name, after a rotation.
//   - SIGUSR2: a CPU profile is taken into a file that the log names, in the
//     folder for temporary files; once more, or ten minutes, end it.
//
// The access log goes to the standard output unless a file is named; all that
// the server says itself goes to the standard error. With --log json each line
// of both is a JSON object. The exit status is 0 after
// an orderly end, 1 when something could not be done (an address in use, a
// folder that is not there, a config with mistakes), 2 when the command line
// itself is wrong.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1 // it could not be done
	exitUsage   = 2 // the command line is wrong
)

// program is the command line: one field for each verb, each in its own file.
type program struct {
	Serve      serveCommand      `cmd:"" help:"Serve a folder, or what a config says."`
	Cache      cacheCommand      `cmd:"" help:"Put a cache in front of a slow API, and talk to the one that runs."`
	WS         wsCommand         `cmd:"" name:"ws" help:"Answer WebSockets: an echo, channels or a proxy; publish to channels and listen to them."`
	Images     imagesCommand     `cmd:"" help:"Convert a folder's images ahead of time, remove outdated variants, show what it saves."`
	Check      checkCommand      `cmd:"" help:"Report all that is wrong with a config."`
	Init       initCommand       `cmd:"" help:"Write a config to start from."`
	Lab        labCommand        `cmd:"" help:"Measure servers: load one, compare several, run an experiment."`
	PGO        pgoCommand        `cmd:"" name:"pgo" help:"Profile-guided optimisation: record, judge, build with and prove profiles."`
	Version    versionCommand    `cmd:"" help:"Print which millrace this is."`
	Completion completionCommand `cmd:"" help:"Print a script that completes millrace's command line in a shell."`
	Man        manCommand        `cmd:"" help:"Print the manual page (in roff: pipe it to \"man -l -\")."`

	Which versionFlag `name:"version" hidden:"" help:"Print which millrace this is."` // the verb is in the help
}

// usageError is a command line that cannot be meant.
type usageError struct {
	message string
	hint    string // what to type instead
}

func (e usageError) Error() string { return e.message }

// failure is an error with what to do about it.
type failure struct {
	err  error
	hint string
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerVerb { // before all else: one starts for each image that waits
		os.Exit(convertImages(streams{os.Stdout, os.Stderr}))
	}
	taken := takeSignals(func() { os.Exit(exitFailure) })
	os.Exit(run(os.Args[1:], streams{os.Stdout, os.Stderr}, taken))
}

// run is main without the process.
func run(args []string, s streams, taken *signals) int {
	exit := -1
	parser, err := newParser(new(program), s, func(code int) { exit = code })
	if err != nil {
		s.say("millrace: %v\n", err) // a mistake in the tags above: every test would see it
		return exitFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	if exit >= 0 {
		return exit // --help has been answered
	}
	if err == nil && serves(ctx.Selected()) {
		patient := newConsole(s.err)
		defer patient.close()
		s.err = patient
		for _, set := range settings(ctx.Selected(), ctx.Path) {
			if set.Key == "log.format" {
				s.format(set.Values[0])
			}
		}
	} else {
		taken.release()
	}
	if err == nil {
		err = ctx.Run(parser, s, taken)
	} else {
		err = usage(err, parser)
	}
	return explain(err, s)
}

func newParser(p *program, s streams, exit func(int)) (*kong.Kong, error) {
	return kong.New(p,
		kong.Name("millrace"),
		kong.Description("Serves a site: files from a folder, fast, with nothing to set up."),
		kong.Writers(s.out, s.err),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Help(help),
	)
}

// examples end the help of a verb, and stand in the manual page.
func examples(verb string) []string {
	switch verb {
	case "serve":
		return []string{
			"millrace serve ./public                    # http://127.0.0.1:8080",
			"millrace serve ./public -l :80             # to everyone, port 80",
			"millrace serve ./photos --images           # images as WebP and AVIF",
			"millrace serve --config millrace.yaml      # as the config says",
			"millrace serve . -l unix:/run/web.sock     # behind another server",
		}
	case "check":
		return []string{"millrace check && systemctl reload millrace"}
	case "init":
		return []string{
			"millrace init && millrace check && millrace serve",
			"millrace init --from-json config.json      # from the published cache's config",
		}
	case "completion":
		return []string{
			"source <(millrace completion bash)                                  # in ~/.bashrc",
			"millrace completion zsh > \"${fpath[1]}/_millrace\"",
			"millrace completion fish > ~/.config/fish/completions/millrace.fish",
		}
	case "man":
		return []string{"millrace man | man -l -"}
	}
	for _, of := range []func(string) []string{cacheExamples, wsExamples, imagesExamples, labExamples} {
		if lines := of(verb); lines != nil {
			return lines
		}
	}
	return pgoExamples(verb)
}

// help is kong's help with the verb's examples below it.
func help(o kong.HelpOptions, ctx *kong.Context) error {
	group := ctx.Selected()
	if group != nil {
		if alone := defaultOf(group); alone != nil {
			ctx.Path = append(ctx.Path, &kong.Path{Parent: group, Command: alone, Flags: alone.Flags})
		} else {
			group = nil
		}
	}
	out := ctx.Stdout
	var text bytes.Buffer
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(o, ctx)
	ctx.Stdout = out
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, shortNames(text.String(), ctx.Model)); err != nil {
		return err
	}
	if group != nil {
		if err := listVerbs(ctx.Stdout, group); err != nil {
			return err
		}
	}
	lines := []string{"millrace serve ./public", "millrace cache http://127.0.0.1:5000", "millrace ws --channels", "millrace serve ./photos --images"}
	if n := ctx.Selected(); n != nil {
		lines = examples(words(n))
	}
	if len(lines) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(ctx.Stdout, "\nExamples:\n  %s\n", strings.Join(lines, "\n  "))
	return err
}

// shortNames calls the verbs that run when their group is named alone by the
// group's name, and keeps the columns.
func shortNames(text string, app *kong.Application) string {
	for _, n := range app.Children {
		if alone := defaultOf(n); alone != nil {
			long := n.Name + " " + alone.Name
			text = strings.ReplaceAll(text, "Usage: millrace "+long, "Usage: millrace "+n.Name)
			text = strings.ReplaceAll(text, "\n  "+long+" ", "\n  "+n.Name+strings.Repeat(" ", len(long)-len(n.Name)+1))
		}
	}
	return text
}

// listVerbs prints the other verbs of a group that is one itself.
func listVerbs(w io.Writer, group *kong.Node) error {
	var b strings.Builder
	b.WriteString("\nCommands:\n")
	for _, n := range group.Leaves(true) {
		if n != defaultOf(group) {
			fmt.Fprintf(&b, "  %-15s  %s\n", words(n), n.Help)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// usage makes a parser's complaint say where help is.
func usage(err error, parser *kong.Kong) error {
	verb, group := "", true // group: another word must follow
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context != nil && p.Context.Selected() != nil {
		verb, group = words(p.Context.Selected())+" ", !p.Context.Selected().Leaf()
	}
	message := err.Error()
	before, unexpected := strings.CutPrefix(message, "unexpected argument ")
	if unexpected && verb == "ws " {
		return notForWS(before, parser.Model.Node)
	}
	if unexpected && group {
		name, more, _ := strings.Cut(before, ",")
		message = fmt.Sprintf("there is no command %q", verb+name)
		if more != "" {
			message += "," + more
		}
	}
	return usageError{message, fmt.Sprintf("`%s %s--help` lists what there is", parser.Model.Name, verb)}
}

// explain prints an error, with what to do about it, and gives its exit status.
func explain(err error, s streams) int {
	if err == nil {
		return exitOK
	}
	hint, code := "", exitFailure
	if f, ok := errors.AsType[failure](err); ok {
		hint = f.hint
	}
	if u, ok := errors.AsType[usageError](err); ok {
		hint, code = u.hint, exitUsage
	}
	s.fail(err, hint)
	return code
}
