package php

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/upstream/spool"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/pages"
)

// Deps are what the job works with.
type Deps struct {
	// Files serves what is not PHP: package static, of the same folder.
	Files http.Handler
	// Static is what the job must know of that folder.
	Static Static
	// Prefix is the path that the route has in front of the folder's, without a
	// slash at its end.
	Prefix   string
	ErrorLog *slog.Logger
	// Clients are the proxies in front, whose word counts; nil: nobody's. Those of
	// Options.TrustForwarded must be among them.
	Clients *netset.Finder
	// Room is where bodies are buffered, shared with others; nil: one of its own.
	Room *spool.Room
}

// Static is the folder that package static serves.
type Static struct {
	Root  string
	Index []string          // pages that answer for their folder
	Hides func(string) bool // names that do not exist for clients
}

// Handler runs scripts. It must be closed.
type Handler struct {
	options Options
	static  Static
	files   http.Handler
	root    *os.Root
	only    *regexp.Regexp // paths that scripts are run for; nil: all
	front   string         // the front controller, "" for none
	toPath  bool           // it gets the path that it answers for
	scripts string         // the root as php-fpm sees it
	prefix  string
	client  *fastcgi.Client
	clients *netset.Finder
	room    *spool.Room
	places  chan struct{}
	seen    seen
	errors  *slog.Logger
}

// Open makes the handler of a folder. php-fpm is not asked before the first
// request: it may start later.
func Open(o Options, d Deps) (*Handler, error) {
	o = o.withDefaults()
	abs, err := filepath.Abs(d.Static.Root)
	if err != nil {
		return nil, fmt.Errorf("the folder of the scripts: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("the folder of the scripts: %w", err)
	}
	h := &Handler{
		options: o, static: d.Static, files: d.Files, root: root, scripts: abs, prefix: d.Prefix,
		places: make(chan struct{}, o.Connections), errors: d.ErrorLog, room: d.Room, clients: d.Clients,
	}
	if h.room == nil {
		h.room = spool.NewRoom(spool.Options{}, d.ErrorLog)
	}
	if o.Root != "" {
		h.scripts = o.Root
	}
	if o.Only != "" {
		if h.only, err = regexp.Compile(o.Only); err != nil {
			return nil, errors.Join(fmt.Errorf("the paths that scripts are run for: %w", err), root.Close())
		}
	}
	if o.Front != off {
		front, toPath := strings.CutSuffix(o.Front, ofPath)
		h.front, h.toPath = strings.TrimPrefix(path.Clean(front), "/"), toPath
	}
	if len(h.static.Index) == 0 {
		h.static.Index = []string{"index.html"}
	}
	h.client = fastcgi.New(fastcgi.Options{
		To: o.To, Connect: o.Connect, Read: o.Timeout, Write: o.Timeout, Keep: o.Idle,
		Stderr: func(line string) { h.errors.Warn("php: " + line) },
	})
	return h, nil
}

// Close closes idle connections.
func (h *Handler) Close() error {
	return errors.Join(h.client.Close(), h.root.Close())
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.resume(w, r) {
		return
	}
	switch t := h.find(r.URL.Path); {
	case t.redirect:
		toFolder(w, r)
	case t.hidden:
		pages.Error(w, r, http.StatusNotFound, "")
	case t.script == "":
		h.files.ServeHTTP(w, r)
	default:
		h.seen.note(r.URL.Path, t)
		h.run(w, r, t)
	}
}

// run asks php-fpm for a script's answer, once all of the request's body has come.
func (h *Handler) run(w http.ResponseWriter, r *http.Request, t target) {
	body, err := h.takeIn(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer body.close()
	if !h.place(w, r) {
		return
	}
	x := h.begin(t)
	defer x.end()
	ctx, cancel := context.WithCancel(r.Context())
	x.cancel, x.step = cancel, trace.Begin(r.Context(), trace.Attempt)
	params := h.appendParams(make([]byte, 0, 2048), askedBy(r, body.length()), t)
	err = h.client.Do(ctx, &x.up, fastcgi.Request{Params: params, Body: body.body(), Length: body.length(), Repeat: safe(r.Method)})
	if err != nil {
		x.step.End(t.script, err)
		x.fail(w, r, err)
		return
	}
	x.answer(w, r)
}

// safe reports whether a request may be made twice, even of scripts that do more
// for a PUT or DELETE than they should.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// refuse answers a request whose body could not be taken in.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadRequest // nobody may read it any more
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok || errors.Is(err, spool.ErrLong) {
		status = http.StatusRequestEntityTooLarge
	} else if errors.Is(err, spool.ErrFull) {
		w.Header().Set("Retry-After", "5")
		status = http.StatusServiceUnavailable
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	pages.Error(w, r, status, "")
}

// place waits until php-fpm may be asked.
func (h *Handler) place(w http.ResponseWriter, r *http.Request) bool {
	select {
	case h.places <- struct{}{}:
		return true
	default:
	}
	step := trace.Begin(r.Context(), trace.Queue)
	defer func() { step.End("php-fpm", nil) }()
	select {
	case h.places <- struct{}{}:
		return true
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-time.After(h.options.Wait):
		w.Header().Set("Retry-After", "1")
		pages.Error(w, r, http.StatusServiceUnavailable, "The application is busy.")
		return false
	}
}
