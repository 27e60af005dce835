package cache

import (
	"context"
	"errors"
	"net/url"

	"millrace/cache/key"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/internal/wire/field"
)

// Purge takes effect before it returns, here; and on other machines as soon as
// they hear of it. An error means that it may not survive a crash, or that the
// others have not been told yet: they will be when the shared store answers again.
func (h *Handler) Purge(ctx context.Context, s purge.Selector) error {
	return h.purgedHere(s, h.purges.Purge(ctx, s))
}

// Announce is Purge, with a function that waits until the other machines have it: see
// [purge.Purger.Announce].
func (h *Handler) Announce(ctx context.Context, s purge.Selector) (await func(context.Context) error, err error) {
	await, err = h.purges.Announce(ctx, s)
	return await, h.purgedHere(s, err)
}

// purgedHere does what is left when a purge has taken effect in the index.
func (h *Handler) purgedHere(s purge.Selector, err error) error {
	if s.All && s.Hard {
		h.dictionaries.kept.Clear()
	}
	if h.purged != nil {
		err = errors.Join(err, h.purged(s))
	}
	return err
}

// SavePurges writes the journal of purges again. It is needed when another process,
// which was to take over the folder and has failed, may have replaced the file.
func (h *Handler) SavePurges() error { return h.purges.Save() }

// Message receives an announcement that a machine has published, maybe this one. lost
// means that others were missed: see [purge.Purger.Message].
func (h *Handler) Message(message []byte, lost bool) { h.purges.Message(message, lost) }

// Began receives the name of the run that the shared store's server is in, before the
// announcements of that run: see [purge.Purger.Began].
func (h *Handler) Began(run string) { h.purges.Began(run) }

// Lagging is called when messages of other machines may be published that do not reach this
// one: see [purge.Purger.Lagging].
func (h *Handler) Lagging() { h.purges.Lagging() }

// invalidate purges what an answer to an unsafe method makes invalid (RFC 9111, 4.4).
// target is what the client asked for. Only what is stored, or is being fetched, is
// purged: otherwise anyone could fill the purge index with URLs.
func (h *Handler) invalidate(ctx context.Context, method string, target url.URL, status int, answer field.Lines) {
	for _, u := range rfc9111.Invalidated(method, &target, status, answer) {
		under := h.fetches.Running() > 0 // before the look: a fill that ends between has stored by then
		stored, all := h.rules.ForRequest(u.Path).Key.ForURL(u.Scheme, u.Host, u.RequestURI())
		all = all && (!h.trusting || !h.clientHost) // see makeKey
		known := h.tiers.Forget(stored)
		if !known && all && !under && !h.tiers.Slow() {
			continue
		}
		u.Fragment = ""
		s := purge.Selector{URL: key.Normal(u.String()), Hard: true}
		if err := h.Purge(ctx, s); err != nil {
			h.errorLog.Warn("what a request has changed may still be served elsewhere, or after a crash", "url", s.URL, "err", err)
		}
	}
}
