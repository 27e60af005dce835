package cache

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/cache/fill"
	"millrace/cache/rfc9111"
	"millrace/internal/condition"
	"millrace/internal/lane"
	"millrace/internal/negotiate"
	"millrace/internal/proxy"
	"millrace/internal/send"
)

// serve answers from a stored object. It reports false, having written
// nothing, when the object's body is gone.
func (x *exchange) serve(o *object, how string) bool {
	a, release, err := x.answer(o)
	if err != nil {
		x.h.memory.drop(x.key, o)
		return false
	}
	defer release()
	x.outcome, x.reason, x.status = how, o.facts.Source, o.status
	earlier := a.Header["Cache-Status"]
	delete(a.Header, "Cache-Status")
	if how == "hit" {
		x.offer(o, a, earlier)
		x.h.wantPacked(x.key, o)
	}
	x.h.keepLater(x.key, o)
	age, ttl := shown(&o.facts, x.began)
	head := x.w.Header()                               // a's own may be the lane's as well by now
	head["Age"] = []string{strconv.FormatInt(age, 10)} // RFC 9111, 5.1
	x.addStatus(head, earlier, storedStatus(how, ttl))
	send.Serve(x.w, x.r, a)
	return true
}

// answer makes what is sent of an object: the best encoding, and its header.
func (x *exchange) answer(o *object) (a *send.Answer, release func(), err error) {
	release = func() {}
	a = &send.Answer{Status: o.status, Header: x.visible(o), Body: o.body, Size: o.size}
	if o.status == http.StatusOK {
		a.Status = 0
	}
	if o.disk != "" {
		file, err := x.h.slow.open(x.r.Context(), o)
		if err != nil {
			return nil, nil, err
		}
		a.Body, a.File, a.Base, release = nil, file.file, file.base, file.close
	}
	x.encode(o, a)
	h := a.Header
	if bodyless(o.status) {
		delete(h, "Content-Length")
	} else {
		h["Content-Length"] = []string{strconv.FormatInt(a.Size, 10)}
	}
	if a.Status == 0 {
		if a.File == nil || a.File.HasDescriptor() || a.Size > 0 {
			h["Accept-Ranges"] = []string{"bytes"}
		}
		a.ETag = first(h["Etag"])
		a.LastModified = rfc9111.Modified(h, x.began)
	}
	x.h.cors.Apply(h, x.r)
	return a, release, nil
}

// visible is the object's header without what is for this cache alone.
func (x *exchange) visible(o *object) http.Header {
	h := o.header()
	for _, name := range x.h.hidden {
		delete(h, name)
	}
	return h
}

// encode puts the best of the object's encodings into a.
func (x *exchange) encode(o *object, a *send.Answer) {
	if !x.h.packable(o) {
		return
	}
	h := a.Header
	if !slices.ContainsFunc(h["Vary"], func(line string) bool { return strings.Contains(strings.ToLower(line), "accept-encoding") }) {
		h["Vary"] = append(slices.Clone(h["Vary"]), "Accept-Encoding")
	}
	p := o.packed.Load()
	if p == nil || x.r.Header["Range"] != nil { // parts of what was sent before it was encoded
		return
	}
	c, ok := negotiate.Encoding(x.r.Header["Accept-Encoding"], p.available)
	if !ok || c == negotiate.Identity {
		return
	}
	a.Body, a.Size = p.bodies[c], int64(len(p.bodies[c]))
	h["Content-Encoding"] = []string{c.String()}
	if tag := first(h["Etag"]); tag != "" && !strings.HasPrefix(tag, "W/") {
		h["Etag"] = []string{"W/" + tag} // RFC 9110, 8.8.3.3: not the same bytes any more
	}
	for _, name := range [...]string{"Content-Digest", "Repr-Digest", "Digest", "Content-Md5"} {
		delete(h, name) // RFC 9530: of the bytes that were encoded here
	}
}

// offer lets the fast lane answer the next such request, as long as the object
// is fresh and nothing is purged.
func (x *exchange) offer(o *object, a *send.Answer, before []string) {
	// A file is the store's, open for this request alone.
	if x.r.ProtoMajor != 1 || a.File != nil || !x.demand.Neutral() || x.r.Header["Range"] != nil || !x.set.key.Plain(x.r) {
		return
	}
	facts := o.facts
	lane.Offer(x.r, a, lane.Rule{
		Consulted: x.consulted(o),
		Mark:      x.mark,
		Also:      x.also,
		Expires:   x.began.Add(facts.TTL(x.began)),
		WithQuery: true,
		Lines: func(b []byte, now int64) []byte {
			age, ttl := shown(&facts, time.Unix(now, 0))
			b = strconv.AppendInt(append(b, "Age: "...), age, 10)
			b = append(b, "\r\n"...)
			for _, line := range before {
				b = append(append(append(b, "Cache-Status: "...), line...), "\r\n"...)
			}
			b = append(b, "Cache-Status: "+statusName+"; hit; ttl="...)
			b = strconv.AppendInt(b, ttl, 10)
			return append(b, "\r\n"...)
		},
	})
}

// consulted lists the request headers that had a say in this answer.
func (x *exchange) consulted(o *object) []string {
	names := append(slices.Clone(o.vary), x.set.key.Consulted()...)
	if x.h.packable(o) {
		names = append(names, "Accept-Encoding")
	}
	if x.set.cookies == secret {
		names = append(names, "Cookie")
	}
	if x.set.auth == secret {
		names = append(names, "Authorization")
	}
	if x.set.byHost {
		names = append(names, "Host")
	}
	if x.h.cors.Varies() {
		names = append(names, "Origin")
	}
	if !x.set.policy.IgnoreReload {
		names = append(names, "Cache-Control", "Pragma")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stream answers from a journey's body while it grows. It reports false, having
// written nothing, when that has found its place by now, or has moved on.
func (x *exchange) stream(o *object, body *fill.Body) bool {
	reader := body.Reader(x.r.Context(), 0)
	if reader == nil {
		return false
	}
	if x.taken != nil {
		x.taken()
	}
	defer func() { _ = reader.Close() }() // it cannot fail
	x.streamFrom(o, reader)
	return true
}

func (x *exchange) streamFrom(o *object, reader *fill.Reader) {
	h := x.visible(o)
	x.h.cors.Apply(h, x.r)
	if o.status == http.StatusOK {
		h["Accept-Ranges"] = []string{"bytes"}
	}
	head := x.w.Header()
	delete(h, "Cache-Status") // it is in head already, with ours
	for name, values := range h {
		head[name] = values
	}
	modified := rfc9111.Modified(h, x.began)
	if o.status == http.StatusOK && condition.Check(x.r.Method, x.r.Header, first(h["Etag"]), modified) == condition.NotModified {
		for name := range h {
			if !send.KeptIn304(name) {
				delete(head, name)
			}
		}
		x.w.WriteHeader(http.StatusNotModified)
		return
	}
	if o.status == http.StatusNoContent {
		delete(head, "Content-Length") // RFC 9110, 8.6
	}
	x.w.WriteHeader(o.status)
	if x.r.Method == http.MethodHead || bodyless(o.status) {
		return
	}
	reader.Flush(func() { _ = http.NewResponseController(x.w).Flush() })
	if _, err := reader.WriteTo(x.w); err != nil {
		x.reason = "aborted"
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
}

// copyBody sends an answer that is not kept, as it comes.
func (x *exchange) copyBody(resp *http.Response) {
	if x.r.Method == http.MethodHead || bodyless(resp.StatusCode) {
		return
	}
	rc := http.NewResponseController(x.w)
	live := resp.ContentLength < 0
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			x.h.meters.FromUpstream.Add(0, uint64(n))
			if _, werr := x.w.Write(buf[:n]); werr != nil {
				x.reason = "aborted"
				panic(http.ErrAbortHandler)
			}
			if live {
				_ = rc.Flush()
			}
		}
		switch {
		case err == io.EOF:
			x.trail(resp.Trailer)
			return
		case err != nil:
			x.reason = "aborted"
			panic(http.ErrAbortHandler)
		}
	}
}

// trail sends trailers on, but for those that would have been too late, since
// they decide how a message is read (RFC 9110, 6.5.1).
func (x *exchange) trail(trailer http.Header) {
	if proxy.CheckHeader(trailer) != nil {
		return
	}
	proxy.Strip(trailer)
	for name, values := range trailer {
		switch name {
		case "Set-Cookie", "Cache-Control", "Expires", "Age", "Date", "Vary", "Location", "Cache-Status", "Www-Authenticate":
			continue
		}
		if !strings.HasPrefix(name, "Content-") && !slices.Contains(x.h.hidden, name) {
			x.w.Header()[http.TrailerPrefix+name] = values
		}
	}
}

// refuse answers with an error of our own.
func (x *exchange) refuse(status int, text string) {
	x.outcome, x.status = "error", status
	h := x.w.Header()
	x.addStatus(h, nil, statusName+"; fwd=miss; detail=only-if-cached")
	h["Cache-Control"] = []string{"no-store"}
	x.h.cors.Apply(h, x.r)
	http.Error(x.w, text, status)
}

// copyBuffers are shared by all bodies that go through a buffer.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// bodyless reports whether an answer with a status never has a body (RFC 9110, 6.4.1).
func bodyless(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// seconds is a duration as headers have it.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }
