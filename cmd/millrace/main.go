// Millrace serves a site: files from a folder, fast, with nothing to set up.
//
//	millrace serve ./public              the folder, on http://127.0.0.1:8080
//	millrace cache http://127.0.0.1:5000 a slow API, answered from memory
//	millrace ws                          WebSockets: an echo, channels, a proxy
//	millrace serve ./photos --images     images as WebP and AVIF
//	millrace images ./photos             the same, converted ahead
//	millrace pack ./public -o site       one executable that is the site
//	millrace init                        a config to start from
//	millrace check                       what is wrong with the config
//	millrace explain /a                  which file, rule or upstream answers
//	millrace serve                       by ./millrace.yaml
//	millrace serve . --domain a.example  HTTPS, with certificates that come by themselves
//	millrace certs                       which there are, and what went wrong
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
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cachecmd"
	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/docscmd"
	"millrace/cmd/internal/explaincmd"
	"millrace/cmd/internal/imagescmd"
	"millrace/cmd/internal/importcmd"
	"millrace/cmd/internal/opscmd"
	"millrace/cmd/internal/packcmd"
	"millrace/cmd/internal/servecmd"
	"millrace/cmd/internal/wscmd"
	"millrace/static/packfile"
)

// program is the command line: one field for each verb or group of them.
type program struct {
	Serve      servecmd.Serve     `cmd:"" help:"Serve a folder, or what a config says."`
	Cache      cachecmd.Command   `cmd:"" help:"Put a cache in front of a slow API, and talk to the one that runs."`
	WS         wscmd.Command      `cmd:"" name:"ws" help:"Answer WebSockets: an echo, channels or a proxy; publish to channels and listen to them."`
	Images     imagescmd.Command  `cmd:"" help:"Convert a folder's images ahead of time, remove outdated variants, show what it saves."`
	Certs      opscmd.Certs       `cmd:"" help:"List the certificates that come by themselves, and what went wrong."`
	Trust      opscmd.Trust       `cmd:"" help:"Print how to trust the CA of this machine's own, of --tls internal."`
	Pack       packcmd.Pack       `cmd:"" help:"Pack a site into one executable, which serves it."`
	Check      servecmd.Check     `cmd:"" help:"Report all that is wrong with a config."`
	Explain    explaincmd.Explain `cmd:"" help:"Say what answers a URL by a config, and why: site, rule, route, file or upstream, hot or cold."`
	Top        opscmd.Top         `cmd:"" help:"Show a running server's figures in the terminal: what is wrong, rates, times, caches, upstreams."`
	Slow       opscmd.Slow        `cmd:"" help:"List the requests that took far longer than usual, and what they waited for."`
	Upgrade    servecmd.Upgrade   `cmd:"" help:"Start the program of a running server anew, without a lost request."`
	Reload     servecmd.Reload    `cmd:"" help:"Have a running server read its config again, and say whether it could."`
	Init       servecmd.Init      `cmd:"" help:"Write a config to start from."`
	Password   opscmd.Hash        `cmd:"" name:"hash-password" help:"Hash a password from the standard input, for auth."`
	Sign       opscmd.Sign        `cmd:"" help:"Sign an address: who has it is let in for a while, where auth says \"signed\"."`
	Import     importcmd.Command  `cmd:"" help:"Bring the config of another server along."`
	Compare    importcmd.Compare  `cmd:"" name:"compare-config" help:"Run nginx, Caddy or Apache by its config and Millrace by its own, and show in what their answers differ."`
	Version    cli.VersionCommand `cmd:"" help:"Print which millrace this is."`
	Completion cli.Completion     `cmd:"" help:"Print a script that completes millrace's command line in a shell."`
	Docs       docscmd.Docs       `cmd:"" help:"Show the manual in the terminal, or serve it as a site with a search."`
	Man        cli.Man            `cmd:"" help:"Print the manual page (in roff: pipe it to \"man -l -\")."`

	Health      opscmd.Health      `cmd:"" help:"Say whether a running server takes requests; the exit status is 0 if so. For a container's health check."`
	Maintenance opscmd.Maintenance `cmd:"" help:"Close all sites of a running server for a while, or open them again."`

	Which bool `name:"version" hidden:"" alone:"" help:"Print which millrace this is."` // the verb is in the help
}

func main() {
	s := cli.Streams{Out: os.Stdout, Err: os.Stderr}
	if len(os.Args) > 1 && os.Args[1] == imagescmd.Verb { // before all else: one starts for each image that waits
		if err := imagescmd.Main(); err != nil {
			s.Print("millrace: converting images: %v\n", err)
			os.Exit(cli.ExitFailure)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == servecmd.HelperVerb {
		if err := servecmd.Help(os.Args[2:]); err != nil {
			s.Print("millrace: %v\n", err)
			os.Exit(cli.ExitFailure)
		}
		return
	}
	taken := servecmd.TakeSignals(func() { os.Exit(cli.ExitFailure) })
	site, err := packfile.OpenSelf()
	switch {
	case err == nil:
		os.Exit(runPacked(os.Args[1:], s, taken, site))
	case errors.Is(err, packfile.ErrAltered): // what cannot be read is a program without a site
		os.Exit(s.Explain(packcmd.Damaged(err)))
	}
	os.Exit(run(os.Args[1:], s, taken))
}

// about is the first line of the help.
const about = "Serves a site: files from a folder, fast, with nothing to set up."

// run is main without the process.
func run(args []string, s cli.Streams, taken *servecmd.Signals) int {
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(args[1:len(args):len(args)], "--help")
	}
	return act(new(program), "millrace", args, job{Streams: s, taken: taken, examples: examples()})
}

// runPacked is run for a program with a site.
func runPacked(args []string, s cli.Streams, taken *servecmd.Signals, site *packfile.Site) int {
	return act(new(packcmd.Program), filepath.Base(os.Args[0]), args, job{Streams: s, taken: taken, site: site})
}

// job is what verbs are run with.
type job struct {
	cli.Streams
	taken    *servecmd.Signals
	examples cli.Examples   // none for a program with a site: they are about millrace
	site     *packfile.Site // nil but for a program with one
}

// act does what a command line says, and returns the exit status.
func act(structs any, name string, args []string, j job) int {
	model, err := cli.New(name, about, structs)
	if err != nil {
		j.Print("millrace: %v\n", err) // a mistake in the tags: every test would see it
		return cli.ExitFailure
	}
	ctx, alone, err := cli.Parse(model, args)
	if err == nil && alone == nil && servecmd.Serves(ctx) {
		stderr := cli.NewBufferedStderr(j.Err)
		defer stderr.Close()
		j.Err = stderr
		j.Format(servecmd.TypedLogFormat(cli.Settings(ctx)))
	} else {
		j.taken.Release()
	}
	switch {
	case err != nil:
		err = cli.CommandUsage(err, map[string]cli.Unexpected{"ws": wscmd.Unexpected, "": moved})
	case alone == nil:
		err = j.runner(cli.Selected(ctx), ctx, model)()
	case alone.Name == "version":
		err = (&cli.VersionCommand{}).Run(j.Streams)
	default:
		_, err = io.WriteString(j.Out, cli.Page(cli.Selected(ctx), j.examples))
	}
	return j.Explain(err)
}

// moved says where verbs went that measure; nil: it is none of them.
func moved(word string, _ *kong.Node) error {
	switch word {
	case "lab":
		return cli.Usage("measuring has a program of its own: millrace-lab", "type millrace-lab in place of millrace lab: it is in the archives beside millrace, and go build ./cmd/millrace-lab makes it")
	case "pgo":
		return cli.Usage("profiles are the lab's, which is a program of its own: millrace-lab", "type millrace-lab pgo in place of millrace pgo: it is in the archives beside millrace, and go build ./cmd/millrace-lab makes it")
	}
	return nil
}

// runner calls a verb's Run with what it takes; it is nil when there is no such
// case, which TestVerbsRun would see. Kong's own would keep the model of the command
// line, half a megabyte, for as long as a server runs.
func (j job) runner(verb *kong.Node, ctx *kong.Context, model *kong.Kong) func() error {
	switch v := verb.Target.Addr().Interface().(type) {
	case interface{ Run(s cli.Streams) error }:
		return func() error { return v.Run(j.Streams) }
	case interface {
		Run(ctx *kong.Context, s cli.Streams) error
	}:
		return func() error { return v.Run(ctx, j.Streams) }
	case interface {
		Run(k *kong.Kong, s cli.Streams) error
	}:
		return func() error { return v.Run(model, j.Streams) }
	case interface {
		Run(k *kong.Kong, s cli.Streams, of cli.Examples) error
	}:
		return func() error { return v.Run(model, j.Streams, j.examples) }
	case interface {
		Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals) error
	}:
		return func() error { return v.Run(ctx, j.Streams, j.taken) }
	case interface {
		Run(s cli.Streams, site *packfile.Site) error
	}:
		return func() error { return v.Run(j.Streams, j.site) }
	case interface {
		Run(ctx *kong.Context, s cli.Streams, taken *servecmd.Signals, site *packfile.Site) error
	}:
		return func() error { return v.Run(ctx, j.Streams, j.taken, j.site) }
	}
	return nil
}

// examples end the help of a verb, and stand in the manual page.
func examples() cli.Examples {
	all := cli.Examples{"": {"millrace serve ./public", "millrace cache http://127.0.0.1:5000", "millrace ws --channels", "millrace serve ./photos --images"}}
	for _, more := range []cli.Examples{
		cli.OwnExamples("millrace"), servecmd.Examples(), cachecmd.Examples(), wscmd.Examples(), imagescmd.Examples(), packcmd.Examples(),
		opscmd.CertsExamples(), opscmd.PasswordExamples(), explaincmd.Examples(), importcmd.Examples(), opscmd.MaintenanceExamples(), opscmd.HealthExamples(), docscmd.Examples(), opscmd.SlowExamples(), opscmd.TopExamples(),
	} {
		maps.Copy(all, more)
	}
	return all
}
