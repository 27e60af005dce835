//go:build !small

package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/internal/wire/pages"
	"millrace/internal/wire/send"
)

// exchange is what a guest makes of one request.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request // as the guest has changed it
	changed bool          // r is a copy
	wants   features
	head    bool // the client has asked for a head alone
	after   bool // the job has answered
	set     int  // bytes of fields that were set
	logged  int  // bytes of messages that were logged

	// The request's body.
	kept         []byte // what was read and will be read again, or what was written instead
	read         int
	waited       time.Duration // for it
	wroteRequest bool

	// The answer.
	status     int // 0: 200
	held       *held
	body       []byte // the job's, that is held
	readAnswer int
	own        []byte // what was written instead
	wrote      bool
}

// Handler has plugins see the requests for a job, the first one first, and its answers, the
// first one last.
func Handler(plugins []*Plugin, job http.Handler) http.Handler {
	for _, p := range slices.Backward(plugins) {
		job = &handler{p, job}
	}
	return job
}

// handler is a plugin and what it stands before.
type handler struct {
	*Plugin
	next http.Handler
}

type ranKey struct{}

// ran are the plugins that have seen a request. A request that a route hands to another one
// of the site may meet the same plugin again, which then lets it pass.
type ran struct {
	plugin *Plugin
	before *ran
}

func (a *ran) has(p *Plugin) bool {
	for ; a != nil; a = a.before {
		if a.plugin == p {
			return true
		}
	}
	return false
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	before, _ := r.Context().Value(ranKey{}).(*ran)
	if before.has(h.Plugin) {
		h.next.ServeHTTP(w, r)
		return
	}
	i, err := h.take(r.Context())
	if err != nil {
		h.unavailable(w, r, err)
		return
	}
	busy := true
	free := func() {
		if busy {
			busy = false
			h.put(i)
		}
	}
	defer free()
	i.exchange = exchange{w: w, r: r, wants: i.features, head: r.Method == http.MethodHead}
	result, err := i.call(i.request)
	if err != nil {
		h.failed(w, r, handleRequest, err)
		return
	}
	if uint32(result) == 0 { //nolint:gosec // its lower half says whether to go on
		x := i.exchange
		free() // the client may be slow
		x.answer()
		return
	}
	h.pass(i, uint32(result>>32), before, free) //nolint:gosec // its upper half is the guest's own
}

// pass has the job answer. The guest sees an answer that is held as a whole, before it is
// sent, and of any other the head, once that is sent. From then on it is free for other
// requests, however slowly the client takes the answer.
func (h *handler) pass(i *instance, id uint32, before *ran, free func()) {
	w, r := i.w, i.forJob()
	status, own := i.status, i.own // which come before what the job sends
	i.status, i.own, i.wrote, i.set = 0, nil, false, 0
	r = r.WithContext(context.WithValue(r.Context(), ranKey{}, &ran{h.Plugin, before}))
	holds := i.wants&bufferResponse != 0
	x := &held{ResponseWriter: w, r: r, hold: holds, most: int(h.options.BodyBytes), free: free}
	x.headOnly = r.Method == http.MethodHead && !i.head
	x.seen = func() {
		i.after = true
		if _, err := i.call(i.response, uint64(id), 0); err != nil {
			h.report(r, handleResponse, err)
		}
	}
	switch {
	case holds:
		x.body = own
	case status != 0 || own != nil:
		if x.bare = !hasContent(cmp.Or(status, http.StatusOK)); status == http.StatusResetContent {
			w.Header().Set("Content-Length", "0") // RFC 9110, 15.3.6
		}
		w.WriteHeader(cmp.Or(status, http.StatusOK))
		if !x.bare {
			_, _ = w.Write(own) // the client may be gone
		}
	}
	answered := false
	defer func() {
		if !answered && !x.passed { // the job has panicked: its guest may clean up
			i.after = true
			_, _ = i.call(i.response, uint64(id), 1)
		}
	}()
	h.next.ServeHTTP(x, r)
	answered = true
	switch {
	case x.passed: // the guest serves others by now
		return
	case !holds:
		x.seen()
		return
	case x.over:
		free()
		h.failed(w, r, handleResponse, &fault{text: "the answer is larger than " + h.options.BodyBytes.String() + " (body_bytes)"})
		return
	}
	x.restore()
	i.held, i.status, i.body, i.after = x, cmp.Or(x.status, status), x.body, true
	_, err := i.call(i.response, uint64(id), 0)
	answer := i.exchange
	free()
	if err != nil {
		h.failed(w, r, handleResponse, err)
		return
	}
	answer.answer()
}

// forJob is the request as the job gets it.
func (i *instance) forJob() *http.Request {
	r := i.r
	switch {
	case i.wroteRequest:
		r = i.change()
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(i.kept)), int64(len(i.kept)), nil
		r.Header.Del("Content-Length")
		if r.Header.Del("Expect"); len(i.kept) > 0 {
			r.Header.Set("Content-Length", strconv.Itoa(len(i.kept)))
		}
	case i.read > 0 && i.wants&bufferRequest != 0:
		c := *r
		c.Body = &partlyRead{io.MultiReader(bytes.NewReader(i.kept), r.Body), r.Body}
		r = &c
	case i.read > 0: // the rest of it, if there is one
		r = i.change()
		r.ContentLength = -1
		r.Header.Del("Content-Length")
	}
	if i.wants&bufferResponse == 0 {
		return r
	}
	// A guest that reads answers wants all of them, as they are, and may make another one
	// for each client: what a client has of it says nothing about the job's.
	c := *r
	c.Header = r.Header.Clone()
	for _, name := range [...]string{"Accept-Encoding", "Range", "If-Range", "If-None-Match", "If-Modified-Since", "Available-Dictionary"} {
		delete(c.Header, name)
	}
	return &c
}

// partlyRead is a body of which something was read before.
type partlyRead struct {
	io.Reader
	io.Closer
}

// answer sends the guest's answer, or the job's as the guest has left or changed it.
func (x *exchange) answer() {
	h, status, body := x.w.Header(), cmp.Or(x.status, http.StatusOK), x.body
	withBody := hasContent(status)
	if x.wrote {
		body = x.own
		for _, name := range [...]string{"Etag", "Last-Modified", "Accept-Ranges", "Content-Range", "Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
			delete(h, name) // they were about another body
		}
		if x.held == nil { // the plugin is an application, and has its own pages
			send.PassOn(x.w)
		}
	}
	switch {
	case status == http.StatusResetContent: // RFC 9110, 15.3.6
		h.Set("Content-Length", "0")
	case withBody && (x.held == nil || !x.head): // the job's answer to HEAD says what GET would bring
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.w.WriteHeader(status)
	if withBody && len(body) > 0 {
		_, _ = x.w.Write(body) // the client may be gone
	}
}

// hasContent reports whether an answer with this status may have a body.
func hasContent(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified && status != http.StatusResetContent
}

// unavailable answers a request for which there is no instance.
func (h *handler) unavailable(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil: // nobody waits for the answer
		panic(http.ErrAbortHandler)
	case errors.Is(err, errBusy):
		h.log.Warn("a plugin is busy", "instances", h.options.Instances, "method", r.Method, "target", r.RequestURI)
		w.Header().Set("Retry-After", "1")
		pages.Error(w, r, http.StatusServiceUnavailable, "")
	default:
		h.failed(w, r, "start", err)
	}
}

// failed answers a request whose guest has failed.
func (h *handler) failed(w http.ResponseWriter, r *http.Request, phase string, err error) {
	status := http.StatusInternalServerError
	if f := new(fault); errors.As(err, &f) && f.status != 0 {
		status = f.status // it is the client's
	} else {
		h.report(r, phase, err)
	}
	clear(w.Header())
	if status == http.StatusRequestTimeout && r.ProtoMajor == 1 { // RFC 9110, 15.5.9
		w.Header().Set("Connection", "close")
	}
	pages.Error(w, r, status, "")
}

// report logs why a guest has failed.
func (h *handler) report(r *http.Request, phase string, err error) {
	h.log.Error("a plugin failed", "phase", phase, "method", r.Method, "target", r.RequestURI, "cause", err)
}
