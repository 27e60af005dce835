package static

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/internal/lane"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
	"millrace/static/original"
)

var _ original.Source = (*Handler)(nil)

// Original returns the file that a request names, for a job that makes other files of
// it. It refuses a file that keeps changing or has changed this very moment; such a
// file is served as it is.
func (h *Handler) Original(r *http.Request) (original.File, error) {
	h.wake()
	name, ok := h.requestName(r.URL)
	rules := h.rules.load()
	if !ok || name == "" || strings.HasSuffix(name, "/") || rules.answers(r) {
		return original.File{}, original.ErrNone
	}
	u, err := h.find(name, true)
	if err != nil {
		return original.File{}, noOriginal(name, err)
	}
	s := u.snapshot
	if u.transient {
		s.release()
		return original.File{CacheControl: changingCache}, original.ErrYoung
	}
	f, err := h.original(s.found.tree, s.found.file, s.found.sources[negotiate.Identity])
	f.Generation = s.read
	if rules != nil {
		f.ApplyHeaders = func(header http.Header) { rules.applyHeaders(header, pathOf(r), true) }
		if !rules.current() { // another request finds the new ones
			return f, original.ErrYoung
		}
	}
	return f, err
}

// Lookup is Original by the file's name below the root, and without its Generation.
// It remembers nothing, so it may be called for very many files.
func (h *Handler) Lookup(name string) (original.File, error) {
	if h.private.covers(name) {
		return original.File{}, noOriginal(name, errNotFound)
	}
	t, info, err := h.trees.stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errNotFound
	}
	if err != nil {
		return original.File{}, noOriginal(name, err)
	}
	return h.original(t, name, stampOf(info))
}

func noOriginal(name string, err error) error {
	if errors.Is(err, errNotFound) || errors.Is(err, errDirectory) {
		return fmt.Errorf("%w: %s", original.ErrNone, name)
	}
	return fmt.Errorf("looking at %s: %w", name, err)
}

func (h *Handler) original(t *tree, file string, st stamp) (original.File, error) {
	f := original.File{CacheControl: h.cacheControl(file, h.typeOf(file))}
	if st.racy(time.Now()) {
		return f, original.ErrYoung
	}
	return original.File{
		Name:         file,
		Size:         st.size,
		Modified:     time.Unix(0, st.mtime),
		CacheControl: f.CacheControl,
		Open: func() (io.ReadCloser, error) {
			f, info, err := t.open(file)
			if err == nil && stampOf(info) != st {
				_ = f.Close() // read only
				return nil, errChanged
			}
			return f, err
		},
	}, nil
}

// List calls fn with the name of every file that can be asked for, until it
// returns an error, which List returns. Folders that cannot be read are left out.
func (h *Handler) List(ctx context.Context, fn func(name string) error) error {
	return h.trees.walk(".", func(_ *tree, name string, d fs.DirEntry) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case name != "." && (!h.options.Hidden && hidden(name) || h.private.covers(name)):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !fs.ValidPath(name) || strings.Contains(name, "\\"): // no request can name it
			return nil
		case d.IsDir() || !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		return fn(name)
	})
}

// Memory is what contents are held in.
func (h *Handler) Memory() *original.Memory { return h.table.memory.Memory }

// ServeOriginal is ServeHTTP with other cache headers and rules for the lane, for
// package images.
func (h *Handler) ServeOriginal(w http.ResponseWriter, r *http.Request, t original.Terms) {
	h.wake()
	rules := h.rules.load()
	name, ok := h.requestName(r.URL)
	if !ok || rules.answers(r) || r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.ServeHTTP(w, r)
		return
	}
	u, err := h.use(name, r.Header)
	if err != nil {
		h.fail(w, r, name, err)
		return
	}
	defer u.done()
	a := *u.answer
	a.Header = maps.Clone(a.Header)
	for field, values := range t.Header {
		if field == "Vary" {
			values = slices.Concat(a.Header["Vary"], values)
		}
		a.Header[field] = values
	}
	if u.offer && !t.Interim && rules.current() {
		rule := rules.restrictOffer(u.rule())
		rule.VaryOn = slices.Concat(rule.VaryOn, t.VaryOn)
		rule.WithQuery, rule.Also = t.WithQuery, t.Also
		lane.Offer(r, &a, rule)
	}
	send.Serve(w, r, &a)
}
