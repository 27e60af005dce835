package cache

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/cache/object"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/internal/lane"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
	"millrace/proxy"
)

// serve answers from a stored object. It reports false, having written
// nothing, when the object's body is gone.
func (x *exchange) serve(o *object.Object, how string) bool {
	a, release, err := x.answer(o)
	if err != nil {
		x.h.tiers.Drop(x.key, o)
		return false
	}
	defer release()
	x.outcome, x.reason, x.status = how, o.Facts.Source, o.Status
	earlier := a.Header["Cache-Status"]
	delete(a.Header, "Cache-Status")
	if how == "hit" {
		x.offer(o, a, earlier)
		x.h.wantPacked(x.key, o)
	}
	x.h.tiers.WriteLater(x.key, o)
	age, ttl := shown(&o.Facts, x.began)
	head := x.w.Header()                               // a's own may be the lane's as well by now
	head["Age"] = []string{strconv.FormatInt(age, 10)} // RFC 9111, 5.1
	x.addStatus(head, earlier, storedStatus(how, ttl))
	send.PassOn(x.w)
	send.Serve(x.w, x.r, a)
	return true
}

// answer makes what is sent of an object: the best encoding, and its header.
func (x *exchange) answer(o *object.Object) (a *send.Answer, release func(), err error) {
	release = func() {}
	a = &send.Answer{Status: o.Status, Header: x.visible(o), Body: o.Body, Size: o.Size}
	if o.Status == http.StatusOK {
		a.Status = 0
	}
	if o.Disk != "" {
		file, err := x.h.tiers.Open(x.r.Context(), o)
		if err != nil {
			return nil, nil, err
		}
		a.Body, a.File, a.Base, release = nil, file.File, file.Base, file.Close
	}
	x.encode(o, a)
	h := a.Header
	if bodyless(o.Status) {
		delete(h, "Content-Length")
	} else {
		h["Content-Length"] = []string{strconv.FormatInt(a.Size, 10)}
	}
	if a.Status == 0 {
		if a.File == nil || a.File.HasDescriptor() || a.Size > 0 {
			h["Accept-Ranges"] = []string{"bytes"}
		}
		a.ETag = object.First(h["Etag"])
		a.LastModified = rfc9111.Modified(h, x.began)
	}
	x.h.cors.Apply(h, x.r)
	return a, release, nil
}

// visible is the object's header without what is for this cache alone.
func (x *exchange) visible(o *object.Object) http.Header {
	h := o.Header()
	for _, name := range x.h.hidden {
		delete(h, name)
	}
	return h
}

// encode puts the best of the object's encodings into a.
func (x *exchange) encode(o *object.Object, a *send.Answer) {
	if !x.h.packer.takes(o) {
		return
	}
	h := a.Header
	if !slices.ContainsFunc(h["Vary"], func(line string) bool { return strings.Contains(strings.ToLower(line), "accept-encoding") }) {
		varyAlso(h, "Accept-Encoding")
	}
	rule := x.h.dictionaries.of(o, x.r.URL.Path)
	if rule > 0 {
		varyAlso(h, dictionary.Header)
		x.h.wantKept(o, rule)
	}
	if x.r.Header["Range"] != nil { // parts of what was sent before it was encoded
		return
	}
	var body []byte
	var coding string
	if p := o.Packed.Load(); p != nil {
		if c, ok := negotiate.Encoding(x.r.Header["Accept-Encoding"], p.Available); ok && c != negotiate.Identity {
			body, coding = p.Bodies[c], c.String()
		}
	}
	if rule > 0 {
		short, by, known := x.shortened(o, rule)
		if x.unsure = !known; short != nil && (body == nil || len(short) < len(body)) {
			body, coding = short, by
		}
	}
	if body == nil {
		return
	}
	a.Body, a.Size = body, int64(len(body))
	h["Content-Encoding"] = []string{coding}
	if tag := object.First(h["Etag"]); tag != "" && !strings.HasPrefix(tag, "W/") {
		h["Etag"] = []string{"W/" + tag} // RFC 9110, 8.8.3.3: not the same bytes any more
	}
	for _, name := range [...]string{"Content-Digest", "Repr-Digest", "Digest", "Content-Md5"} {
		delete(h, name) // RFC 9530: of the bytes that were encoded here
	}
}

// offer lets the fast lane answer the next such request, as long as the object
// is fresh and nothing is purged.
func (x *exchange) offer(o *object.Object, a *send.Answer, before []string) {
	// A file is the store's, open for this request alone.
	if x.r.ProtoMajor != 1 || a.File != nil || !x.demand.Neutral() || x.r.Header["Range"] != nil || !x.set.Key.Plain(x.head) {
		return
	}
	if x.unsure || len(x.set.Made) > 0 || !x.askedPlainly() {
		return // the lane does not know who asks, and compares headers as they came
	}
	facts := o.Facts
	lane.Offer(x.r, a, lane.Rule{
		VaryOn:    x.variesOn(o),
		Version:   x.version,
		Also:      x.purges,
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

// askedPlainly reports whether the headers alone say what was asked for: nobody
// claims anything, or one who is believed does, in the form that is the same for
// all of its clients (Forwarded holds their addresses).
func (x *exchange) askedPlainly() bool {
	h := x.r.Header
	claimed := len(h["X-Forwarded-Proto"]) > 0 || len(h["X-Forwarded-Host"]) > 0
	return !x.h.trusting || len(h["Forwarded"]) == 0 && (!claimed || x.h.proxy.TrustsHTTP(x.r))
}

// variesOn lists the request headers that had a say in this answer.
func (x *exchange) variesOn(o *object.Object) []string {
	names := append(slices.Clone(o.Vary), x.set.Key.VariesOn()...)
	if x.h.packer.takes(o) {
		names = append(names, "Accept-Encoding")
	}
	if x.h.dictionaries.of(o, x.r.URL.Path) > 0 {
		names = append(names, dictionary.Header)
	}
	if x.set.Cookies == rules.Secret {
		names = append(names, "Cookie")
	}
	if x.set.Auth == rules.Secret {
		names = append(names, "Authorization")
	}
	if x.set.ByHost {
		names = append(names, "Host")
	}
	if x.h.cors.Varies() {
		names = append(names, "Origin")
	}
	if x.h.trusting { // they are believed from some
		names = append(names, "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto")
	}
	if !x.set.Policy.IgnoreReload {
		names = append(names, "Cache-Control", "Pragma")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sendBody sends an answer that is not kept.
func (x *exchange) sendBody(resp *http.Response) {
	if x.r.Method == http.MethodHead || bodyless(resp.StatusCode) {
		return
	}
	n, readErr, writeErr := x.h.proxy.SendBodyHTTP(x.w, resp)
	x.h.meters.FromUpstream.Add(0, uint64(n))
	if readErr != nil || writeErr != nil {
		x.reason = "aborted"
		panic(http.ErrAbortHandler)
	}
	x.trail(resp.Trailer)
}

// trail sends trailers on, but for those that would have been too late, since
// they decide how a message is read (RFC 9110, 6.5.1).
func (x *exchange) trail(trailer http.Header) {
	if proxy.CheckHeaderHTTP(trailer) != nil {
		return
	}
	proxy.StripHTTP(trailer)
	if len(trailer) > 0 {
		_ = send.Flush(x.w) // otherwise a short body gets a Content-Length, and no trailers
	}
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

// bodyless reports whether an answer with a status never has a body (RFC 9110, 6.4.1).
func bodyless(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// seconds is a duration as headers have it.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }
