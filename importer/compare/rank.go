package compare

import (
	"bytes"
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Rank is how much a difference matters, the worst first.
type Rank int

// The ranks.
const (
	Opened    Rank = iota // the other server refuses, and Millrace answers
	Statuses              // another status
	Locations             // a redirect to elsewhere
	Bodies                // other bytes
	Obeyed                // a field that browsers and caches obey
	Fields                // any other field
	Default               // a default of Millrace that the documentation names
	None                  // no difference
)

// String is the rank's heading; %s is the other server.
func (r Rank) String() string {
	return [...]string{"CLOSED IN %s, OPEN HERE", "another status", "another Location", "other bytes", "other fields that browsers and caches obey", "other fields", "defaults of Millrace", "no difference"}[r]
}

// Verdict is in what two answers to one request differ.
type Verdict struct {
	Rank        Rank
	Known       string // the default that a difference comes of
	Differences []Difference
}

// Defaults that the documentation names: folded into one line each.
const (
	NoIndex  = "a folder without an index is refused there; here the front controller has it (docs/php.md)"
	NoScript = "a script that is not there is not found there; here the front controller has its path (docs/php.md)"
	NoRoute  = "what no route answers is 404 here, where Caddy says 200 without a body"
	Slash    = "the path of a folder without its slash leads to the one with it"
	OnErrors = "what headers sets is in the answers of errors, too"
	Private  = "files with hidden names, sources, dumps and keys are not served here (private in docs/config.md)"
	Types    = "types of files go by a table that is built in"
)

// judge ranks what was found.
func (c *Client) judge(ctx context.Context, s Site, target string, theirs, ours Answer, found []Difference) Verdict {
	v := Verdict{Rank: None, Differences: found}
	if len(found) == 0 {
		return v
	}
	if !c.strict {
		if v.Known = c.known(ctx, s, target, theirs, ours, found); v.Known != "" {
			v.Rank = Default
			return v
		}
	}
	for _, d := range found {
		v.Rank = min(v.Rank, rankOf(d, theirs, ours))
	}
	return v
}

// rankOf is the rank of one difference.
func rankOf(d Difference, theirs, ours Answer) Rank {
	switch d.What {
	case "status", "answer":
		if theirs.Status >= 400 && theirs.Status < 500 && ours.Status >= 200 && ours.Status < 300 {
			return Opened
		}
		return Statuses
	case "Location":
		return Locations
	case "bytes":
		return Bodies
	}
	if obeyed(d.What) {
		return Obeyed
	}
	return Fields
}

// obeyed reports whether browsers or caches do other things for a field.
func obeyed(name string) bool {
	return strings.HasPrefix(name, "Access-Control-") || strings.HasPrefix(name, "Cross-Origin-") || slices.Contains([]string{
		"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Security-Policy", "Content-Type", "Expires", "Permissions-Policy", "Referrer-Policy", "Refresh",
		"Set-Cookie", "Strict-Transport-Security", "Vary", "Www-Authenticate", "X-Content-Type-Options", "X-Frame-Options", "X-Robots-Tag",
	}, name)
}

// known is the default of Millrace that all differences of an answer come of, "" if there
// is none.
func (c *Client) known(ctx context.Context, s Site, target string, theirs, ours Answer, found []Difference) string {
	of := func(names ...string) bool {
		return !slices.ContainsFunc(found, func(d Difference) bool { return !slices.Contains(names, d.What) })
	}
	name, _, _ := strings.Cut(target, "?")
	switch {
	case of("Content-Type") && theirs.Status == http.StatusOK && (generic(theirs) || generic(ours) || strings.Contains(theirs.Header.Get("Content-Type"), "/x-")) && path.Ext(name) != ".html":
		return Types
	case theirs.Status >= 400 && theirs.Status == ours.Status && !slices.ContainsFunc(found, func(d Difference) bool { return d.Theirs != "" || d.What == "bytes" }):
		return OnErrors
	case ours.Status == http.StatusMovedPermanently && theirs.Status < 400 && location(s, target, ours.Header.Get("Location")) == s.URL(name+"/") && !strings.Contains(target, "?"):
		return Slash
	case withoutIndex(s, target, theirs) && ownPage(theirs) && c.missing(ctx, s, target, ours):
		return NoIndex
	case theirs.Status == http.StatusNotFound && path.Ext(name) == ".php" && c.missing(ctx, s, target, ours):
		return NoScript
	case theirs.Status == http.StatusOK && len(theirs.Body) == 0 && theirs.Header.Get("Content-Type") == "" && ours.Status == http.StatusNotFound && theirs.Header.Get("Server") == "Caddy":
		return NoRoute
	case private(name, theirs) && c.missing(ctx, s, target, ours):
		return Private
	}
	return ""
}

// generic reports whether an answer's media type says nothing of a file.
func generic(a Answer) bool {
	media, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	return slices.Contains([]string{"", "text/plain", "application/octet-stream"}, media)
}

// private reports whether a file is one that Millrace does not serve by default: also a
// script whose source the other server sends.
func private(name string, theirs Answer) bool {
	if bytes.HasPrefix(theirs.Body, []byte("<?php")) {
		return true
	}
	for segment := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if strings.HasPrefix(segment, ".") && segment != ".well-known" || segment == "web.config" ||
			slices.Contains([]string{".inc", ".sql", ".sqlite", ".sqlite3", ".dump", ".rdb", ".key", ".pem", ".env", ".phps", ".phar", ".bak", ".old", ".orig", ".swp"}, strings.ToLower(path.Ext(segment))) {
			return true
		}
	}
	return false
}

// missing reports whether Millrace answers as for a path beside it that nothing is at.
func (c *Client) missing(ctx context.Context, s Site, target string, ours Answer) bool {
	folder, _, _ := strings.Cut(target, "?")
	a, err := ask(ctx, c.ours, s, s.Ours, path.Join(path.Dir(strings.TrimSuffix(folder, "/")), "millrace-no-such-path"))
	return err == nil && a.Status == ours.Status && a.Header.Get("Content-Type") == ours.Header.Get("Content-Type")
}
