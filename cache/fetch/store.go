package fetch

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/cache/fill"
	"millrace/cache/key"
	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/rules"
	"millrace/cache/tier"
)

const (
	// maxTags bounds what one answer may be purged by.
	maxTags = 256
)

// tagsOf takes the tags out of a header: separated by spaces or commas, as
// either of the two fields in use has them.
func (c *Config) tagsOf(header http.Header) (tags []string) {
	for _, name := range c.Tags {
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
func (t *Fetch) object(status int, header http.Header, facts rfc9111.Facts) *object.Object {
	names, by := t.chosenBy(header)
	o := &object.Object{
		Status: status, Fields: object.FieldsOf(header), Facts: facts, Vary: names, By: by, Stamp: facts.Received.UnixNano(),
		Owner: purge.Object{URL: key.Normal(t.URL()), Host: strings.Clone(t.Host), At: t.at},
	}
	o.Owner.Tags = t.tagged(t.c.tagsOf(header), o.Owner.URL)
	return o
}

// tagged adds a tag with the URL that was asked for, where the key does not begin with
// it, so that a purge of that URL finds the object.
func (t *Fetch) tagged(tags []string, url string) []string {
	if !t.Settings.Edits {
		return tags
	}
	front, _, _ := strings.Cut(t.Key, "\n")
	if key.Normal(front) == url {
		return tags
	}
	return append(tags, rules.KeyTag(front))
}

// chosenBy lists the request fields that an answer varies by, and their values.
func (t *Fetch) chosenBy(header http.Header) (names, by []string) {
	names, _ = rfc9111.Vary(header)
	by = make([]string, len(names))
	for i, name := range names {
		by[i] = strings.Clone(rfc9111.Normal(name, t.Head.Fields, t.c.Languages)) // it may be a part of the head
	}
	return names, by
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

// commit stores a whole answer, or gives up its place on the disk. What is stored is o
// itself if it is unseen, which nobody else has yet.
func (t *Fetch) commit(o *object.Object, body *fill.Body, keep, unseen bool) {
	size, ok := body.Whole()
	if !ok { // it did not say how large it is, and there was no place for all of it
		t.fetcher.passes.add(t.Key)
		t.c.Meters.Reasons.Add("too-large")
	}
	if !ok || !keep || o.State(t.c.Purges.Index()) == purge.Gone { // on disk it could take the place of a newer one
		tier.Discard(body)
		return
	}
	done := o
	if !unseen {
		done = o.Clone()
	}
	done.Size = size
	if body.Overflowed() != nil {
		if t.c.Tiers.Commit(t.Key, done, body) {
			t.fetcher.passes.remove(t.Key)
		}
		return
	}
	done.Body = body.Bytes()
	t.fetcher.passes.remove(t.Key)
	if t.c.Tiers.Put(t.Key, done) {
		t.write(done)
	}
}

// write has the slower tiers take an object. Where other machines wait for it, it is there
// when they are told.
func (t *Fetch) write(o *object.Object) {
	if t.lease == nil {
		t.c.Tiers.WriteNew(t.Key, o)
		return
	}
	if t.c.Tiers.WriteNow(t.c.Context, t.Key, o) {
		t.release(noteStored)
	}
}

// headersOf are the headers of objects.
func headersOf(objects []*object.Object) []http.Header {
	headers := make([]http.Header, len(objects))
	for i, o := range objects {
		headers[i] = o.Header()
	}
	return headers
}

// validated makes a 304 the new life of what is stored (RFC 9111, 4.3.4), and
// reports whether it was about that.
func (t *Fetch) validated(notModified http.Header, received time.Time) bool {
	at := rfc9111.Selected(notModified, headersOf(t.stored))
	if at < 0 {
		return false
	}
	old := t.stored[at]
	next, reason := t.freshened(old, notModified, received)
	switch {
	case reason == "authorization": // what is stored may still be right for others
		return false
	case reason != "":
		// It may hold one client's cookie now, or say that it is private: the
		// answer to another request is judged, and goes to the leader alone.
		t.c.Tiers.Drop(t.Key, old)
		return false
	case !old.SameVariant(next) || !t.c.Tiers.Swap(t.Key, old, next):
		t.c.Tiers.Put(t.Key, next)
	}
	if next.Stale(time.Now()) {
		t.fill.Detach()
	}
	t.fill.Settle(Outcome{Object: next, How: "validated", Status: http.StatusNotModified})
	if t.lease != nil {
		t.write(next)
	}
	return true
}

// freshened is an object with what a 304 or a HEAD says of it (RFC 9111, 3.2).
func (t *Fetch) freshened(old *object.Object, update http.Header, received time.Time) (*object.Object, string) {
	header := t.Settings.Policy.Freshen(old.Header(), update, received)
	strip(header)
	if t.c.CORS {
		header = withoutOrigin(header)
	}
	t.offerDictionary(old.Status, header, old.Size)
	policy, rule := t.c.Rules.ForAnswer(t.Settings, t.Head, t.Proof, old.Status, header.Get("Content-Type"))
	facts, reason := policy.Judge(t.Head, old.Status, header, t.sent, received)
	if byClient(header) {
		reason = "vary"
	}
	if reason == rfc9111.NoLifetime {
		reason = "" // it has a validator, as we have just seen
	}
	if reason == "" && !policy.SharesCookies(update, received) { // whose lifetime is not what is stored says
		reason = "set-cookie"
	}
	next := old.Clone()
	next.Fields, next.Facts, next.Rule = object.FieldsOf(header), facts, rule
	next.Vary, next.By = t.chosenBy(header) // it may vary by something else now, and be right for this request, too
	next.Owner.At = t.at
	if tags := t.c.tagsOf(update.Clone()); len(tags) > 0 {
		next.Owner.Tags = t.tagged(tags, next.Owner.URL)
	}
	return next, reason
}

// headUpdate takes in what an answer to HEAD says about the stored answer to
// GET (RFC 9111, 4.3.5): it is another one, or its header is renewed.
func (t *Fetch) headUpdate(status int, header http.Header, received time.Time) {
	old := t.c.Tiers.Look(t.Key).Find(t.Head.Fields, t.c.Languages)
	if old == nil || status != old.Status || old.Status != http.StatusOK {
		return
	}
	for _, name := range []string{"Etag", "Last-Modified", "Content-Length"} {
		if update := object.First(header[name]); update != "" && update != old.Get(name) {
			if name == "Content-Length" && old.Get(name) == "" {
				continue
			}
			t.c.Tiers.Drop(t.Key, old)
			return
		}
	}
	if next, reason := t.freshened(old, header, received); reason == "" {
		t.c.Tiers.Swap(t.Key, old, next)
	}
}
