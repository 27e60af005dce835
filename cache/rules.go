package cache

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/cache/key"
	"millrace/cache/rfc9111"
)

// The presets.
const (
	presetAPI    = "api"
	presetRFC    = "rfc9111"
	presetAssets = "assets"
)

// What the presets set where neither the answer nor the options say anything.
const (
	apiStaleIfError    = time.Hour
	assetsStaleIfError = 24 * time.Hour
	assetsStaleRefresh = time.Hour
)

// settings are what holds for one request, made once of the options and a rule.
type settings struct {
	name     string // of the rule, empty for none
	path     string // pattern; empty: any
	statuses []statusRange
	media    string // type/subtype, type/*, or empty
	policy   rfc9111.Policy
	key      *key.Maker
	bypass   bool
	cookies  custody
	auth     custody
	listed   []string // cookies that are in the key
	byHost   bool     // the host is in the key
	edits    bool     // requests for other URLs may have the same key
}

// custody is what becomes of a request's Cookie or Authorization.
type custody int

const (
	secret  custody = iota // the request bypasses the cache
	keyed                  // it is in the key, and reaches the upstream
	dropped                // it makes no difference, and does not reach the upstream
	free                   // it reaches the upstream, as the RFC leaves it
)

type statusRange struct{ from, to int }

// rulebook decides which settings hold.
type rulebook struct {
	base  settings
	rules []settings
}

func newRulebook(o Options) (*rulebook, error) {
	b := &rulebook{}
	if err := b.base.fill(o, Rule{}); err != nil {
		return nil, err
	}
	for i, rule := range o.Rules {
		s := settings{name: "rule " + strconv.Itoa(i+1)}
		if err := s.fill(o, rule); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		b.rules = append(b.rules, s)
	}
	return b, nil
}

// fill puts the preset, the options and the rule on top of each other.
func (s *settings) fill(o Options, rule Rule) error {
	s.path, s.media, s.bypass = rule.Path, strings.ToLower(rule.ContentType), rule.Bypass
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
		Targets:   []string{http.CanonicalHeaderKey(cmp.Or(o.Target, defaultTarget)), "Cdn-Cache-Control"},
		Surrogate: true,
		Device:    statusName,
		AnyStatus: len(rule.Status) > 0,
		TTL:       o.TTL,
		Force:     rule.TTL,
	}
	s.cookies, s.auth = free, free
	var staleIfError, staleRefresh time.Duration
	switch cmp.Or(o.Preset, presetAPI) {
	case presetRFC:
		p.SetCookie = true
	case presetAPI:
		s.cookies, s.auth = secret, secret
		p.IgnoreReload, p.NoHeuristics = true, true
		staleIfError = apiStaleIfError
	case presetAssets:
		s.cookies, s.auth = dropped, secret
		p.IgnoreReload = true
		keys.DropTracking = true
		staleIfError, staleRefresh = assetsStaleIfError, assetsStaleRefresh
	default:
		return fmt.Errorf("preset %q is unknown: use api, rfc9111 or assets", o.Preset)
	}
	p.StaleIfError = *cmp.Or(rule.StaleIfError, orNil(o.StaleIfError), &staleIfError)
	p.StaleWhileRevalidate = *cmp.Or(rule.StaleWhileRevalidate, orNil(o.StaleWhileRevalidate), &staleRefresh)
	s.guard(keys, rule.Share)
	p.Authorized = s.auth == keyed || s.auth == dropped
	s.policy = p
	s.byHost = !keys.IgnoreHost
	s.edits = keys.IgnoreHost || keys.SortQuery || keys.DropTracking || keys.NoQuery || len(keys.Query) > 0 || len(keys.WithoutQuery) > 0
	var err error
	s.key, err = key.New(keys)
	return err
}

// guard decides what becomes of what tells users apart. What is in the key may
// be stored; what is not in it must not reach the upstream, or one user's
// answer would become everyone's.
func (s *settings) guard(keys key.Options, share bool) {
	for _, name := range keys.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Cookie":
			s.cookies = keyed
		case "Authorization":
			s.auth = keyed
		}
	}
	if len(keys.Cookies) > 0 && s.cookies != keyed {
		s.cookies, s.listed = keyed, keys.Cookies
	}
	if share {
		if s.cookies != keyed {
			s.cookies = dropped
		}
		if s.auth != keyed {
			s.auth = dropped
		}
	}
}

// personal reports whether a request has credentials that are not in the key,
// and that the upstream sees.
func (s *settings) personal(r *http.Request) bool {
	return s.cookies == free && len(r.Header["Cookie"]) > 0 || s.auth == free && len(r.Header["Authorization"]) > 0
}

func orNil(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// forRequest is what can be known before there is an answer.
func (b *rulebook) forRequest(path string) *settings {
	for i := range b.rules {
		if s := &b.rules[i]; s.statuses == nil && s.media == "" && s.matchesPath(path) {
			return s
		}
	}
	return &b.base
}

// forAnswer is what decides over the answer's life.
func (b *rulebook) forAnswer(path string, status int, contentType string) *settings {
	for i := range b.rules {
		if s := &b.rules[i]; s.matchesPath(path) && s.matchesStatus(status) && s.matchesMedia(contentType) {
			return s
		}
	}
	return &b.base
}

// matchesPath compares a pattern: "/a/*" is everything below /a/, "*.json"
// every path that ends so, "*" in the middle any run of characters.
func (s *settings) matchesPath(path string) bool {
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

func (s *settings) matchesStatus(status int) bool {
	if s.statuses == nil {
		return true
	}
	for _, r := range s.statuses {
		if r.from <= status && status <= r.to {
			return true
		}
	}
	return false
}

func (s *settings) matchesMedia(contentType string) bool {
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
