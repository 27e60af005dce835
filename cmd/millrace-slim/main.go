// Millrace-slim is a base for `millrace pack --base`: the part of Millrace that
// serves a packed site of files, and no more. It has no site of its own.
//
//	packaging/compile -o millrace-slim ./cmd/millrace-slim
//	millrace pack ./public -o site --base millrace-slim
//	./site --listen :80
//
// Built from it, FILE takes the flags for listeners, TLS and the log that a full
// millrace takes, and the verbs list, verify, unpack and version. There is no admin
// listener. Of signals, SIGTERM and SIGINT drain, SIGUSR1 has the log file opened
// again, and SIGHUP, which has other servers read their config again, does nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"millrace/internal/engine/slim"
	"millrace/internal/observe/redact"
	"millrace/static/packfile"
)

const usage = `usage: FILE [--listen ADDR]... [--tls-listen ADDR]... [--tls-cert FILE --tls-key FILE]
            [--log combined|common|json|off] [--log-file FILE] [--no-lane]
       FILE list [--json]     what is in this file
       FILE verify            compare everything with the sums made when it was packed
       FILE unpack DIR        write the site's files into a folder
       FILE version           which millrace serves it
`

// errUsage is a command line that cannot be meant.
var errUsage = errors.New("the command line")

func main() {
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "millrace: %v\n%s", err, usage)
		os.Exit(2)
	case errors.Is(err, packfile.ErrNone):
		fmt.Fprintln(os.Stderr, "millrace-slim: there is no site in this file: `millrace pack DIR -o FILE --base "+os.Args[0]+"` packs one")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "millrace:", err)
		os.Exit(1)
	}
}

// run is main without the process.
func run(args []string) error {
	site, err := packfile.OpenSelf()
	if err != nil {
		return err
	}
	verb := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	switch {
	case verb == "list" && len(args) == 1 && args[0] == "--json":
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(site.Listed())
	case verb == "list" && len(args) == 0:
		return site.WriteList(os.Stdout)
	case verb == "verify" && len(args) == 0:
		if err = site.Verify(func() {}); err == nil {
			_, err = fmt.Printf("%d files and the program are as they were packed\n", site.Files())
		}
		return err
	case verb == "unpack" && len(args) == 1:
		return site.Unpack(args[0], "millrace.yaml")
	case verb == "version" && len(args) == 0:
		return version()
	case verb != "":
		return fmt.Errorf("%w: unexpected %q", errUsage, strings.Join(append([]string{verb}, args...), " "))
	}
	plan, err := slim.ReadPlan(site)
	if err != nil {
		return err
	}
	if err := flags(&plan, args); err != nil {
		return err
	}
	return serve(plan, site)
}

// version says which millrace this is.
func version() error {
	built := "dev"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		built = info.Main.Version
	}
	_, err := fmt.Printf("millrace-slim %s, %s, %s/%s\n", built, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// flags puts the command line on top of the plan.
func flags(p *slim.Plan, args []string) error {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var listen, secure []string
	to := func(list *[]string) func(string) error {
		return func(s string) error {
			*list = append(*list, s)
			return nil
		}
	}
	f.Func("listen", "", to(&listen))
	f.Func("l", "", to(&listen))
	f.Func("tls-listen", "", to(&secure))
	f.StringVar(&p.TLS.Cert, "tls-cert", p.TLS.Cert, "")
	f.StringVar(&p.TLS.Key, "tls-key", p.TLS.Key, "")
	f.StringVar(&p.Log.Format, "log", p.Log.Format, "")
	f.StringVar(&p.Log.File, "log-file", p.Log.File, "")
	f.BoolVar(&p.Lane.Off, "no-lane", p.Lane.Off, "")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err //nolint:wrapcheck // not a failure
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case f.NArg() > 0:
		return fmt.Errorf("%w: unexpected %q", errUsage, f.Arg(0))
	}
	if listen != nil {
		p.Listen = listen
	}
	if secure != nil {
		p.TLS.Listen = secure
	}
	return nil
}

// serve serves until a signal ends it.
func serve(p slim.Plan, site *packfile.Site) error {
	signals := make(chan os.Signal, 4) // more at once say nothing new
	signal.Notify(signals, taken()...)
	defer signal.Stop(signals)
	s, err := slim.New(p, site, slog.New(redact.Handler(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "millrace-slim serves the %d files packed in it\n\n  %s\n\n", site.Files(), strings.Join(s.Addrs(), "\n  "))
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // ends with Run, which is waited for below
	damaged := make(chan error, 1)
	go func() { damaged <- site.CheckAll(ctx) }() // ends with the site or the process
	for {
		select {
		case err := <-done:
			return err
		case err := <-damaged:
			if err != nil {
				s.Close()
				return errors.Join(err, <-done)
			}
			damaged = nil
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP: // there is no config to read again
			case sig != os.Interrupt && sig != syscall.SIGTERM:
				if err := s.ReopenLogs(); err != nil {
					fmt.Fprintln(os.Stderr, "millrace: the log file was not reopened:", err)
				}
			case ctx.Err() != nil:
				s.Close()
			default:
				drain()
			}
		}
	}
}
