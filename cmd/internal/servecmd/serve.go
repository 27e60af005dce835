// Package servecmd has the verbs about a site and its config: serve, check and
// init. The other verbs that serve hand it what they serve.
package servecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/imagescmd"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/process/handover"
	"millrace/static/packfile"
)

// Serve is `millrace serve`.
type Serve struct {
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder to serve. Without it, and without --config: ./millrace.yaml if there is one, else this folder."`
	Config string `short:"c" placeholder:"FILE" complete:"file" env:"MILLRACE_CONFIG" help:"Serve what this config says."`

	Listing       bool     `env:"MILLRACE_LISTING" help:"List the folders that have no index.html."`
	Images        bool     `env:"MILLRACE_IMAGES" help:"Convert the folder's images to WebP and AVIF for browsers that take them."`
	ImagesQuality int      `placeholder:"N" key:"images.quality" env:"MILLRACE_IMAGES_QUALITY" help:"The quality of converted images, 1 to 100. Default 80."`
	ImagesFormats []string `placeholder:"FORMAT" values:"avif,webp" key:"images.formats" env:"MILLRACE_IMAGES_FORMATS" help:"What images are converted to: avif, webp or both. Default both."`
	ImagesStore   string   `placeholder:"DIR" complete:"dir" key:"images.store" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted. Default: one below the user's cache folder."`

	Flags `embed:""`
}

// Flags are those of every verb that serves. A flag's key is the one of
// the config that it sets; it wins over the file.
type Flags struct {
	Listen     []Address        `short:"l" placeholder:"ADDR" key:"listen" env:"MILLRACE_LISTEN" help:"Serve at this address: host:port, :port (every interface) or unix:/path. May be repeated. Default 127.0.0.1:8080."`
	Domain     []string         `placeholder:"NAME" key:"tls.auto.hosts" env:"MILLRACE_DOMAIN" help:"Serve HTTPS under this name, with a certificate that comes by itself, at :443, and redirect from :80. May be repeated."`
	HTTPS      bool             `name:"https" key:"tls.auto.addresses" env:"MILLRACE_HTTPS" help:"Serve HTTPS under this machine's public IP addresses, with certificates of a few days that come by themselves, at :443, and redirect from :80."`
	TLS        string           `name:"tls" placeholder:"HOW" values:"on,internal" key:"tls.auto" env:"MILLRACE_TLS" help:"Get certificates by itself: on, from a public CA for the config's hosts, or internal, from a CA of this machine's own, for development. Default off."`
	TLSCert    string           `name:"tls-cert" placeholder:"FILE" complete:"file" key:"tls.cert" env:"MILLRACE_TLS_CERT" help:"The certificate for HTTPS with its chain (PEM), read again when it changes."`
	TLSKey     string           `name:"tls-key" placeholder:"FILE" complete:"file" key:"tls.key" env:"MILLRACE_TLS_KEY" help:"The certificate's private key (PEM)."`
	TLSListen  []Address        `name:"tls-listen" placeholder:"ADDR" key:"tls.listen" env:"MILLRACE_TLS_LISTEN" help:"Serve HTTPS at this address. May be repeated."`
	Log        LogFormat        `placeholder:"FORMAT" values:"combined,common,json,off" key:"log.format" env:"MILLRACE_LOG" help:"How to log requests: combined, common, json or off. Default combined. With json all other messages are JSON lines as well."`
	LogFile    string           `placeholder:"FILE" complete:"file" key:"log.file" env:"MILLRACE_LOG_FILE" help:"Log requests to this file instead of the standard output."`
	Admin      cli.AdminAddress `placeholder:"ADDR" values:"off" key:"admin.listen" env:"MILLRACE_ADMIN" help:"Metrics and profiles at this address, or off. Default: a UNIX socket in the runtime folder."`
	AdminToken string           `placeholder:"TOKEN" key:"admin.token" env:"MILLRACE_ADMIN_TOKEN" help:"What the admin listener asks for at a TCP address, 16 bytes or more. Other users of this machine can read command lines: better by the variable."`
	Sandbox    Sandbox          `placeholder:"HOW" values:"off,auto,require" key:"sandbox.mode" env:"MILLRACE_SANDBOX" help:"Have the kernel allow this process no files but those of the site and the config: auto, as far as it can, or require, not to start without. Default off."`
	NoLane     bool             `key:"lane.off" env:"MILLRACE_NO_LANE" help:"Answer every request through net/http."`
}

// serving marks the verbs that serve.
func (Flags) serving() {}

// Serves reports whether the verb of a command line does.
func Serves(ctx *kong.Context) bool {
	_, ok := cli.Selected(ctx).Target.Interface().(interface{ serving() })
	return ok
}

// TypedLogFormat is the format of the access log that a command line asks for;
// "" where it does not say.
func TypedLogFormat(flags []config.Setting) string {
	for _, set := range flags {
		if set.Key == "log.format" {
			return set.Values[0]
		}
	}
	return ""
}

// Run serves until a signal ends it: see the package comment of main.
func (c *Serve) Run(ctx *kong.Context, s cli.Streams, taken *Signals) error {
	what, err := c.source()
	if err != nil {
		return err
	}
	return what.Serve(cli.Settings(ctx), s, taken)
}

// Source is what a verb serves.
type Source struct {
	// File is the config that Load reads; "" for none.
	File string
	// Load makes the config, with the flags on top.
	Load func(flags []config.Setting) (*config.Config, error)
	// Subject is what the banner says that the program does: "serves …".
	Subject func(*config.Config) string
	// Rows are what else the banner says of it; nil for nothing.
	Rows func(Up) [][2]string
	// NoLane: the fast lane has no part in it.
	NoLane bool

	// Packed is the site of this program's own file; nil for one on disk.
	Packed *packfile.Site

	folder *folder // what is served, where it is one
}

// Up is a server that has come up.
type Up struct {
	Config *config.Config
	URLs   []string // as [cli.URLs] has them
	Admin  string   // the address of its admin listener, "" for none
}

// Serve serves what the source says, with the flags on top, until a
// signal ends it: see the package comment of main.
func (w Source) Serve(flags []config.Setting, s cli.Streams, taken *Signals) error {
	debug.FreeOSMemory() // what it took to read the command line, 2 MB
	exit := func() {
		s.Log(slog.LevelWarn, "ended without waiting for what it was doing")
		if c, ok := s.Err.(*cli.BufferedStderr); ok {
			c.Close()
		}
		taken.exit()
	}
	taken.begin(exit)
	defer taken.stop()
	load := func() (*config.Config, error) {
		cfg, err := w.Load(flags)
		if err == nil {
			err = private(cfg)
		}
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		if w.File != "" && TypedLogFormat(flags) == "" {
			s.Format(config.LogFormat(w.File))
		}
		cfg, err = nil, cli.BadConfig(w.File, err)
	}
	box, boxed := enterSandbox(cfg, w.File, func() (back func()) {
		taken.letGo() // the program that is started anew takes them
		return func() { taken.begin(exit) }
	})
	from, inherited := handover.Inherited(os.Getenv)
	if inherited != nil {
		return inherited
	}
	if err = cmp.Or(err, boxed); err == nil {
		err = life{Source: w, s: s, taken: taken, from: from, box: box, load: load}.serve(cfg)
	}
	if err != nil {
		from.Failed(err) // who waits for that; once it serves, nobody does
	}
	return err
}

// life is what a server's life needs.
type life struct {
	Source
	s     cli.Streams
	taken *Signals
	from  *handover.Predecessor // nil: nobody
	box   *sandbox
	load  func() (*config.Config, error)
}

// serve is Serve with a config.
func (w life) serve(cfg *config.Config) error {
	s, taken, from := w.s, w.taken, w.from
	s.Format(cfg.Log.Format)
	from.Prepared()
	var srv *engine.Server
	upgrade := newUpgrader(from, w.box, s, &service{streams: s})
	reload := func() (err error) {
		upgrade.config.Lock()
		defer upgrade.config.Unlock()
		done := upgrade.service.reloading()
		defer func() { done(err) }()
		if upgrade.done {
			return errors.New("another process has taken over: it is the one to reload")
		}
		defer srv.Loading()()
		next, err := w.load()
		if err != nil {
			srv.ReloadFailed(cli.BadConfig(w.File, err))
			return fmt.Errorf("the old config goes on serving: %w", w.box.explain(cli.BadConfig(w.File, err)))
		}
		if err := w.box.reaches(next, w.File); err != nil {
			srv.ReloadFailed(err)
			return fmt.Errorf("the old config goes on serving: %w", err)
		}
		if err := srv.Reload(next); err != nil {
			return w.box.explain(startFailure(err, next, w.File))
		}
		s.Format(next.Log.Format)
		return s.Forward(next.Log.Messages)
	}
	sockets, err := engine.InheritedSockets()
	if err != nil {
		return err
	}
	v := cli.Read()
	failures := s.Logger()
	log.SetFlags(0)
	log.SetOutput(cli.StandardLog{To: failures})
	srv, err = engine.New(cfg, engine.Options{
		Version:  v.Version,
		Revision: v.Revision,
		ErrorLog: failures,
		Reload:   reload,
		Worker:   w.box.worker(imagescmd.WorkerCommand()),
		Packed:   w.Packed,
		Sockets:  sockets,
		From:     from,
		Upgrade:  upgrade.run,
	})
	if err != nil {
		return startFailure(err, cfg, w.File)
	}
	upgrade.srv = srv
	banner{v.Version, w.Source, w.box, Up{cfg, cli.URLs(srv.Addrs()), srv.AdminAddr()}, cli.IsTerminal(s.Err), srv}.show(s)
	if err := s.Forward(cfg.Log.Messages); err != nil {
		return err
	}
	taken.up.Store(true)
	if w.Packed == nil {
		return serve(srv, taken.out, reload, upgrade, s)
	}
	return whole(w.Packed, srv, func() error { return serve(srv, taken.out, reload, upgrade, s) })
}

// whole serves, and ends it when the packed site turns out to be damaged in a
// part that was not looked at before it started.
func whole(site *packfile.Site, srv *engine.Server, serve func() error) error {
	ctx, stop := context.WithCancel(context.Background())
	found := make(chan error, 1)
	go func() { // ends with stop, or with the site; waited for below
		err := site.CheckAll(ctx)
		found <- err
		if err != nil {
			_ = srv.Close() // ends serve, which has its own error
		}
	}()
	err := serve()
	stop()
	if damaged := <-found; damaged != nil {
		return damaged
	}
	return err
}

// serve runs the server and does what signals say.
func serve(srv *engine.Server, signals <-chan os.Signal, reload func() error, upgrade *upgrader, s cli.Streams) error {
	// tell says what was done, or why it was not.
	report := func(done string, err error) {
		switch {
		case err != nil:
			s.Log(slog.LevelError, err.Error())
		case done != "":
			s.Log(slog.LevelInfo, done)
		}
	}
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }() // ends with Run, which is waited for below
	upgrade.from.Ready(srv.HandleMessage)
	if upgrade.from == nil { // else the predecessor says whose service this is
		upgrade.service.notify("READY=1\nSTATUS=serving")
	}
	watched, unwatch := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { upgrade.service.watch(watched, srv.Answer) })
	watching.Go(func() { upgrade.box.watch(watched, srv.Clients(), s) })
	defer watching.Wait()
	defer unwatch()
	profile := profiler{taken: srv.Profiled}
	defer func() { report(profile.stop()) }()
	now, lingers := false, false
	for {
		select {
		case err := <-done:
			if err == nil && now {
				err = errors.New("stopped without waiting for running requests")
			}
			return err
		case pid := <-upgrade.handed:
			s.Log(slog.LevelInfo, fmt.Sprintf("process %d serves now; finishing what is under way", pid))
			srv.Retire()
			lingers = ctx.Err() == nil
			drain()
		case <-profile.overdue():
			report(profile.stop())
		case sig := <-signals:
			switch {
			case isReload(sig):
				if err := reload(); err != nil {
					s.Log(slog.LevelError, fmt.Sprintf("not reloaded: %v", err))
				} else {
					s.Log(slog.LevelInfo, "reloaded: "+strings.Join(cli.URLs(srv.Addrs()), " "))
				}
			case isReopen(sig):
				if err := srv.ReopenLogs(); err != nil {
					s.Log(slog.LevelError, fmt.Sprintf("the log file was not reopened: %v", upgrade.box.explain(err)))
				} else {
					s.Log(slog.LevelInfo, "log file reopened")
				}
			case isProfile(sig):
				report(profile.toggle())
			case lingers:
				lingers = false
				s.Log(slog.LevelInfo, "ending WebSockets, finishing running requests; again to stop now")
				srv.StartDrain()
			case ctx.Err() != nil:
				now = true
				if err := srv.Close(); err != nil {
					s.Log(slog.LevelError, err.Error())
				}
			default:
				s.Log(slog.LevelInfo, "finishing running requests; again to stop now")
				upgrade.service.notify("STOPPING=1")
				drain()
			}
		}
	}
}

// startFailure says what to do where an address cannot be served at: it shows
// the config's line that has it. The server itself knows what to type where the
// address comes from the command line.
func startFailure(err error, cfg *config.Config, file string) error {
	if failed, ok := errors.AsType[*engine.ListenError](err); ok && file != "" {
		if found := aboutAddress(cfg, failed); found != nil {
			return cli.BadConfig(file, found)
		}
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return cli.Failure(err, "this machine does not have that address; for every address it has: --listen :8080")
	}
	return err
}
