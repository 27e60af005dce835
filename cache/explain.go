package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
	"millrace/cache/tier"
	"millrace/internal/access/signin"
	"millrace/internal/observe/redact"
	"millrace/internal/wire/message"
	"millrace/proxy"
)

// Explanation is what the cache knows of one request and would do with it.
// Tokens in URL and Key are masked.
type Explanation struct {
	URL                  string        `json:"url"`
	Key                  string        `json:"key"`
	Outcome              string        `json:"outcome"` // hit, stale, miss, bypass, pass (hit for miss)
	Reason               string        `json:"reason"`  // in words: which rule, which header decided
	Rule                 string        `json:"rule,omitempty"`
	Tier                 string        `json:"tier,omitempty"` // memory, disk, shared
	Status               int           `json:"status,omitempty"`
	Size                 int64         `json:"size,omitempty"`
	Age                  time.Duration `json:"age_ns,omitempty"`
	TTL                  time.Duration `json:"ttl_ns,omitempty"`
	Source               string        `json:"source,omitempty"` // of the lifetime: max-age, Expires, heuristic, ttl, rule …
	StaleWhileRevalidate time.Duration `json:"stale_while_revalidate_ns,omitempty"`
	StaleIfError         time.Duration `json:"stale_if_error_ns,omitempty"`
	Vary                 []string      `json:"vary,omitempty"`
	Variants             int           `json:"variants,omitempty"`
	Tags                 []string      `json:"tags,omitempty"`
	Hint                 string        `json:"hint,omitempty"` // what to do about it: --ttl 5m
}

// Explain says what would happen to r now, without doing it.
func (h *Handler) Explain(r *http.Request) Explanation {
	head := new(message.Request)
	proxy.Head(head, r)
	x := h.newExchange(head, signin.ProofOf(r.Context()))
	e := Explanation{URL: redact.Target(x.url()), Rule: x.set.Name}
	if x.bypass != "" {
		e.Outcome = "bypass"
		e.Reason, e.Hint = explainBypass(r, x.bypass)
		return e
	}
	x.judge()
	e.Key, e.Tier = redact.Text(x.key), "memory"
	s := h.tiers.Look(x.key)
	o := s.Find(x.head.Fields, h.languages)
	if o == nil {
		o, e.Tier = h.tiers.LookOnDisk(r.Context(), x.head.Fields, x.key), tier.Disk
	}
	if s != nil {
		e.Variants = len(s.Objects)
	}
	if o == nil {
		h.explainMiss(&x, &e, s != nil)
		return e
	}
	e.describe(o, x.began)
	if o.Disk != "" {
		e.Tier = "disk"
	}
	e.decide(o, &x, o.State(h.purges.Index()))
	return e
}

// Caveat says why a cache with these options would not keep the answer to a request, or
// on which condition, and what to do about that; "" for none. The options have been
// checked.
func (o Options) Caveat(r *http.Request) (reason, hint string) {
	all, err := o.rules()
	if err != nil {
		return "", ""
	}
	var head message.Request
	head.Of(r)
	set, proof := all.ForRequest(head.Decoded()), signin.ProofOf(r.Context())
	if why := bypass(all, set, &head, proof); why != "" {
		reason, hint = explainBypass(r, why)
		return "the request bypasses the cache: " + reason, hint
	}
	if asked := signin.Presumed(r.Context()); asked != "" && set.Personal(head.Fields, proof) {
		return "auth asks everybody for " + asked + ", so an answer is kept only if it says public, s-maxage or must-revalidate (RFC 9111, 3.5)", authHint
	}
	return "", ""
}

// explainBypass is a reason of bypass in words, and what to do about it.
func explainBypass(r *http.Request, why string) (reason, hint string) {
	asked := signin.Presumed(r.Context())
	if asked != "" && (why == "authorization" || why == "cookie" && signin.ProofOf(r.Context()).Cookie != "") {
		return "auth asks everybody for " + asked + ", so each request counts as one user's, and none is answered from the cache", authHint
	}
	return bypassReasons[why], bypassHints[why]
}

// authHint is what to do about a gate in front of a cache.
const authHint = "a rule with share: true gives all who are let in the same answer, one with key: {headers: [Authorization]} or key: {cookies: [NAME]} keeps one for each user; auth: {off: true} on a route is for everybody"

// decide says what would be done with a stored answer, and why.
func (e *Explanation) decide(o *object.Object, x *exchange, state purge.State) {
	if state == purge.Gone {
		e.Outcome, e.Reason = "miss", "it is stored, but has been purged"
		return
	}
	switch o.Use(x.demand, x.began, state) {
	case rfc9111.Serve:
		e.Outcome, e.Reason = "hit", fmt.Sprintf("fresh for another %v by %s", e.TTL.Round(time.Second), sources(o.Facts.Source))
		if e.TTL <= 0 {
			e.Outcome, e.Reason = "stale", "the request accepts a stale answer"
		}
	case rfc9111.Refresh:
		e.Outcome, e.Reason = "stale", "stale, and served while it is refreshed in the background"
	default:
		e.Outcome, e.Reason = "miss", "stored, but the upstream has to confirm it first"
		switch {
		case state == purge.Stale:
			e.Reason = "it has been purged (softly): the upstream has to confirm it first"
		case state == purge.Unsure:
			e.Reason = "stored, but purges may have been missed since: the upstream has to confirm it first"
		case o.Facts.NoCache:
			e.Reason = "stored, but its no-cache has every use confirmed by the upstream"
		}
	}
}

// describe fills in what an object says of itself.
func (e *Explanation) describe(o *object.Object, now time.Time) {
	e.Status, e.Size, e.Source = o.Status, o.Size, o.Facts.Source
	e.Age, e.TTL = o.Facts.CurrentAge(now), o.Facts.TTL(now)
	e.StaleWhileRevalidate, e.StaleIfError = o.Facts.StaleWhileRevalidate, o.Facts.StaleIfError
	e.Vary = o.Vary
	e.Tags = slices.DeleteFunc(slices.Clone(o.Owner.Tags), func(tag string) bool { return strings.Contains(tag, " ") }) // see rules.KeyTag
	if o.Rule != "" {
		e.Rule = o.Rule
	}
}

// sources says in words where a lifetime comes from.
func sources(source string) string {
	switch source {
	case "ttl":
		return "the option ttl, since the answer says nothing"
	case "rule":
		return "a rule of the config"
	case "heuristic":
		return "a tenth of its age, since the answer says nothing"
	}
	return "the answer's " + source
}

func (h *Handler) explainMiss(x *exchange, e *Explanation, others bool) {
	e.Tier = ""
	reason := h.recent.reasonFor(e.URL)
	switch {
	case h.fetches.Passes(x.request()):
		e.Outcome = "pass"
		e.Reason = "the last answer was not to be shared, so each request asks the upstream, for some seconds more"
		if reason != "" {
			e.Reason += " (" + reason + ")"
		}
		e.Hint = passHints[reason]
	case others:
		e.Outcome, e.Reason = "miss", "other variants are stored, but none for these request headers"
	case reason == rfc9111.NoLifetime:
		e.Outcome, e.Reason = "miss", "the last answer said nothing about its lifetime, so it was not kept"
		e.Hint = passHints[rfc9111.NoLifetime]
	default:
		e.Outcome, e.Reason = "miss", "nothing is stored under this key"
	}
}

// bypassReasons are the reasons of exchange.bypass in words.
var bypassReasons = map[string]string{
	"method":        "only answers to GET and HEAD are kept",
	"upgrade":       "the request changes the protocol",
	"body":          "the request has a body, which no key knows",
	"connection":    "its Connection names fields of the request, which then do not reach the upstream",
	"precondition":  "If-Match and If-Unmodified-Since are for the upstream to judge",
	"path":          "the path can be read in several ways (double or encoded slashes, dots), for which different rules hold",
	"rule":          "a rule of the config says bypass",
	"cookie":        "the request carries cookies, and the preset api keeps no answers that may be one user's",
	"authorization": "the request carries Authorization, and the preset keeps no answers that may be one user's",
}

// bypassHints say what to do about it.
var bypassHints = map[string]string{
	"cookie":        "a rule with share: true gives everyone the same answer, one with key: {cookies: [NAME]} keeps one for each value",
	"authorization": "a rule with share: true gives everyone the same answer, one with key: {headers: [Authorization]} keeps one for each user",
}

// passHints say what to do about answers that are not kept.
var passHints = map[string]string{
	rfc9111.NoLifetime: "--ttl 5m keeps such answers for five minutes",
	"set-cookie":       "the answer sets a cookie: have the upstream set none there (the preset rfc9111 keeps such answers, for everyone, if they name a lifetime themselves)",
	"private":          "the answer says Cache-Control: private",
	"authorization":    "one answer is kept for all if it says public, s-maxage or must-revalidate, or by a rule with share: true; a rule with key: {headers: [Authorization]} or key: {cookies: [NAME]} keeps one for each user",
}
