package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxPastActions is how many actions are remembered.
const maxPastActions = 10

// maxPurge is how long what is purged may be, in bytes.
const maxPurge = 2048

// pastAction is something that the operator has done here.
type pastAction struct {
	at     time.Time
	what   string
	failed error
}

func newSecret() string { return rand.Text() }

// genuine reports whether a form is one of our pages. The listener refuses what
// browsers say to be of another origin; this holds for those that do not say it.
func (d *Dashboard) genuine(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.PostFormValue("form")), []byte(d.secret)) == 1
}

// act does what a button says. Browsers are sent back to the page, which says how it
// ended; scripts get it as JSON.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || !d.genuine(r) {
		http.Error(w, "This form is not of this server's page, or of before its start: load the page again.", http.StatusForbidden)
		return
	}
	d.acting.Lock()
	what, err := d.do(r.Context(), r.PostForm)
	d.acting.Unlock()
	if what == "" {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.remember(what, err)
	if kindOf(r) == asJSON {
		said := map[string]string{"did": what}
		if err != nil {
			said["error"] = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = json.NewEncoder(w).Encode(said) // the client may have gone
		return
	}
	http.Redirect(w, r, Prefix+"#"+pastActionsID, http.StatusSeeOther)
}

// errNoAction is for a request that no page of ours makes.
var errNoAction = errors.New("there is no such action here")

// do does it, and says in words what; "" where it is nothing.
func (d *Dashboard) do(ctx context.Context, form url.Values) (what string, err error) {
	a := &d.actions
	switch do := form.Get("do"); {
	case do == "purge" && a.Purge != nil:
		target := strings.TrimSpace(form.Get("what"))
		if target == "" || len(target) > maxPurge {
			return "", errors.New("what to purge is missing: a URL, a pattern with *, or * for everything")
		}
		return "purge of " + target, a.Purge(ctx, target)
	case (do == "drain" || do == "undrain") && a.Drain != nil:
		address := form.Get("server")
		return do + " of " + address, a.Drain(form.Get("pool"), address, do == "drain")
	case do == "close" && a.Maintenance != nil:
		return "closing the sites for maintenance", a.Maintenance(true)
	case do == "open" && a.Maintenance != nil:
		return "opening the sites after maintenance", a.Maintenance(false)
	case do == "reload" && a.Reload != nil:
		return "reload of the config", a.Reload()
	}
	return "", errNoAction
}

func (d *Dashboard) remember(what string, err error) {
	if err != nil {
		d.errors.Warn("the dashboard was asked to do something, and it failed", "what", what, "err", err)
	} else {
		d.errors.Info("done for the dashboard", "what", what)
	}
	d.mu.Lock()
	d.done = slices.Insert(d.done, 0, pastAction{time.Now(), what, err})
	d.done = d.done[:min(len(d.done), maxPastActions)]
	d.built = nil
	d.mu.Unlock()
}

// pastActionsID is the panel of what was done here.
const pastActionsID = "done"

// pastActions are the last actions. d.mu must be held.
func (d *Dashboard) pastActions() Panel {
	p := Panel{
		ID: pastActionsID, Title: "Done here",
		Columns: []Column{{Key: "time", Name: "time", Unit: Moment}, {Key: "what", Name: "what"}, {Key: "result", Name: "result"}},
	}
	for _, one := range d.done {
		level, result := Fine, "done"
		if one.failed != nil {
			level, result = Bad, one.failed.Error()
		}
		p.Rows = append(p.Rows, Row{level, []any{one.at, printable(one.what), result}})
	}
	return p
}

// printable makes a text that came from a form one that a terminal can show.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return '\ufffd'
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}
