package cache

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"millrace/cache/fetch"
	"millrace/cache/object"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/internal/lane"
	"millrace/internal/upstream"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/field"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/pages"
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
	earlier := o.All(cacheStatus)
	used := x.h.tiers.Used(x.key, o)
	if how == "hit" {
		x.offer(o, a, earlier, used)
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
	a = &send.Answer{Status: o.Status, Body: o.Body, Size: o.Size}
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
	lines := x.visible(make(field.Lines, 0, len(o.Fields)+6), o)
	x.encode(o, a, &lines)
	if !bodyless(o.Status) {
		lines.Set("Content-Length", strconv.FormatInt(a.Size, 10))
	}
	if a.Status == 0 && (a.File == nil || a.File.HasDescriptor() || a.Size > 0) {
		lines.Add("Accept-Ranges", "bytes")
	}
	lines = x.allow(lines)
	h := http.Header(lines.Header())
	if a.Header = h; a.Status == 0 {
		a.ETag = object.First(h["Etag"])
		a.LastModified = rfc9111.Modified(h, x.began)
	}
	return a, release, nil
}

// visible appends the fields of an object, without those that are for this cache alone,
// those that are made anew, and Cache-Status.
func (x *exchange) visible(lines field.Lines, o *object.Object) field.Lines {
	for _, f := range o.Fields {
		switch {
		case f.Name == cacheStatus, slices.Contains(x.h.hidden, f.Name):
		case f.Name == "Accept-Ranges" && o.Status == http.StatusOK, f.Name == "Content-Length" && bodyless(o.Status): // RFC 9110, 8.6
		default:
			for _, v := range f.Values {
				lines = append(lines, field.Line{Name: f.Name, Value: v})
			}
		}
	}
	return lines
}

// fields appends what the client gets of an answer that has just come, whoever sends it.
// why and joined are for Cache-Status.
func (x *exchange) fields(lines field.Lines, out *fetch.Outcome, why string, joined bool) field.Lines {
	o := out.Object
	lines = x.visible(lines, o)
	if !joined {
		lines = append(lines, out.Withheld...)
	}
	if out.Aged || joined { // RFC 9111, 5.1: it was not made for this request
		lines = append(lines, field.Line{Name: "Age", Value: strconv.FormatInt(seconds(o.Facts.CurrentAge(time.Now())), 10)})
	}
	if o.Status == http.StatusOK {
		lines = append(lines, field.Line{Name: "Accept-Ranges", Value: "bytes"})
	}
	lines = x.allow(lines)
	for _, earlier := range o.All(cacheStatus) {
		lines = append(lines, field.Line{Name: cacheStatus, Value: earlier})
	}
	status := forward{why: why, status: out.Status, collapsed: joined, stored: out.Reason == "", detail: out.Reason}
	return append(lines, field.Line{Name: cacheStatus, Value: status.String()})
}

// encode puts the best of the object's encodings into a and its fields.
func (x *exchange) encode(o *object.Object, a *send.Answer, lines *field.Lines) {
	if !x.h.packer.takes(o) {
		return
	}
	if !slices.ContainsFunc(o.All("Vary"), func(line string) bool { return strings.Contains(strings.ToLower(line), "accept-encoding") }) {
		lines.Add("Vary", "Accept-Encoding")
	}
	rule := x.h.dictionaries.of(o, x.head.Decoded())
	if rule > 0 {
		lines.Add("Vary", dictionary.Header)
		x.h.wantKept(o, rule)
	}
	if x.head.Fields.Has("Range") { // parts of what was sent before it was encoded
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
	lines.Set("Content-Encoding", coding)
	if tag := o.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		lines.Set("Etag", "W/"+tag) // RFC 9110, 8.8.3.3: not the same bytes any more
	}
	for _, name := range [...]string{"Content-Digest", "Repr-Digest", "Digest", "Content-Md5"} {
		lines.Delete(name) // RFC 9530: of the bytes that were encoded here
	}
}

// offer lets the fast lane answer the next such request, as long as the object
// is fresh and nothing is purged.
func (x *exchange) offer(o *object.Object, a *send.Answer, before []string, used *atomic.Bool) {
	// A file is the store's, open for this request alone.
	if a.File != nil || !x.demand.Neutral() || x.head.Fields.Has("Range") || !x.set.Key.Plain(x.head) {
		return
	}
	if x.unsure || x.cut || len(x.set.Made) > 0 || !x.askedPlainly() {
		return // the lane does not know who asks, and compares headers as they came
	}
	facts := o.Facts
	names, negotiated := x.variesOn(o)
	lane.Offer(x.r, a, lane.Rule{
		VaryOn:     names,
		Negotiated: negotiated,
		Version:    x.version,
		Also:       x.purges,
		Expires:    x.began.Add(facts.TTL(x.began)),
		Used:       used,
		WithQuery:  true,
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
	f := x.head.Fields
	claimed := f.Has("X-Forwarded-Proto") || f.Has("X-Forwarded-Host")
	return !x.h.trusting || !f.Has("Forwarded") && (!claimed || x.h.proxy.Trusts(x.head))
}

// variesOn lists the request headers that had a say in this answer. negotiated: with
// Accept-Encoding only the encoding was chosen, by package negotiate.
func (x *exchange) variesOn(o *object.Object) (names []string, negotiated bool) {
	names = append(slices.Clone(o.Vary), x.set.Key.VariesOn()...)
	if stored := x.h.tiers.Get(x.key); stored != nil { // one before it may be chosen by other fields
		for _, other := range stored.Objects {
			names = append(names, other.Vary...)
		}
	}
	negotiated = !slices.Contains(names, "Accept-Encoding")
	if x.h.packer.takes(o) {
		names = append(names, "Accept-Encoding")
	}
	if x.h.dictionaries.of(o, x.head.Decoded()) > 0 {
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
	return slices.Compact(names), negotiated
}

// sendBody sends an answer that is not kept.
func (x *exchange) sendBody(a *upstream.Answer) {
	if x.head.Method == http.MethodHead || bodyless(a.Status) {
		return
	}
	n, readErr, writeErr := x.h.proxy.SendBody(x.w, a)
	x.h.meters.FromUpstream.Add(0, uint64(n))
	if readErr != nil || writeErr != nil {
		x.reason = "aborted"
		panic(http.ErrAbortHandler)
	}
	x.trail(a.Trailer)
}

// trail sends trailers on, but for those that would have been too late, since
// they decide how a message is read (RFC 9110, 6.5.1).
func (x *exchange) trail(trailer http.Header) {
	lines := field.Of(trailer)
	if proxy.CheckHeader(lines) != nil {
		return
	}
	proxy.Strip(&lines)
	if len(lines) > 0 {
		_ = send.Flush(x.w) // otherwise a short body gets a Content-Length, and no trailers
	}
	for _, l := range lines {
		switch l.Name {
		case "Set-Cookie", "Cache-Control", "Expires", "Age", "Date", "Vary", "Location", cacheStatus, "Www-Authenticate":
			continue
		}
		if !strings.HasPrefix(l.Name, "Content-") && !slices.Contains(x.h.hidden, l.Name) {
			x.w.Header().Add(http.TrailerPrefix+l.Name, l.Value)
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
	pages.Error(x.w, x.r, status, text)
}

// bodyless reports whether an answer with a status never has a body (RFC 9110, 6.4.1).
func bodyless(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// seconds is a duration as headers have it.
func seconds(d time.Duration) int64 { return int64(d / time.Second) }
