// Package control is how commands (millrace images stats, clean) talk to the
// image routes of a running server: two JSON calls below /images/ on its admin
// listener, each answered by route. Who may call is decided by the listener; it
// asks for no password.
//
//	GET  /images/       what each route has converted, and with what
//	POST /images/clean  removes variants whose originals are gone
package control

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"millrace/images"
)

const (
	// Prefix is where a Handler belongs: it gets the whole path.
	Prefix = "/images/"
	// Clean is the path of a request to remove orphans.
	Clean = Prefix + "clean"

	// maxTime bounds how long an answer may take: the folder is read for it.
	maxTime = time.Minute
)

// Handler answers below Prefix. routes lists the routes in use by name; it is
// called for every request.
func Handler(routes func() map[string]*images.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), maxTime)
		defer cancel()
		switch {
		case r.Method == http.MethodGet && r.URL.Path == Prefix:
			answer(w, routes(), func(h *images.Handler) (images.Stats, error) { return h.Stats(ctx) })
		case r.Method == http.MethodPost && r.URL.Path == Clean:
			answer(w, routes(), func(h *images.Handler) (images.CleanedUp, error) { return h.CleanUp(ctx) })
		default:
			http.Error(w, "GET "+Prefix+" or POST "+Clean, http.StatusNotFound)
		}
	})
}

// answer asks each route's handler and sends all that they return, by route.
func answer[T any](w http.ResponseWriter, routes map[string]*images.Handler, ask func(*images.Handler) (T, error)) {
	all := map[string]T{}
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		one, err := ask(routes[name])
		if err != nil {
			http.Error(w, name+": "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		all[name] = one
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the client may have gone
}
