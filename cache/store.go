package cache

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/cache/fill"
	"millrace/cache/key"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/proxy"
)

const (
	// maxTags bounds what one answer may be purged by.
	maxTags = 256
)

// tagFields are the fields of an answer that hold purge tags.
func tagFields(names []string) []string {
	if names == nil {
		names = []string{"Surrogate-Key", "Cache-Tag"}
	}
	fields := make([]string, len(names))
	for i, name := range names {
		fields[i] = http.CanonicalHeaderKey(name)
	}
	return fields
}

// tagsOf takes the tags out of a header: separated by spaces or commas, as
// either of the two fields in use has them.
func (h *Handler) tagsOf(header http.Header) (tags []string) {
	for _, name := range h.tags {
		for _, line := range header[name] {
			for tag := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' }) {
				if len(tags) < maxTags && !slices.Contains(tags, tag) {
					tags = append(tags, tag)
				}
			}
		}
		delete(header, name)
	}
	return tags
}

// object makes an object without a body. header is the caller's to change.
func (h *Handler) object(j *journey, status int, header http.Header, facts rfc9111.Facts) *object {
	names, by := h.chosenBy(header, j.r)
	o := &object{
		status: status, fields: fieldsOf(header), facts: facts, vary: names, by: by, stamp: facts.Received.UnixNano(),
		owner: purge.Object{URL: key.Normal(urlOf(j.r)), Host: strings.ToLower(j.r.Host), At: j.at},
	}
	o.owner.Tags = j.tagged(h.tagsOf(header), o.owner.URL)
	return o
}

// tagged adds the tag by which an object is found that was asked for by another
// URL than the one of its key.
func (j *journey) tagged(tags []string, url string) []string {
	if !j.set.edits {
		return tags
	}
	front, _, _ := strings.Cut(j.key, "\n")
	if key.Normal(front) == url {
		return tags
	}
	return append(tags, keyTag(front))
}

// chosenBy lists the request fields that an answer varies by, and their values.
func (h *Handler) chosenBy(header http.Header, r *http.Request) (names, by []string) {
	names, _ = rfc9111.Vary(header)
	by = make([]string, len(names))
	for i, name := range names {
		by[i] = rfc9111.Normal(name, r.Header, h.languages)
	}
	return names, by
}

// urlOf is the URL of a request as a purge names it.
func urlOf(r *http.Request) string {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + strings.ToLower(r.Host) + r.URL.RequestURI()
}

// withoutOrigin is a header without what the upstream says about origins, when
// CORS is decided here.
func withoutOrigin(h http.Header) http.Header {
	c := h.Clone()
	for name := range c {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(c, name)
		}
	}
	names, star := rfc9111.Vary(c)
	if star || !slices.Contains(names, "Origin") {
		return c
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "Origin" })
	delete(c, "Vary")
	if len(names) > 0 {
		c["Vary"] = []string{strings.Join(names, ", ")}
	}
	return c
}

// clone is the object with another header and facts and the same body. Its
// atomic parts begin anew.
func (o *object) clone() *object {
	n := &object{
		status: o.status, fields: o.fields, body: o.body, size: o.size, disk: o.disk,
		facts: o.facts, vary: o.vary, by: o.by, owner: o.owner, rule: o.rule, stamp: o.stamp,
	}
	n.packed.Store(o.packed.Load())
	n.packing.Store(o.packing.Load())
	return n
}

// commit stores a whole answer, or gives back what it was written to.
func (h *Handler) commit(key string, o *object, body *fill.Body, keep bool) {
	size, ok := body.Whole()
	if !ok { // it did not say how large it is, and there was no place for all of it
		h.passes.add(key)
		h.meters.Reasons.Add("too-large")
	}
	if !ok || !keep || h.state(o) == purge.Gone { // on disk it could take the place of a newer one
		retire(body)
		return
	}
	done := o.clone()
	done.size = size
	if body.Spilt() != nil {
		h.commitSpilt(key, done, body)
		return
	}
	done.body = body.Bytes()
	h.passes.remove(key)
	if h.memory.put(key, done) {
		h.slow.keepLarge(h, key, done)
	}
}

// validated makes a 304 the new life of what is stored (RFC 9111, 4.3.4), and
// reports whether it was about that.
func (j *journey) validated(notModified http.Header, sent, received time.Time) bool {
	headers := make([]http.Header, len(j.stored))
	for i, o := range j.stored {
		headers[i] = o.header()
	}
	at := rfc9111.Selected(notModified, headers)
	if at < 0 {
		return false
	}
	old := j.stored[at]
	next, reason := j.freshened(old, notModified, sent, received)
	switch {
	case reason == "authorization": // what is stored may still be right for others
		return false
	case reason != "":
		// It may hold one client's cookie now, or say that it is private: the
		// answer to another request is judged, and goes to the leader alone.
		j.h.memory.drop(j.key, old)
		return false
	case !old.sameVariant(next) || !j.h.memory.swap(j.key, old, next):
		j.h.memory.put(j.key, next)
	}
	if next.stale(time.Now()) {
		j.fill.Detach()
	}
	j.fill.Settle(outcome{object: next, how: "validated", status: http.StatusNotModified})
	return true
}

// freshened is an object with what a 304 or a HEAD says of it (RFC 9111, 3.2).
func (j *journey) freshened(old *object, said http.Header, sent, received time.Time) (*object, string) {
	h := j.h
	header := j.set.policy.Freshen(old.header(), said, received)
	proxy.Strip(header)
	if h.cors != nil {
		header = withoutOrigin(header)
	}
	set := h.rules.forAnswer(j.r.URL.Path, old.status, header.Get("Content-Type"))
	policy := j.set.policy
	if set.name != "" {
		policy.Force = set.policy.Force
		policy.StaleIfError, policy.StaleWhileRevalidate = set.policy.StaleIfError, set.policy.StaleWhileRevalidate
		policy.AnyStatus = set.policy.AnyStatus
	}
	facts, reason := policy.Judge(j.r, old.status, header, sent, received)
	if byClient(header) {
		reason = "vary"
	}
	if reason == noLifetime {
		reason = "" // it has a validator, as we have just seen
	}
	next := old.clone()
	next.fields, next.facts, next.rule = fieldsOf(header), facts, set.name
	next.vary, next.by = h.chosenBy(header, j.r) // it may vary by something else now, and be right for this request, too
	next.owner.At = j.at
	if tags := h.tagsOf(said.Clone()); len(tags) > 0 {
		next.owner.Tags = j.tagged(tags, next.owner.URL)
	}
	return next, reason
}

// headUpdate takes in what an answer to HEAD says about the stored answer to
// GET (RFC 9111, 4.3.5): it is another one, or its header is renewed.
func (h *Handler) headUpdate(j *journey, resp *http.Response, sent, received time.Time) {
	old := h.memory.look(j.key).find(j.r, h.languages)
	if old == nil || resp.StatusCode != old.status || old.status != http.StatusOK {
		return
	}
	for _, name := range []string{"Etag", "Last-Modified", "Content-Length"} {
		if said := resp.Header.Get(name); said != "" && said != old.get(name) {
			if name == "Content-Length" && old.get(name) == "" {
				continue
			}
			h.memory.drop(j.key, old)
			return
		}
	}
	if next, reason := j.freshened(old, resp.Header, sent, received); reason == "" {
		h.memory.swap(j.key, old, next)
	}
}
