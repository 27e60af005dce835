package engine

import (
	"fmt"
	"net/http"

	"millrace/internal/admit"
	"millrace/internal/config"
)

// trapped says whether a trap is at the path, and reports whether it is one that
// answers by itself.
func (e *explainer) trapped(r *http.Request) (answers bool, err error) {
	if e.site.Traps == nil {
		return false, nil
	}
	trap, err := admit.NewTable().Trap(*e.site.Traps)
	if err != nil {
		return false, fmt.Errorf("traps: %w", err)
	}
	switch {
	case trap.Own(r.URL.Path):
		e.say("trap", "this path is a trap: who asks for it is turned away from all sites with traps")
		e.ended(http.StatusNotFound, "Nothing is here.")
		e.cold = "answers of traps are not kept"
		return true, nil
	case trap.At(r.URL.Path):
		e.say("trap", "the presets have this path: who asks for it is turned away if the answer is 403, 404, 405 or 410")
		e.cold = "paths of traps are not kept"
	}
	return false, nil
}

// challenged says of whom a route asks a proof.
func (e *explainer) challenged(r *http.Request, rc config.Route) {
	o := rc.Challenge
	if o == nil {
		o = e.site.Challenge
	}
	if o == nil || o.Off {
		return
	}
	if s, err := admit.NewTable().Suspects(*o, nil, ""); err == nil && s.Asks(r.UserAgent()) {
		e.say("challenge", "a proof is needed, because of the User-Agent %q", r.UserAgent())
	} else {
		e.say("challenge", "suspicious clients need a proof; this User-Agent is not one")
	}
}
