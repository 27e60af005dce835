package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"millrace"
	"millrace/internal/config"
	"millrace/internal/redact"
)

// serveCommand is `millrace serve`.
type serveCommand struct {
	Dir    string `arg:"" optional:"" complete:"dir" help:"The folder to serve. Without it, and without --config: ./millrace.yaml if there is one, else this folder."`
	Config string `short:"c" placeholder:"FILE" complete:"file" env:"MILLRACE_CONFIG" help:"Serve what this config says."`

	Images        bool     `env:"MILLRACE_IMAGES" help:"Convert the folder's images to WebP and AVIF for browsers that take them."`
	ImagesQuality int      `placeholder:"N" key:"images.quality" env:"MILLRACE_IMAGES_QUALITY" help:"The quality of converted images, 1 to 100. Default 80."`
	ImagesFormats []string `placeholder:"FORMAT" values:"avif,webp" key:"images.formats" env:"MILLRACE_IMAGES_FORMATS" help:"What images are converted to: avif, webp or both. Default both."`
	ImagesStore   string   `placeholder:"DIR" complete:"dir" key:"images.store" env:"MILLRACE_IMAGES_STORE" help:"The folder for what is converted. Default: one below the user's cache folder."`

	servingFlags `embed:""`
}

// servingFlags are those of every verb that serves. A flag's key is the one of
// the config that it sets; it wins over the file.
type servingFlags struct {
	Listen    []address    `short:"l" placeholder:"ADDR" key:"listen" env:"MILLRACE_LISTEN" help:"Serve at this address: host:port, :port (every interface) or unix:/path. May be repeated. Default 127.0.0.1:8080."`
	TLSCert   string       `name:"tls-cert" placeholder:"FILE" complete:"file" key:"tls.cert" env:"MILLRACE_TLS_CERT" help:"The certificate for HTTPS with its chain (PEM), read again when it changes."`
	TLSKey    string       `name:"tls-key" placeholder:"FILE" complete:"file" key:"tls.key" env:"MILLRACE_TLS_KEY" help:"The certificate's private key (PEM)."`
	TLSListen []address    `name:"tls-listen" placeholder:"ADDR" key:"tls.listen" env:"MILLRACE_TLS_LISTEN" help:"Serve HTTPS at this address. May be repeated."`
	Log       logFormat    `placeholder:"FORMAT" values:"combined,common,json,off" key:"log.format" env:"MILLRACE_LOG" help:"How to log requests: combined, common, json or off. Default combined. With json all other messages are JSON lines as well."`
	LogFile   string       `placeholder:"FILE" complete:"file" key:"log.file" env:"MILLRACE_LOG_FILE" help:"Log requests to this file instead of the standard output."`
	Admin     adminAddress `placeholder:"ADDR" values:"off" key:"admin.listen" env:"MILLRACE_ADMIN" help:"Metrics and profiles at this address, or off. Default: a UNIX socket in the runtime folder."`
	NoLane    bool         `key:"lane.off" env:"MILLRACE_NO_LANE" help:"Answer every request through net/http."`
}

// serving marks the verbs that serve.
func (servingFlags) serving() {}

// serves reports whether a verb does.
func serves(verb *kong.Node) bool {
	if verb == nil || !verb.Target.IsValid() {
		return false
	}
	_, ok := verb.Target.Interface().(interface{ serving() })
	return ok
}

// Run serves until a signal ends it: see the package comment.
func (c *serveCommand) Run(ctx *kong.Context, s streams, taken *signals) error {
	what, err := c.source()
	if err != nil {
		return err
	}
	return what.serve(ctx, s, taken)
}

// serve serves what the source says, with the flags of the verb on top.
func (w source) serve(ctx *kong.Context, s streams, taken *signals) error {
	go taken.watch(func() { // ends with taken.stop, or with the process
		s.tell(slog.LevelWarn, "ended without waiting for what it was doing")
		if c, ok := s.err.(*console); ok {
			c.close()
		}
		taken.exit()
	})
	defer taken.stop()
	load := func() (*config.Config, error) { return w.load(settings(ctx.Selected(), ctx.Path)) }
	cfg, err := load()
	if err != nil {
		return badConfig(w.file, err)
	}
	s.format(cfg.Log.Format)
	var srv *millrace.Server
	reload := func() error {
		next, err := load()
		if err != nil {
			srv.ReloadFailed()
			return fmt.Errorf("the old config goes on serving: %w", badConfig(w.file, err))
		}
		if err := srv.Reload(next); err != nil {
			return startFailure(err, next, w.file)
		}
		s.format(next.Log.Format)
		return nil
	}
	v := readVersion()
	failures := s.logger()
	log.SetFlags(0)
	log.SetOutput(standardLog{failures})
	srv, err = millrace.New(cfg, millrace.Options{
		Version:  v.Version,
		Revision: v.Revision,
		ErrorLog: failures,
		Reload:   reload,
		Worker:   workerCommand(),
	})
	if err != nil {
		return startFailure(err, cfg, w.file)
	}
	banner{v.Version, w, cfg, srv.Addrs(), srv.AdminAddr(), isTerminal(s.err), srv.Images()}.show(s)
	taken.up.Store(true)
	return serve(srv, taken.out, reload, s)
}

// serve runs the server and does what signals say.
func serve(srv *millrace.Server, signals <-chan os.Signal, reload func() error, s streams) error {
	// tell says what was done, or why it was not.
	tell := func(done string, err error) {
		switch {
		case err != nil:
			s.tell(slog.LevelError, err.Error())
		case done != "":
			s.tell(slog.LevelInfo, done)
		}
	}
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }() // ends with Run, which is waited for below
	var profile profiler
	defer func() { tell(profile.stop()) }()
	now := false
	for {
		select {
		case err := <-done:
			if err == nil && now {
				err = errors.New("stopped without waiting for running requests")
			}
			return err
		case <-profile.overdue():
			tell(profile.stop())
		case sig := <-signals:
			switch {
			case isReload(sig):
				if err := reload(); err != nil {
					s.tell(slog.LevelError, fmt.Sprintf("not reloaded: %v", err))
				} else {
					s.tell(slog.LevelInfo, "reloaded: "+strings.Join(urls(srv.Addrs()), " "))
				}
			case isReopen(sig):
				if err := srv.ReopenLogs(); err != nil {
					s.tell(slog.LevelError, fmt.Sprintf("the log file was not reopened: %v", err))
				} else {
					s.tell(slog.LevelInfo, "log file reopened")
				}
			case isProfile(sig):
				tell(profile.toggle())
			case ctx.Err() != nil:
				now = true
				if err := srv.Close(); err != nil {
					s.tell(slog.LevelError, err.Error())
				}
			default:
				s.tell(slog.LevelInfo, "finishing running requests; again to stop now")
				drain()
			}
		}
	}
}

// source is what is served: one of its first four.
type source struct {
	dir   string
	file  string     // a config
	cache []upstream // a cache in front of these
	ws    *webSocket // WebSockets and nothing else

	published bool // file is one of the published proxy
	images    bool // the images of dir are converted
	found     bool // nobody asked for it by name
}

// source decides what to serve. A folder on the command line wins over a
// config in the environment.
func (c *serveCommand) source() (source, error) {
	switch {
	case c.Dir != "" && c.Config != "" && c.Config != os.Getenv("MILLRACE_CONFIG"):
		return source{}, usageError{
			"a folder and a config: only one of them can say what to serve",
			fmt.Sprintf("`millrace serve %s` or `millrace serve --config %s`", c.Dir, c.Config),
		}
	case c.Dir != "":
		return source{dir: c.Dir, images: c.images()}, checkDir(c.Dir)
	case c.Config != "" && c.Images:
		return source{}, imagesByConfig(c.Config)
	case c.Config != "":
		return source{file: c.Config}, nil
	}
	if _, err := os.Stat(config.FileName); err == nil {
		if c.Images {
			return source{}, imagesByConfig(config.FileName)
		}
		return source{file: config.FileName, found: true}, nil
	}
	return source{dir: ".", found: true, images: c.images()}, nil
}

// images reports whether a folder's images are to be converted: how they are
// says so, too.
func (c *serveCommand) images() bool {
	return c.Images || c.ImagesQuality != 0 || len(c.ImagesFormats) > 0 || c.ImagesStore != ""
}

// imagesByConfig: a flag cannot say which of a config's routes is meant.
func imagesByConfig(file string) error {
	return usageError{"--images is for a folder; a config says it itself", "write \"images: on\" beside a route's \"static:\" in " + file}
}

// checkDir says why a folder on the command line cannot be served.
func checkDir(dir string) error {
	err := config.CheckDir(dir)
	if err == nil {
		return nil
	}
	hint := "name a folder with files: millrace serve DIR"
	switch info, statErr := os.Stat(dir); {
	case statErr == nil && !info.IsDir() && (strings.HasSuffix(dir, ".yaml") || strings.HasSuffix(dir, ".yml")):
		hint = fmt.Sprintf("to serve what that config says: millrace serve --config %s", dir)
	case statErr == nil && !info.IsDir():
		hint = fmt.Sprintf("to serve the folder it is in: millrace serve %s", filepath.Dir(dir))
	case errors.Is(statErr, fs.ErrNotExist):
		if near := config.Near(dir); near != "" {
			hint = "did you mean: millrace serve " + near
		}
	}
	return failure{err, hint}
}

// load reads what the source says, with the flags on top.
func (w source) load(flags []config.Setting) (*config.Config, error) {
	switch {
	case w.published:
		return config.Published(w.file, flags...)
	case w.file != "":
		return config.Load(w.file, flags...)
	case w.cache != nil:
		cfg := config.ForCache()
		return cfg, cfg.Check(append(flags, upstreamSetting("cache.to", w.cache))...)
	case w.ws != nil:
		return w.ws.load(flags)
	}
	cfg := config.ForDir(w.dir)
	if w.images {
		cfg = config.ForImages(w.dir)
	}
	return cfg, cfg.Check(flags...)
}

// standardLog passes on to the error log what packages write to the standard
// logger. net/http does so with what an upstream sends unasked, and shows its
// bytes, which may be somebody's answer: they are left out.
type standardLog struct{ to *slog.Logger }

// Write implements [io.Writer].
func (l standardLog) Write(line []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(line)), " starting with ")
	l.to.Warn(redact.Text(text))
	return len(line), nil
}

// startFailure says what to do where an address cannot be served at: it shows
// the config's line that has it. The server itself knows what to type where the
// address comes from the command line.
func startFailure(err error, cfg *config.Config, file string) error {
	if failed, ok := errors.AsType[*millrace.ListenError](err); ok && file != "" {
		if found := aboutAddress(cfg, failed); found != nil {
			return badConfig(file, found)
		}
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return failure{err, "this machine does not have that address; for every address it has: --listen :8080"}
	}
	return err
}
