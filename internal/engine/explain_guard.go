package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/access/admit"
	"millrace/internal/config"
	"millrace/internal/route/headers"
	"millrace/internal/route/match"
	"millrace/internal/wire/netset"
)

// trapped adds a step if the path is a trap, and reports whether the trap answers.
func (e *explainer) trapped(r *http.Request) (answers bool, err error) {
	if e.site.Traps == nil {
		return false, nil
	}
	trap, err := admit.NewTable().Trap(*e.site.Traps)
	if err != nil {
		return false, fmt.Errorf("traps: %w", err)
	}
	switch own, at := trap.Asked(r.URL); {
	case own:
		e.addStep("trap", "this path is a trap: a program that asks for it is turned away from all sites with traps")
		e.ended(http.StatusNotFound, "Nothing is here.")
		e.cold = "answers of traps are not kept"
		return true, nil
	case at:
		e.addStep("trap", "the presets have this path: a program that asks for it is turned away if the answer is 403, 404, 405 or 410")
		e.cold = "paths of traps are not kept"
	}
	return false, nil
}

// challenged adds a step for the route's challenge.
func (e *explainer) challenged(r *http.Request, rc config.Route) {
	o := rc.Challenge
	if o == nil {
		o = e.site.Challenge
	}
	if o == nil || o.Off {
		return
	}
	if s, err := admit.NewTable().Suspects(*o, nil, "", ""); err == nil && s.Asks(r.UserAgent()) {
		e.addStep("challenge", "a proof is needed, because of the User-Agent %q", r.UserAgent())
	} else {
		e.addStep("challenge", "suspicious clients need a proof; this User-Agent is not one")
	}
}

// client is the address of the client, as trusted proxies name it.
func (e *explainer) client(r *http.Request) netip.Addr { return e.clients.Of(r) }

// closed adds a step for maintenance, and reports whether that answers.
func (e *explainer) closed(r *http.Request) (answers bool, err error) {
	o := e.cfg.Maintenance
	if !o.On {
		return false, nil
	}
	m, h, err := o.Compile(e.scope)
	if err != nil {
		return false, err //nolint:wrapcheck // says it all
	}
	if !m.Matches(match.Of(r)) {
		e.addStep("maintenance", "all sites are closed, but not for %s (maintenance.allow)", e.client(r))
		return false, nil
	}
	e.addStep("maintenance", "all sites are closed: nothing else is looked at")
	w := &answerHead{header: http.Header{}}
	h.ServeHTTP(w, r)
	e.Job = "maintenance"
	e.ended(w.status, "%d %s, for maintenance", w.status, http.StatusText(w.status))
	e.cold = "what is said in a maintenance holds only as long"
	return true, nil
}

// admitted adds steps for access and rate limits, and reports whether the client may come
// in.
func (e *explainer) admitted(r *http.Request, rc config.Route) (ok bool, err error) {
	of := "the route's"
	o := rc.Access
	if o == nil {
		o, of = e.site.Access, "the site's"
	}
	if o != nil && !o.Off {
		lists, err := admit.Open(*o, slog.New(slog.DiscardHandler))
		if err != nil {
			return false, fmt.Errorf("access: %w", err)
		}
		allowed := lists.Allow(e.client(r))
		if err := lists.Close(); err != nil {
			return false, fmt.Errorf("access: %w", err)
		}
		if !allowed {
			e.addStep("access", "%s is turned away by %s access", visitorOf(e.client(r)), of)
			e.ended(http.StatusForbidden, "403 Forbidden, by access")
			e.cold = "who is turned away is asked anew each time"
			return false, nil
		}
		e.addStep("access", "%s may ask, by %s access", visitorOf(e.client(r)), of)
	}
	e.challenged(r, rc)
	e.rate("the route", rc.RateLimit, r)
	e.rate("the site", e.site.RateLimit, r)
	return true, nil
}

// visitorOf is an address in words.
func visitorOf(a netip.Addr) string {
	if !a.IsValid() {
		return "a client of a UNIX socket"
	}
	return a.String()
}

// rate adds a step for a rate limit.
func (e *explainer) rate(of string, o *admit.Rate, r *http.Request) {
	if o == nil {
		return
	}
	if except, err := netset.Parse(o.Except); err == nil && len(o.Except) > 0 && except.Has(e.client(r)) {
		e.addStep("rate", "%s is not counted (rate_limit.except of %s)", visitorOf(e.client(r)), of)
		return
	}
	by := "each address"
	switch {
	case o.Header != "":
		by = "each value of " + o.Header
	case o.By == "route":
		by = "all clients together"
	}
	burst := ""
	if o.Burst > 0 {
		burst = ", " + strconv.Itoa(o.Burst) + " at once"
	}
	e.addStep("rate", "%s of %s%s for %s; more gets 429. How much is left only the running server knows", o.Rate, of, burst, by)
}

// fields adds a step for the rules on the answer's header fields.
func (e *explainer) fields() {
	var route *config.Route
	if e.Route != "" {
		route = &e.route
	}
	for _, l := range e.cfg.HeaderLists(e.site, route) {
		if !forStatus(l.Status, e.Status) {
			continue
		}
		var does []string
		for _, part := range []struct {
			verb  string
			names []string
		}{
			{"removes", l.Remove}, {"sets", slices.Sorted(maps.Keys(l.Set))}, {"adds", slices.Sorted(maps.Keys(l.Add))}, {"gives, if there is none,", slices.Sorted(maps.Keys(l.Default))},
		} {
			if len(part.names) > 0 {
				does = append(does, part.verb+" "+strings.Join(part.names, ", "))
			}
		}
		if len(does) == 0 {
			continue
		}
		e.addStep("headers", "%s%s", strings.Join(does, "; "), whenOf(l))
	}
}

// forStatus reports whether rules for these statuses may apply to an answer; status 0 is
// one that an upstream decides.
func forStatus(list []string, status int) bool {
	return len(list) == 0 || status == 0 || slices.ContainsFunc(list, func(s string) bool {
		return s == strconv.Itoa(status) || strings.HasSuffix(s, "xx") && strings.HasPrefix(s, strconv.Itoa(status/100))
	})
}

// whenOf names the answers that rules are for.
func whenOf(l headers.List) (text string) {
	if len(l.Status) > 0 {
		text += ", for " + strings.Join(l.Status, ", ")
	}
	if len(l.Type) > 0 {
		text += ", for " + strings.Join(l.Type, ", ")
	}
	if l.Protocol != "" {
		text += map[string]string{"http": ", over plain HTTP", "https": ", over TLS"}[l.Protocol]
	}
	if l.Preset {
		text += " (headers.security)"
	}
	return text
}
