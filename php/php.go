package php

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/observe/trace"
	"millrace/internal/route/site"
	"millrace/internal/upstream/fastcgi"
	"millrace/internal/upstream/spool"
	"millrace/internal/wire/netset"
	"millrace/internal/wire/send"
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
		http.Error(w, "Nothing is here.", http.StatusNotFound)
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
	leave, ok := h.place(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	step := trace.Begin(r.Context(), trace.Attempt)
	answer, err := h.client.Do(ctx, fastcgi.Request{Params: h.params(r, t, body.size), Body: body.body(), Length: body.size, Repeat: body.size == 0 && safe(r.Method)})
	if err != nil {
		step.End(t.script, err)
		leave()
		h.fail(w, r, t, err)
		return
	}
	h.answer(w, r, t, &running{answer: answer, leave: sync.OnceFunc(leave), cancel: cancel, step: step})
}

// safe reports whether a request may be made twice, even of scripts that do more
// for a PUT or DELETE than they should.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// refuse answers a request whose body could not be taken in.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadRequest // nobody may read it any more
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok || errors.Is(err, errLong) {
		status = http.StatusRequestEntityTooLarge
	} else if errors.Is(err, spool.ErrFull) {
		w.Header().Set("Retry-After", "5")
		status = http.StatusServiceUnavailable
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, site.Refusal(status), status)
}

// place waits until php-fpm may be asked, and returns the function that releases the
// place.
func (h *Handler) place(w http.ResponseWriter, r *http.Request) (leave func(), ok bool) {
	leave = func() { <-h.places }
	select {
	case h.places <- struct{}{}:
		return leave, true
	default:
	}
	step := trace.Begin(r.Context(), trace.Queue)
	defer func() { step.End("php-fpm", nil) }()
	select {
	case h.places <- struct{}{}:
		return leave, true
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-time.After(h.options.Wait):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The application is busy. Please try again.", http.StatusServiceUnavailable)
		return nil, false
	}
}

// running is an answer that is still coming.
type running struct {
	answer *fastcgi.Answer
	step   trace.Span
	leave  func() // gives the place back
	cancel context.CancelFunc
	pump   sync.WaitGroup
}

// end ends it, wherever it is.
func (a *running) end() {
	a.cancel()
	a.pump.Wait()
	_ = a.answer.Close()
	a.leave()
}

// fail answers a request for which php-fpm gave no answer.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, t target, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	status, hint := http.StatusBadGateway, "look into php-fpm's log"
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		status, hint = http.StatusGatewayTimeout, "php.timeout is "+h.options.Timeout.String()
	case errors.Is(err, fastcgi.ErrConnect):
		hint = "is php-fpm running, and may this user write to its socket (listen.owner)?"
	}
	h.errors.Error("php: no answer", "script", t.script, "err", err, "hint", hint)
	http.Error(w, "The application does not answer.", status)
}

// Bounds of an answer's head, in bytes, and of what is read ahead of what has come
// already, so that a short answer goes out at once and with its length.
const (
	maxHead   = 32 << 10
	readAhead = 64 << 10
)

// errHead is what is wrong with a head.
var errHead = errors.New("the script's header fields cannot be read")

// answer sends a script's answer to the client.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, t target, a *running) {
	in := newOutput(a.answer)
	defer in.free()
	defer a.end() // first: it waits for who reads
	status, header, err := readHead(in)
	a.step.End(t.script, err)
	if err != nil {
		h.fail(w, r, t, err)
		return
	}
	length, err := passOn(w.Header(), header)
	if err != nil {
		h.fail(w, r, t, err)
		return
	}
	whole, err := in.ahead(a.answer)
	if r.Method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified || status < 200 {
		if length >= 0 && r.Method == http.MethodHead {
			w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		}
		send.PassOn(w)
		w.WriteHeader(status)
		if !whole {
			_ = send.Flush(w)
			_, _ = io.Copy(io.Discard, in) // the script may still do something
		}
		return
	}
	switch {
	case err != nil && !whole && in.Buffered() == 0 && length != 0:
		h.fail(w, r, t, err)
		return
	case whole && length < 0:
		length = int64(in.Buffered())
	}
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	send.PassOn(w)
	w.WriteHeader(status)
	sent, err := h.send(w, in, length, a, whole)
	if err == nil && length >= 0 && sent < length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		if r.Context().Err() == nil {
			h.errors.Warn("php: the answer ended too early", "script", t.script, "err", err)
		}
		panic(http.ErrAbortHandler) // the client must not take it for whole
	}
}

// send sends the body: what has come at once, the rest as fast as the client takes it.
// php-fpm's worker is free as soon as it has written everything, however slow the
// client is. length is the body's if it is not negative.
func (h *Handler) send(w http.ResponseWriter, in *output, length int64, a *running, whole bool) (int64, error) {
	first, _ := in.Peek(in.Buffered()) // it is there
	rest := io.Reader(&in.limit)
	if length >= 0 {
		first = first[:min(int64(len(first)), length)]
		rest = io.LimitReader(rest, length-int64(len(first)))
	}
	if whole {
		a.leave()
		n, err := w.Write(first)
		return int64(n), err //nolint:wrapcheck // told by the caller
	}
	q := h.room.NewQueue(spoolMemory, spoolFile)
	a.pump.Go(func() { // ends with the answer, or with its context
		_ = q.Fill(rest, true) // Drain tells
		a.leave()
	})
	n, err := w.Write(first)
	sent := int64(n)
	if err == nil {
		more, readErr, writeErr := q.Drain(w, func() error { return send.Flush(w) })
		sent, err = sent+more, errors.Join(readErr, writeErr)
	}
	if err != nil {
		a.cancel()
	}
	_ = q.Close() // of a file that nobody needs any more
	a.pump.Wait()
	return sent, err
}

// output is what a script writes, read ahead. Its buffer is pooled: it is ten times as
// large as all else that a request allocates.
type output struct {
	*bufio.Reader
	limit io.LimitedReader
}

// outputs are the buffers.
var outputs = sync.Pool{New: func() any {
	o := new(output)
	o.Reader = bufio.NewReaderSize(&o.limit, readAhead)
	return o
}}

func newOutput(from io.Reader) *output {
	o := outputs.Get().(*output)
	o.limit = io.LimitedReader{R: from, N: maxHead}
	o.Reset(&o.limit)
	return o
}

// ahead reads what has come, and reports whether that is all.
func (o *output) ahead(answer *fastcgi.Answer) (whole bool, err error) {
	for n := o.Buffered(); n < readAhead && answer.Ready(); n = o.Buffered() {
		if _, err = o.Peek(n + 1); err != nil {
			return errors.Is(err, io.EOF), err //nolint:wrapcheck // told by the caller
		}
	}
	return false, nil
}

// free gives the buffer back. Nobody may read any more.
func (o *output) free() {
	o.limit.R = nil
	outputs.Put(o)
}

// readHead reads the head of a CGI answer (RFC 3875, 6.2 and 6.3) of at most maxHead
// bytes.
func readHead(in *output) (status int, header textproto.MIMEHeader, err error) {
	header, err = textproto.NewReader(in.Reader).ReadMIMEHeader()
	if err != nil {
		if _, malformed := errors.AsType[textproto.ProtocolError](err); malformed || in.limit.N <= 0 {
			err = fmt.Errorf("%w: %w", errHead, err)
		}
		return 0, nil, err
	}
	in.limit.N = math.MaxInt64
	status = http.StatusOK
	if text := header.Get("Status"); text != "" {
		code, _, _ := strings.Cut(text, " ")
		if status, err = strconv.Atoi(code); err != nil || status < 200 || status > 599 {
			return 0, nil, fmt.Errorf("%w: the status %q", errHead, text)
		}
	} else if header.Get("Location") != "" {
		status = http.StatusFound
	}
	return status, header, nil
}

// passOn copies the fields that the client gets, and returns the length that the
// script gives its answer; -1 if it gives none.
func passOn(to http.Header, from textproto.MIMEHeader) (length int64, err error) {
	length = -1
	for name, values := range from {
		switch name {
		case "Status", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Accel-Buffering":
			continue
		case "Content-Length":
			n, bad := strconv.ParseInt(values[0], 10, 63)
			if bad != nil || n < 0 || len(values) > 1 {
				return 0, fmt.Errorf("%w: the length %q", errHead, strings.Join(values, ", "))
			}
			length = n
			continue
		}
		to[name] = values
	}
	send.NoGuess(to)
	return length, nil
}
