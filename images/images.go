// Package images answers requests for images with the format that suits the
// browser: WebP or AVIF where it takes them and they are smaller, the original
// otherwise, or a JPEG or PNG where another size is asked for, under the same URL. What
// was converted is kept, and follows its original.
//
// A request's life: a path with an image's extension becomes an original
// (package static/original: a folder's files, or images/remote); Accept and,
// where they are allowed, the parameters of the query become the variants that
// would do (wanted.go); the record of the original knows which of them exist, in
// memory or in the store (record.go, variants.go); the smallest is sent and
// offered to the fast lane. What is missing is ordered from the queue
// (conversions.go): if it is predicted to be done within Options.Wait, the
// visitor waits for it. Otherwise the original is sent at once, with a short
// lifetime, and the conversion runs in the background, in a process of its own.
// Nothing is read, hashed or decoded for a variant that exists.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"millrace/images/convert"
	"millrace/images/params"
	"millrace/internal/lane"
	"millrace/internal/observe/meter"
	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
	"millrace/static/original"
	"millrace/store"
)

// Deps are what a Handler works with, and stay the caller's. Source is required.
type Deps struct {
	// Source has the originals: a *static.Handler, or a *remote.Source.
	Source original.Source
	// Engine converts, and may serve many handlers. nil: one that is made by New
	// and closed by Close; it decodes images in this process.
	Engine *Engine
	// Store keeps the variants. nil: a folder that is opened, and closed, by
	// the handler: Options.Store.
	Store store.Store
	// Shared is the store of several machines; nil for none.
	Shared store.Store
	// Scope tells the originals of several handlers apart that share a Store,
	// such as the absolute path of the root.
	Scope    string
	Meters   *meter.Images
	ErrorLog *slog.Logger
}

// Handler serves images. It must be closed.
type Handler struct {
	options    Options
	source     original.Source
	engine     *Engine
	own        *Engine // the same, where New has made it; else nil
	variants   variantStore
	table      *table
	meters     *meter.Images
	log        *slog.Logger
	budget     int64    // in bytes, of a conversion
	formats    []format // that are made, in the order of preference
	extensions map[string]bool
	varyOn     []string // request headers that choose the answer
	vary       []string // the same as a header's value

	stale     chan *staleRecord // whose variants are to be removed
	improving []improvement     // of follow alone, as room and turn are
	room      int               // for more of them, this time
	turn      int               // in the records, of the next original to be looked at
	tooBig    sync.Once         // the log has heard of images that take too much memory
	marks     watermarks
	whole     sync.Mutex // held to read a whole file, of up to Options.MaxSize

	closing context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	close   sync.Once
}

// New starts a handler. What the engine cannot write is left out of the formats.
func New(o Options, d Deps) (*Handler, error) {
	for key, fault := range o.Check() { // any of them
		return nil, errors.New("images: " + key + ": " + fault.Error())
	}
	o = o.withDefaults()
	if d.Source == nil {
		return nil, errors.New("images: a source of originals is required, such as a *static.Handler")
	}
	own := d.Engine == nil
	if own {
		ctx, cancel := context.WithTimeout(context.Background(), engineTest)
		defer cancel()
		var err error
		if d.Engine, err = NewEngine(ctx, o.EngineOptions(), nil, cmp.Or(d.ErrorLog, slog.New(slog.DiscardHandler))); err != nil {
			return nil, err
		}
	}
	h, err := newHandler(o, d)
	if err != nil {
		if own {
			err = errors.Join(err, d.Engine.Close())
		}
		return nil, err
	}
	if own {
		h.own = d.Engine
	}
	return h, nil
}

// engineTest bounds the self-test of the encoders of an engine of one's own.
const engineTest = 20 * time.Second

func newHandler(o Options, d Deps) (*Handler, error) {
	h := &Handler{options: o, source: d.Source, engine: d.Engine, meters: d.Meters, log: d.ErrorLog, extensions: map[string]bool{}, stale: make(chan *staleRecord, maxStale)}
	if h.meters == nil {
		h.meters = &meter.Images{}
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	for _, e := range o.Extensions {
		h.extensions["."+strings.ToLower(strings.TrimPrefix(e, "."))] = true
	}
	h.budget = o.memory()
	h.formats = h.engine.formats(o.Formats)
	h.varyOn = append([]string{"Accept"}, o.Params.VaryOn()...)
	h.vary = []string{strings.Join(h.varyOn, ", ")}
	if err := h.variants.open(o, d); err != nil {
		return nil, err
	}
	h.table = newTable(h.source.Memory())
	h.closing, h.end = context.WithCancel(context.Background())
	h.running.Go(func() { h.again(followEvery, followEvery, h.follow) })
	h.running.Go(h.dropLoop)
	h.running.Go(func() { h.again(cleanUpAfter, cleanUpEvery, h.cleanUpAll) })
	if o.Prefetch {
		h.running.Go(func() { h.again(0, prefetchEvery, h.prefetch) })
	}
	return h, nil
}

// Close ends the handler's background work and invalidates its answers in the
// lane. Conversions under way belong to the engine, and end without a result.
func (h *Handler) Close() error {
	var err error
	h.close.Do(func() {
		h.end()
		h.running.Wait()
		h.table.close()
		err = h.variants.close()
		if h.own != nil {
			err = errors.Join(err, h.own.Close())
		}
	})
	return err
}

// ServeHTTP answers a request for an image; others are the source's.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ext := strings.ToLower(path.Ext(r.URL.Path))
	if ext == ".svg" && h.options.SVG != "" {
		h.serveSVG(w, r)
		return
	}
	if !h.extensions[ext] && (h.options.StripOriginals == "" || !mayHaveLocation(ext) || h.options.OnlyImages) {
		h.serveOther(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.source.ServeHTTP(w, r) // says 405
		return
	}
	f, err := h.source.Original(r)
	switch {
	case errors.Is(err, original.ErrYoung):
		h.serveOriginal(w, r, f, interim("new"))
		return
	case err != nil:
		h.meters.Served.Add("none")
		h.source.ServeHTTP(w, r)
		return
	}
	if !h.extensions[ext] {
		h.serveOriginal(w, r, f, choice{label: "extension"})
		return
	}
	wanted, err := h.want(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	c := h.choose(r.Context(), f, wanted)
	defer c.done()
	switch {
	case c.refused != nil:
		h.refuse(w, r, fmt.Errorf("%w: %w", params.ErrRefused, c.refused))
		return
	case c.answer == nil && len(wanted) > 0 && convert.IsFact(wanted[0].Format):
		h.noFact(w, r, c)
		return
	case c.answer == nil:
		h.serveOriginal(w, r, f, c)
		return
	}
	h.meters.Served.Add(c.label)
	if f.ApplyHeaders != nil {
		a := *c.answer
		a.Header = maps.Clone(a.Header)
		f.ApplyHeaders(a.Header)
		c.answer = &a
	}
	if !c.interim {
		h.offer(r, f, c)
	}
	send.Serve(w, r, c.answer)
}

func (h *Handler) offer(r *http.Request, f original.File, c choice) {
	lane.Offer(r, c.answer, lane.Rule{VaryOn: h.varyOn, Version: f.Generation, Also: c.version, Used: c.used, WithQuery: h.options.Params.Enabled()})
}

// noFact answers a request for what is told about an image where nothing can be told, or not yet.
func (h *Handler) noFact(w http.ResponseWriter, r *http.Request, c choice) {
	h.meters.Served.Add("no fact " + c.label)
	w.Header()["Cache-Control"] = []string{"no-store"}
	w.Header()[statusHeader] = []string{"none; reason=" + c.label}
	if c.interim {
		w.Header()["Retry-After"] = []string{"1"}
		pages.Error(w, r, http.StatusServiceUnavailable, "It is being found out; ask again in a second.")
		return
	}
	pages.Error(w, r, http.StatusUnprocessableEntity, "This file is not an image that can be read: "+c.label+".")
}

// serveOriginal sends the original, and says why.
func (h *Handler) serveOriginal(w http.ResponseWriter, r *http.Request, f original.File, c choice) {
	if h.options.StripOriginals != "" && h.serveStripped(w, r, f, c) {
		return
	}
	h.meters.Served.Add("original " + c.label)
	header := http.Header{"Vary": h.vary, statusHeader: {"original; reason=" + c.label}}
	if c.interim {
		header["Cache-Control"] = []string{original.Shorten(f.CacheControl, interimSeconds)}
	}
	h.source.ServeOriginal(w, r, original.Terms{
		Header:    header,
		VaryOn:    h.varyOn,
		WithQuery: h.options.Params.Enabled(),
		Interim:   c.interim,
		Also:      c.version,
	})
}

// serveOther answers for a path without an image's extension.
func (h *Handler) serveOther(w http.ResponseWriter, r *http.Request) {
	switch hints := h.options.Params.AcceptCH(); {
	case h.options.OnlyImages:
		h.meters.Served.Add("refused extension")
		w.Header()["Cache-Control"] = []string{"no-cache"}
		pages.Error(w, r, http.StatusBadRequest, "File extension not allowed!")
	case hints != "":
		h.source.ServeOriginal(w, r, original.Terms{Header: http.Header{"Accept-Ch": {hints}}})
	default:
		h.source.ServeHTTP(w, r)
	}
}

// refuse answers a request for a size that is not allowed.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.meters.Served.Add("refused size")
	status, text := http.StatusBadRequest, err.Error()
	if !errors.Is(err, params.ErrRefused) {
		h.log.Error("a request for an image cannot be answered", "path", r.URL.Path, "err", err)
		status, text = http.StatusInternalServerError, ""
	}
	pages.Error(w, r, status, text)
}
