// Package rules decides by path, status and type which settings hold: whether a
// request may be answered from the cache, by which key, what of it reaches the
// upstream, and how long an answer lives.
package rules

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/cache/key"
	"millrace/cache/rfc9111"
	"millrace/internal/access/signin"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/urlpath"
)

// The presets.
const (
	PresetAPI    = "api"
	PresetRFC    = "rfc9111"
	PresetAssets = "assets"
)

// What the presets set where neither the answer nor the options say anything.
const (
	apiStaleIfError    = time.Hour
	assetsStaleIfError = 24 * time.Hour
	assetsStaleRefresh = time.Hour
)

// Settings are what holds for one request, made once of the options and a rule.
type Settings struct {
	Name    string // of the rule, empty for none
	Policy  rfc9111.Policy
	Key     *key.Maker
	Bypass  bool
	Cookies Handling
	Auth    Handling
	proof   Handling // what a request was let in for, where neither is it
	ByHost  bool     // the host is in the key
	Made    []string // headers in the key that reach the upstream as they are made here
	Edits   bool     // requests for other URLs may have the same key

	path     string // pattern; empty: any
	statuses []statusRange
	media    string            // type/subtype, type/*, or empty
	listed   []string          // cookies that are in the key
	spelled  map[string]string // headers that are in the key, by their fold
}

// Handling is how a request's Cookie or Authorization is treated.
type Handling int

// The ways to treat it.
const (
	Secret  Handling = iota // the request bypasses the cache
	Keyed                   // it is in the key, and reaches the upstream
	Dropped                 // it makes no difference, and does not reach the upstream
	Free                    // it reaches the upstream, as the RFC leaves it
)

type statusRange struct{ from, to int }

// Rules decides which Settings hold.
type Rules struct {
	base  Settings
	rules []Settings
}

// New makes the rules of options that have been checked.
func New(o Options) (*Rules, error) {
	b := &Rules{}
	if err := b.base.fill(o, Rule{}); err != nil {
		return nil, err
	}
	for i, rule := range o.Rules {
		s := Settings{Name: "rule " + strconv.Itoa(i+1)}
		if err := s.fill(o, rule); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		b.rules = append(b.rules, s)
	}
	return b, nil
}

// fill puts the preset, the options and the rule on top of each other.
func (s *Settings) fill(o Options, rule Rule) error {
	s.path, s.media, s.Bypass = rule.Path, strings.ToLower(rule.ContentType), rule.Bypass
	for _, text := range rule.Status {
		r, err := parseStatus(text)
		if err != nil {
			return err
		}
		s.statuses = append(s.statuses, r)
	}
	keys := o.Key
	if rule.Key != nil {
		keys = *rule.Key
	}
	p := rfc9111.Policy{
		Targets:   []string{http.CanonicalHeaderKey(cmp.Or(o.Target, DefaultTarget)), "Cdn-Cache-Control"},
		Surrogate: true,
		Device:    o.Device,
		AnyStatus: len(rule.Status) > 0,
		TTL:       o.TTL,
		Force:     rule.TTL,
	}
	s.Cookies, s.Auth, s.proof = Free, Free, Free
	var staleIfError, staleRefresh time.Duration
	switch cmp.Or(o.Preset, PresetAPI) {
	case PresetRFC:
		p.SetCookie = true
		p.Disconnected = rule.StaleIfError == nil && o.StaleIfError == 0
	case PresetAPI:
		s.Cookies, s.Auth, s.proof = Secret, Secret, Secret
		p.IgnoreReload, p.NoHeuristics = true, true
		staleIfError = apiStaleIfError
	case PresetAssets:
		s.Cookies, s.Auth, s.proof = Dropped, Secret, Secret
		p.IgnoreReload = true
		keys.DropTracking = true
		staleIfError, staleRefresh = assetsStaleIfError, assetsStaleRefresh
	default:
		return fmt.Errorf("preset %q is unknown: use api, rfc9111 or assets", o.Preset)
	}
	p.StaleIfError = *cmp.Or(rule.StaleIfError, orNil(o.StaleIfError), &staleIfError)
	p.StaleWhileRevalidate = *cmp.Or(rule.StaleWhileRevalidate, orNil(o.StaleWhileRevalidate), &staleRefresh)
	s.guard(keys, rule.Share)
	p.Authorized = s.Auth == Keyed || s.Auth == Dropped
	s.Policy = p
	s.ByHost = !keys.IgnoreHost
	s.spelled = map[string]string{}
	for _, name := range keys.Headers {
		name = http.CanonicalHeaderKey(name)
		s.spelled[field.Fold(name)] = name
		if field.Claim(name) || name == "Via" {
			s.Made = append(s.Made, name)
		}
	}
	s.Edits = keys.IgnoreHost || keys.SortQuery || keys.DropTracking || keys.NoQuery || len(keys.Query) > 0 || len(keys.WithoutQuery) > 0
	var err error
	s.Key, err = key.New(keys)
	return err
}

// guard decides how what tells users apart is treated. What is in the key may be
// stored. What is not in it must not reach the upstream, or one user's answer would
// become everyone's.
func (s *Settings) guard(keys key.Options, share bool) {
	for _, name := range keys.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Cookie":
			s.Cookies = Keyed
		case "Authorization":
			s.Auth = Keyed
		}
	}
	if len(keys.Cookies) > 0 && s.Cookies != Keyed {
		s.Cookies, s.listed = Keyed, keys.Cookies
	}
	if share {
		s.proof = Dropped
		if s.Cookies != Keyed {
			s.Cookies = Dropped
		}
		if s.Auth != Keyed {
			s.Auth = Dropped
		}
	}
}

// Personal reports whether a request has credentials that are not in the key,
// and that the upstream sees. p is what a gate has admitted it for.
func (s *Settings) Personal(request field.Lines, p signin.Proof) bool {
	return s.Cookies == Free && request.Has("Cookie") || s.Auth == Free && request.Has("Authorization") ||
		s.ProofOf(request, p) == Free
}

// ProofOf is how the credentials are treated for which a gate admitted a request: as
// Authorization is, whatever field they were in. Dropped where there are none.
func (s *Settings) ProofOf(request field.Lines, p signin.Proof) Handling {
	switch {
	case p.Cookie != "" && !s.keys(p.Cookie), p.Asked && !s.keysAll(request):
		return s.proof
	case p != signin.Proof{}:
		return Keyed
	}
	return Dropped
}

// keys reports whether a cookie is in the key.
func (s *Settings) keys(cookie string) bool {
	return s.Cookies == Keyed && (len(s.listed) == 0 || slices.Contains(s.listed, cookie))
}

// keysAll reports whether all credentials of a request are in the key. It is false for
// a request without any: nobody knows what it was admitted for.
func (s *Settings) keysAll(request field.Lines) bool {
	cookie, authorization := request.Has("Cookie"), request.Has("Authorization")
	return (cookie || authorization) && (!authorization || s.Auth == Keyed) &&
		(!cookie || s.Cookies == Keyed && (len(s.listed) == 0 || len(cookiesNamed(request.Values("Cookie"), s.listed)) > 0))
}

func orNil(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// Hidden are the fields of an answer that are for this cache alone.
func (b *Rules) Hidden() []string { return b.base.Policy.Hidden() }

// ForRequest is what can be known before there is an answer. path is the request's,
// decoded.
func (b *Rules) ForRequest(path string) *Settings {
	for i := range b.rules {
		if s := &b.rules[i]; s.statuses == nil && s.media == "" && s.matchesPath(path) {
			return s
		}
	}
	return &b.base
}

// Sure reports whether the same rules hold for a path however it is read: the
// upstream may answer /static/..%2faccount as /account, which is not to be kept
// by the rule for /static/*.
func (b *Rules) Sure(q *message.Request) bool {
	if len(b.rules) == 0 {
		return true
	}
	u := new(url.URL)
	if !q.URL(u) {
		return false
	}
	for _, p := range urlpath.Readings(u) {
		if p != u.Path && slices.ContainsFunc(b.rules, func(s Settings) bool { return s.matchesPath(p) != s.matchesPath(u.Path) }) {
			return false
		}
	}
	return true
}

// ForAnswer returns the policy that decides how long an answer may be used, with the
// name of its rule. asked are the settings that held for the request; what they
// decided stays. p is what a gate has admitted the request for.
func (b *Rules) ForAnswer(asked *Settings, q *message.Request, p signin.Proof, status int, contentType string) (policy rfc9111.Policy, rule string) {
	policy = asked.Policy
	policy.Proved = asked.ProofOf(q.Fields, p) == Free
	path := q.Decoded()
	for i := range b.rules {
		if s := &b.rules[i]; s.matchesPath(path) && s.matchesStatus(status) && s.matchesMedia(contentType) {
			policy.Force = s.Policy.Force
			policy.StaleIfError, policy.StaleWhileRevalidate = s.Policy.StaleIfError, s.Policy.StaleWhileRevalidate
			policy.AnyStatus = s.Policy.AnyStatus
			return policy, s.Name
		}
	}
	return policy, ""
}

// matchesPath compares a pattern: "/a/*" is everything below /a/, "*.json"
// every path that ends so, "*" in the middle any run of characters.
func (s *Settings) matchesPath(path string) bool {
	return s.path == "" || glob(s.path, path)
}

// glob reports whether a pattern with * matches all of s, in linear time for
// each star: the first place where the text between two stars fits is as good
// as any later one.
func glob(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s, rest = s[at+len(part):], more
	}
}

func (s *Settings) matchesStatus(status int) bool {
	if s.statuses == nil {
		return true
	}
	return slices.ContainsFunc(s.statuses, func(r statusRange) bool { return r.from <= status && status <= r.to })
}

func (s *Settings) matchesMedia(contentType string) bool {
	if s.media == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if family, all := strings.CutSuffix(s.media, "/*"); all {
		return strings.HasPrefix(media, family+"/")
	}
	return media == s.media
}

// parseStatus reads 404 or 5xx.
func parseStatus(text string) (statusRange, error) {
	if len(text) == 3 && strings.HasSuffix(strings.ToLower(text), "xx") && '1' <= text[0] && text[0] <= '5' {
		n := int(text[0]-'0') * 100
		return statusRange{n, n + 99}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 100 || n > 599 {
		return statusRange{}, fmt.Errorf("status %q is none: write one like 404, or a class like 5xx", text)
	}
	return statusRange{n, n}, nil
}
