package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
)

// history has the attempts for each name.
type history struct {
	mu sync.Mutex
	of map[string]*Attempts
}

// mostNames bounds the history: with on-demand certificates clients choose the names.
const mostNames = 20000

// Attempts are the attempts to get a certificate for one name.
type Attempts struct {
	Made, Failed uint64
	LastError    string // "" after a success
	LastFailed   time.Time
	Next         time.Time // the next attempt, zero if not known
}

// change calls f with the attempts for a name.
func (h *history) change(name string, f func(*Attempts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[name]
	if a == nil {
		if len(h.of) >= mostNames {
			for other := range h.of { // any
				delete(h.of, other)
				break
			}
		}
		a = &Attempts{}
		h.of[name] = a
	}
	f(a)
}

// forget removes a name that is not wanted any more.
func (h *history) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, name)
}

func (h *history) get(name string) Attempts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.of[name]; a != nil {
		return *a
	}
	return Attempts{}
}

var (
	errRefused = errors.New("no CA may be asked now")
	errNotKept = errors.New("the CA has issued a certificate that could not be written")
)

// happened handles certmagic's events.
func (m *Manager) happened(ctx context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	renewal, _ := data["renewal"].(bool)
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	switch event {
	case "cert_obtaining":
		switch {
		case !m.refusedUntil(name).IsZero():
			return certmagic.ErrNoRetry{Err: errRefused}
		case a != nil && a.asked: // certmagic repeats the attempt by itself after a while
			return certmagic.ErrNoRetry{Err: errNotKept}
		case a != nil:
			a.asked = true
		}
		m.history.change(name, func(h *Attempts) { h.Made++ })
	case "cert_obtained":
		m.history.change(name, func(h *Attempts) { h.LastError, h.Next = "", time.Time{} })
		what := "has a certificate"
		if renewal {
			what = "has a new certificate"
		}
		m.errors.Info(name+" "+what, "from", data["issuer"])
	case "cert_failed":
		err, _ := data["error"].(error)
		if a != nil {
			if ctx.Err() != nil {
				return nil // the name has gone
			}
			a.err = cmp.Or(err, errRefused)
			a.stop()
		}
		m.failed(name, renewal, err)
	}
	return nil
}

// failed notes and logs a failed attempt.
func (m *Manager) failed(name string, renewal bool, err error) {
	text := explain(name, err, m.refusedUntil(name))
	if _, ofCA := errors.AsType[acme.Problem](err); !ofCA {
		if file := damaged(m.folder.Path); file != "" {
			text = file + " (" + text + ")"
		}
	}
	m.history.change(name, func(a *Attempts) { a.Failed, a.LastError, a.LastFailed = a.Failed+1, text, time.Now() })
	if renewal {
		m.errors.Warn("the certificate of "+name+" was not renewed; the old one is used until its end, and it is tried again", "why", text)
	} else {
		m.errors.Warn("there is no certificate for "+name+" yet; it is tried again", "why", text)
	}
}

// explain says what a failure means and what to do. until is when the CA may be asked
// again; zero: it has not said.
func explain(name string, err error, until time.Time) string {
	if err == nil {
		return "unknown"
	}
	problem, ok := errors.AsType[acme.Problem](err)
	if !ok {
		return explainNoAnswer(err)
	}
	detail := problem.Detail
	for _, sub := range problem.Subproblems {
		detail += "; " + sub.Detail
	}
	switch strings.TrimPrefix(problem.Type, acme.ProblemTypeNamespace) {
	case "connection":
		return fmt.Sprintf("the CA cannot reach port 80 or 443 of %s: open them in the firewall, and forward them to this machine (%s)", name, detail)
	case "dns":
		return fmt.Sprintf("the DNS does not know %s: add an A or AAAA record with this machine's address (%s)", name, detail)
	case "unauthorized", "incorrectResponse":
		if problem.Resource == nil { // no proof of a name has failed
			return fmt.Sprintf("the CA refuses the account: compare id and secret of external_account with what the CA has handed out (%s)", detail)
		}
		return fmt.Sprintf("another server answers for %s: let its A and AAAA records point to this machine alone (%s)", name, detail)
	case "caa":
		return fmt.Sprintf("a CAA record of %s forbids this CA to issue: change the record, or the CA (%s)", name, detail)
	case "rateLimited":
		return limited(detail, until)
	case "rejectedIdentifier":
		return fmt.Sprintf("the CA issues no certificate for %s (%s)", name, detail)
	case "externalAccountRequired":
		return "this CA wants an account that exists: add external_account with its id and secret"
	}
	if problem.Status == http.StatusTooManyRequests {
		return limited(detail, until)
	}
	return err.Error()
}

// explainNoAnswer is explain for a CA that has not answered.
func explainNoAnswer(err error) string {
	asked, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err.Error()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Sprintf("the certificate of the CA's own server is not trusted at %s: name the file with its root in \"ca_roots\" (%v)", asked.URL, asked.Err)
	}
	return fmt.Sprintf("the CA cannot be reached at %s: let this machine connect to it, or add another one to \"ca\" (%v)", asked.URL, asked.Err)
}

// limited describes a rate limit.
func limited(detail string, until time.Time) string {
	if until.IsZero() {
		return fmt.Sprintf("the CA has issued too much of late (%s)", detail)
	}
	return fmt.Sprintf("rate limit until %s: the CA has issued too much of late, and is not asked again before; add another one to \"ca\" if that is too late (%s)", until.Format("2006-01-02 15:04:05 MST"), detail)
}

// Status is the state of one name: its certificate, or why there is none yet.
type Status struct {
	Name   string
	Issuer string
	// From and To are the certificate's validity, Renewal is when the next one is
	// requested. Nil while there is no certificate.
	From, To, Renewal *time.Time
	// Attempts is how often a certificate was requested since the server started,
	// Failures how many of these failed.
	Attempts, Failures uint64
	// LastError is empty after a success.
	LastError  string
	LastFailed *time.Time
	// LimitedUntil is the end of a CA's rate limit: no CA is asked for the name
	// before. Next is when a name without a certificate is tried again.
	LimitedUntil *time.Time
	Next         *time.Time
}

// Status lists the state of all names, in the order of names.
func (m *Manager) Status() []Status {
	now := m.state.Load()
	var list []Status
	for name := range now.names {
		list = append(list, m.status(name))
	}
	m.history.mu.Lock()
	var others []string // on demand
	for name := range m.history.of {
		if !now.names[name] {
			others = append(others, name)
		}
	}
	m.history.mu.Unlock()
	for _, name := range others {
		list = append(list, m.status(name))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

func (m *Manager) status(name string) Status {
	a := m.history.get(name)
	s := Status{Name: name, Attempts: a.Made, Failures: a.Failed, LastError: a.LastError}
	if a.LastError != "" {
		s.LastFailed = &a.LastFailed
	}
	if !a.Next.IsZero() {
		s.Next = &a.Next
	}
	if until := m.refusedUntil(name); !until.IsZero() {
		s.LimitedUntil = &until
	}
	var newest certmagic.Certificate
	for _, c := range m.cache.AllMatchingCertificates(name) {
		if newest.Leaf == nil || c.Leaf.NotAfter.After(newest.Leaf.NotAfter) {
			newest = c
		}
	}
	if leaf := newest.Leaf; leaf != nil {
		from, to := leaf.NotBefore, leaf.NotAfter
		renew := to.Add(-time.Duration(float64(to.Sub(from)) * certmagic.DefaultRenewalWindowRatio))
		if asked, ok := m.askedFor(name); ok {
			renew = asked
		}
		s.From, s.To, s.Renewal, s.Issuer = &from, &to, &renew, leaf.Issuer.CommonName
	}
	return s
}

// askedFor returns when the CA wants a name's certificate to be renewed (ARI, RFC 9773).
// It reads the local folder, so that a status never waits for a shared store.
func (m *Manager) askedFor(name string) (time.Time, bool) {
	for _, issuer := range m.state.Load().config.Issuers {
		text, err := m.folder.Load(m.ctx, certmagic.StorageKeys.SiteMeta(issuer.IssuerKey(), name))
		if err != nil {
			continue
		}
		var meta struct {
			IssuerData struct {
				RenewalInfo *acme.RenewalInfo `json:"renewal_info"`
			} `json:"issuer_data"`
		}
		if json.Unmarshal(text, &meta) == nil && meta.IssuerData.RenewalInfo != nil && !meta.IssuerData.RenewalInfo.SelectedTime.IsZero() {
			return meta.IssuerData.RenewalInfo.SelectedTime, true
		}
	}
	return time.Time{}, false
}
