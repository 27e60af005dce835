// Package admin is the listener for the operator, never for the public: metrics
// for Prometheus, health, profiles and reload. The address it listens on decides who
// may connect; at a TCP address, [Options.Token] is asked for.
//
// By default that is a UNIX socket of mode 0600 in the user's runtime folder,
// named after the process: millrace/PID.sock. [Find] lists the sockets of the
// servers that run, for commands that talk to "the running server".
package admin

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"millrace/internal/observe/meter"
)

// The limits of the listener. Its clients are a scraper and an operator.
const (
	maxConnections = 64               // the next one waits; bounds what a stuck scraper can hold
	maxHeaderBytes = 32 << 10         // curl and Prometheus send less than one KiB, a URL of 8 KiB in a query has up to 24
	maxBodyBytes   = 64 << 10         // no request of our own routes needs a body
	maxRouteBytes  = 1 << 20          // a body for one of Deps.Routes: a purge names a URL, not a list of them
	readTimeout    = 10 * time.Second // for a header, and for a body
	idleTimeout    = 90 * time.Second // more than Prometheus's usual interval
	writeTimeout   = 60 * time.Second // answers but profiles; a reload is within
	closeTimeout   = 2 * time.Second  // for requests under way at Close
)

// Options of the admin listener.
type Options struct {
	// Listen is
	//
	//   - empty: a UNIX socket in the folder $MILLRACE_RUN_DIR; where that is
	//     not set, in the first of these that can be used:
	//     $XDG_RUNTIME_DIR/millrace, /run/millrace, millrace-UID in the folder
	//     for temporary files. Where none can, the server says so and serves
	//     without an admin listener
	//   - "unix:/path": a UNIX socket there
	//   - "host:port": TCP; :9000 is IPv4 and IPv6, 0.0.0.0:9000 IPv4 alone and
	//     [::]:9000 IPv6 alone. Whoever reaches the port may read and reload
	//     everything; see [Admin.Warning]
	//   - "off": no admin listener
	Listen string `yaml:"listen"`
	// Token is asked for at a TCP address: programs send it as "Authorization:
	// Bearer TOKEN", browsers log in with it. It has at least 16 bytes. Empty:
	// nobody is asked, which the server warns of unless the address is loopback. A
	// UNIX socket never asks: its mode decides
	Token string `yaml:"token"`
}

// Deps are what the admin listener reports and controls. Only Meters is required.
type Deps struct {
	Meters            *meter.Meters
	Version, Revision string // for millrace_build_info

	// Ready says whether the server takes requests; once it drains, /healthz
	// answers 503. nil means always.
	Ready func() bool
	// Degraded says what this server does without, which other machines share: it is
	// said behind the 200 of /healthz. nil, or "": nothing.
	Degraded func() string
	// Reload reads the config again and returns once it is in use, or why it
	// is not; it counts its outcome itself (it is not always called from
	// here). It is never called twice at once by this package. nil means that
	// there is nothing to reload.
	Reload func() error
	// Upgrade starts the program anew, and returns once that serves or why it does
	// not. It is never called twice at once by this package. nil: it cannot.
	Upgrade func() error
	// Inherited is the socket on which a predecessor has listened: it is used if
	// it is where Options say, or they say nothing. nil: there is none.
	Inherited *os.File
	// Routes are handlers of others, by the prefix of the paths that they
	// answer: "/cache/". They get the whole path, stand behind the same guards
	// as our own routes, have 60 seconds for an answer, and their requests may
	// have a body of up to 1 MiB.
	Routes map[string]http.Handler
	// Addrs lists the URLs under which the site is served, for commands that
	// ask it for pages. nil means none.
	Addrs func() []string
	// Certificates lists the automatic certificates (ACME). nil means none.
	Certificates func() []Certificate
	// Profiled gets each CPU profile that was taken here, in pprof's format, of up
	// to 8 MiB. nil: nobody wants them.
	Profiled func(profile []byte)
	// Gather functions are called before each reading of the meters, to set
	// gauges that are not kept up to date. They must be quick and safe for
	// concurrent use.
	Gather []func()
	// ErrorLog takes what net/http has to say (panics, failed handshakes).
	// nil is the default logger.
	ErrorLog *slog.Logger
}

// Admin is an admin listener. A nil *Admin is off: its methods do nothing.
type Admin struct {
	server   *http.Server // nil: off, because no socket could be made
	listener net.Listener
	addr     string
	warning  string
	cleanup  func()       // removes the socket's file
	leave    func()       // removes a predecessor's that nobody uses; nil: there is none
	theirs   atomic.Bool  // the file is that of another process, which serves
	socket   net.Listener // what listener limits
}

// New listens as o says, without serving yet. When o is off, it returns nil and
// no error. If no address was configured and no socket can be made, it is off and
// [Admin.Warning] says why. Errors say what to do about them, and leave no files
// behind.
func New(o Options, d Deps) (*Admin, error) {
	if o.Listen == "off" {
		return nil, nil
	}
	l, leave, err := inherit(d.Inherited, o.Listen)
	taken := l != nil
	if !taken && err == nil {
		l, err = listen(o.Listen, systemPlaces())
	}
	if errors.Is(err, errNoFolder) {
		why := strings.ReplaceAll(err.Error(), "\n", ", ")
		return &Admin{warning: fmt.Sprintf("serving without the admin listener: no metrics, no purges, no commands that talk to this server. "+
			"Turn it on with --admin unix:/path, or name a folder in %s; --admin off silences this. Reason: %s", FolderVariable, why)}, nil
	}
	if err != nil {
		return nil, err
	}
	if len(o.Token) > 0 && len(o.Token) < LeastToken {
		l.Close()
		return nil, fmt.Errorf("admin.token has %d bytes: it needs at least %d, such as those of `openssl rand -hex 16`", len(o.Token), LeastToken)
	}
	if o.Token != "" {
		l.warning = "" // it is asked for
	}
	handler, err := newHandler(d, l.allowed, gatedBy(o.Token, l.Addr()))
	if err != nil {
		l.Close()
		if !taken {
			l.cleanup()
		}
		return nil, err
	}
	a := &Admin{
		server:   newServer(handler, d.ErrorLog),
		listener: limitConnections(l.Listener, maxConnections),
		addr:     l.addr,
		warning:  l.warning,
		cleanup:  l.cleanup,
		leave:    leave,
		socket:   l.Listener,
	}
	a.theirs.Store(taken)
	return a, nil
}

// newServer makes the server with the limits that are the same for all routes. It
// has no WriteTimeout, because a profile takes as long as was asked for, and no
// ReadTimeout, which would cancel the request's context.
func newServer(h http.Handler, errorLog *slog.Logger) *http.Server {
	var std *log.Logger // net/http's own default
	if errorLog != nil {
		std = slog.NewLogLogger(errorLog.Handler(), slog.LevelWarn)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          std,
	}
}

func (a *Admin) off() bool { return a == nil || a.server == nil }

// Addr is where the listener is, as [Options.Listen] may say it: with the path
// or the port that was chosen. Empty when it is off.
func (a *Admin) Addr() string {
	if a == nil {
		return ""
	}
	return a.addr
}

// Warning is a sentence for the operator, or empty: the listener can be reached
// from other machines, or there is none although nobody turned it off.
func (a *Admin) Warning() string {
	if a == nil {
		return ""
	}
	return a.warning
}

// Serve answers requests until Close, then returns nil. From then on a socket that
// was inherited is this process's.
func (a *Admin) Serve() error {
	if a.off() {
		return nil
	}
	a.theirs.Store(false)
	if a.leave != nil {
		a.leave()
	}
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the admin listener %s: %w", a.addr, err)
	}
	return nil
}

// Close stops listening, removes the socket and gives requests under way two
// seconds. It may be called without Serve, and more than once.
func (a *Admin) Close() error {
	if a.off() {
		return nil
	}
	if !a.theirs.Load() {
		a.cleanup()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := a.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = a.server.Close()
	}
	// Shutdown knows only a listener that was served.
	if lerr := a.listener.Close(); err == nil && !errors.Is(lerr, net.ErrClosed) {
		err = lerr
	}
	if err != nil {
		return fmt.Errorf("closing the admin listener %s: %w", a.addr, err)
	}
	return nil
}
