// Package challenge makes clients that look like crawlers bring a proof of work: a browser
// computes hashes, or, without scripts, its user waits and presses a button. A client with
// a proof gets a signed cookie and is not asked again for a while.
//
// The server keeps no state for these clients: questions and cookies are signed, and bound
// to the client's address, the site, the reason, the amount of work, and a time.
package challenge

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"math/bits"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/pages"
)

const (
	// Marker is the last parameter of the query to which a proof is sent.
	Marker = "millrace-proof"
	// fresh is how long a question may be answered. A phone that sleeps meanwhile
	// is asked again.
	fresh = 10 * time.Minute
	// maxProof bounds the body of a proof, in bytes. It has two short fields.
	maxProof = 4 << 10
	// maxNonce bounds the number that a client has searched for, in digits.
	maxNonce = 20
	// signed is how many bytes of a signature are kept.
	signed = 16
)

// Terms are the settings of a challenge.
type Terms struct {
	Secret []byte        // signs questions and cookies
	Site   string        // the site: proofs for other sites do not count
	Work   int           // zero bits at the start of a SHA-256: each one more doubles the work
	Wait   time.Duration // for clients without scripts
	Lasts  time.Duration // how long a proof is good for
}

// Challenge asks for proofs. It is safe for concurrent use.
type Challenge struct {
	terms  Terms
	policy string // Content-Security-Policy of the page
}

//go:embed page.html
var page string

const style = pages.Style + `button{font:inherit;padding:.5rem 1.25rem;border:2px solid var(--mark);border-radius:.375rem;background:var(--mark);color:var(--back);cursor:pointer}
button:focus-visible{outline:3px solid var(--text);outline-offset:2px}
`

//go:embed page.js
var script string

// New returns a challenge with these terms.
func New(t Terms) *Challenge {
	sum := func(text string) string {
		h := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
	}
	return &Challenge{t, "default-src 'none'; script-src " + sum(script) + "; style-src " + sum(style) +
		"; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"}
}

// cookie returns the name of the cookie for a reason.
func cookie(why string) string { return "millrace-" + why }

// strength is how much work a proof stands for.
type strength struct {
	work int
	wait time.Duration
}

func (c *Challenge) strength() strength { return strength{c.terms.Work, c.terms.Wait} }

// parseStrength reads what String has written.
func parseStrength(text string) (s strength, ok bool) {
	work, wait, ok := strings.Cut(text, "-")
	w, err := strconv.Atoi(work)
	ms, err2 := strconv.ParseInt(wait, 10, 32)
	s = strength{w, time.Duration(ms) * time.Millisecond}
	return s, ok && err == nil && err2 == nil && s.String() == text
}

// String is the strength as proofs have it.
func (s strength) String() string {
	return strconv.Itoa(s.work) + "-" + strconv.FormatInt(s.wait.Milliseconds(), 10)
}

// satisfies reports whether a proof is at least as strong as the one that is needed.
func (s strength) satisfies(asked strength) bool { return s.work >= asked.work && s.wait >= asked.wait }

// sign is the signature over a text for a client. Addresses are those that one
// customer has: an IPv6 network of 64 bits.
func (c *Challenge) sign(kind, why, when string, worth strength, client netip.Addr) string {
	if client = client.Unmap(); client.Is6() {
		p, _ := client.WithZone("").Prefix(64) // an IPv6 address has as many bits
		client = p.Addr()
	}
	mac := hmac.New(sha256.New, c.terms.Secret)
	_, _ = io.WriteString(mac, kind+"\x00"+why+"\x00"+when+"\x00"+worth.String()+"\x00"+client.String()+"\x00"+c.terms.Site)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:signed])
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// Passed reports whether a request with these Cookie fields brings a valid proof for a
// reason: for this site, strong enough and not too old by these terms. Parts of a site may
// have stricter terms.
func (c *Challenge) Passed(cookies []string, why string, client netip.Addr, now time.Time) bool {
	r := http.Request{Header: http.Header{"Cookie": cookies}}
	for _, k := range r.CookiesNamed(cookie(why)) {
		until, rest, _ := strings.Cut(k.Value, ".")
		text, mac, _ := strings.Cut(rest, ".")
		worth, ok := parseStrength(text)
		if !ok || !worth.satisfies(c.strength()) || !equal(mac, c.sign("pass", why, until, worth, client)) {
			continue
		}
		at, err := strconv.ParseInt(until, 36, 64)
		if err == nil && now.Unix() < at && at <= now.Add(c.terms.Lasts).Unix() {
			return true
		}
	}
	return false
}

// Ask answers a request that needs a proof: with the page that makes one.
func (c *Challenge) Ask(w http.ResponseWriter, r *http.Request, why string, client netip.Addr, now time.Time, status int) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
	if status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.Itoa(c.seconds()))
	}
	if accept := r.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "text/html") && !strings.Contains(accept, "*/*") || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		pages.Error(w, r, status, "This client looks automated. A person opens the address in a browser, and is let in after a moment.")
		return
	}
	when := strconv.FormatInt(now.UnixMilli(), 36)
	token := why + "." + when + "." + c.sign("ask", why, when, c.strength(), client)
	h.Set("Content-Security-Policy", c.policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", "text/html; charset=utf-8")
	text := strings.NewReplacer(
		"{style}", style, "{script}", script, "{token}", token, "{work}", strconv.Itoa(c.terms.Work),
		"{wait}", strconv.Itoa(c.seconds()), "{action}", html.EscapeString(target(r, true)),
	).Replace(page)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text) // the client may be gone
	}
}

// seconds is how long clients without scripts wait.
func (c *Challenge) seconds() int { return int((c.terms.Wait + time.Second - 1) / time.Second) }

// target returns path and query of a request, with or without the marker.
func target(r *http.Request, marked bool) string {
	u := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: strings.TrimSuffix(strings.TrimSuffix(r.URL.RawQuery, Marker), "&")}
	path := "/" + strings.TrimLeft(u.EscapedPath(), "/\\") // two slashes would be another host
	query := u.RawQuery
	if marked {
		query = strings.TrimPrefix(query+"&"+Marker, "&")
	}
	if query != "" {
		path += "?" + query
	}
	return path
}

// Proves reports whether a request delivers a proof: it has the marker.
func Proves(method, query string) bool {
	return method == http.MethodPost && (query == Marker || strings.HasSuffix(query, "&"+Marker))
}

// Take answers a request that delivers a proof: with the cookie and a redirect to the page,
// or with another question, which has the given status.
func (c *Challenge) Take(w http.ResponseWriter, r *http.Request, client netip.Addr, now time.Time) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProof))
	if err != nil {
		pages.Error(w, r, http.StatusBadRequest, "This is no proof: go back and try again.")
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		pages.Error(w, r, http.StatusBadRequest, "This is no proof: go back and try again.")
		return
	}
	why, err := c.check(form.Get("token"), form.Get("nonce"), client, now)
	if errors.Is(err, errAgain) {
		c.Ask(w, r, why, client, now, http.StatusForbidden)
		return
	}
	if err != nil {
		pages.Error(w, r, http.StatusBadRequest, "This is no proof: go back and try again.")
		return
	}
	until := strconv.FormatInt(now.Add(c.terms.Lasts).Unix(), 36)
	http.SetCookie(w, &http.Cookie{
		Name: cookie(why), Value: until + "." + c.strength().String() + "." + c.sign("pass", why, until, c.strength(), client), Path: "/", MaxAge: int(c.terms.Lasts.Seconds()),
		Secure: r.TLS != nil, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", target(r, false))
	w.WriteHeader(http.StatusSeeOther)
}

// errAgain: the question is too old, or was for another client, or the work is not done.
var errAgain = errors.New("ask again")

// check verifies a proof.
func (c *Challenge) check(token, nonce string, client netip.Addr, now time.Time) (why string, err error) {
	why, rest, _ := strings.Cut(token, ".")
	when, mac, _ := strings.Cut(rest, ".")
	at, err := strconv.ParseInt(when, 36, 64)
	if err != nil || why == "" || len(why) > maxNonce || strings.Trim(why, "abcdefghijklmnopqrstuvwxyz") != "" || len(nonce) > maxNonce {
		return "", errors.New("this is no proof")
	}
	age := now.Sub(time.UnixMilli(at))
	switch {
	case !equal(mac, c.sign("ask", why, when, c.strength(), client)), age > fresh, age < 0:
		return why, errAgain
	case nonce == "" && age < c.terms.Wait, nonce != "" && !worked(token, nonce, c.terms.Work):
		return why, errAgain
	}
	return why, nil
}

// worked reports whether a nonce proves the work.
func worked(token, nonce string, zeros int) bool {
	sum := sha256.Sum256([]byte(token + "." + nonce))
	n := 0
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n >= zeros
}

// Check returns what is wrong with terms, by the name of what it is wrong with.
func (t Terms) Check() map[string]error {
	faults := map[string]error{}
	const leastSecret, leastWork, mostWork = 16, 8, 24 // 2^24 hashes are a minute on a phone
	if t.Secret != nil && len(t.Secret) < leastSecret {
		faults["secret"] = fmt.Errorf("a secret of %d characters can be guessed: at least %d", len(t.Secret), leastSecret)
	}
	if t.Work < leastWork || t.Work > mostWork {
		faults["work"] = fmt.Errorf("%d is out of range: from %d, which is nothing, to %d, a minute of a phone's", t.Work, leastWork, mostWork)
	}
	if t.Wait < time.Second || t.Wait > time.Minute {
		faults["wait"] = fmt.Errorf("%s is out of range: from 1s to 1m", t.Wait)
	}
	if t.Lasts < time.Minute || t.Lasts > 30*24*time.Hour {
		faults["for"] = fmt.Errorf("%s is out of range: from 1m to 720h", t.Lasts)
	}
	return faults
}
