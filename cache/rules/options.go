package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/cache/key"
)

// DefaultTarget is the cache's own targeted field when Options name none.
const DefaultTarget = "Millrace-Cache-Control"

// Max bounds the rules, which every miss looks at.
const Max = 256

// Options are what rules are made of, as the options of the cache have them.
type Options struct {
	Preset               string
	TTL                  time.Duration
	StaleWhileRevalidate time.Duration
	StaleIfError         time.Duration
	Rules                []Rule
	Key                  key.Options
	Target               string
	Device               string // what this cache is called in Surrogate-Control
}

// Rule is for some requests or answers. All of its conditions must hold.
type Rule struct {
	// Path is a pattern: /feed, /api/* (everything below), *.json.
	Path string `yaml:"path"`
	// Status is a list of statuses or classes: 404, 5xx.
	Status []string `yaml:"status"`
	// ContentType is a media type: text/html, image/*.
	ContentType string `yaml:"content_type"`

	// TTL is the lifetime, whatever the answer says itself; 0s keeps nothing.
	TTL *time.Duration `yaml:"ttl"`
	// StaleWhileRevalidate and StaleIfError replace the job's.
	StaleWhileRevalidate *time.Duration `yaml:"stale_while_revalidate"`
	StaleIfError         *time.Duration `yaml:"stale_if_error"`
	// Key replaces the job's.
	Key *key.Options `yaml:"key"`
	// Bypass asks the upstream every time.
	Bypass bool `yaml:"bypass"`
	// Share gives all clients the same answer, whoever they are: their
	// cookies and Authorization do not reach the upstream. For answers that
	// do differ, put what tells them apart into the key instead.
	Share bool `yaml:"share"`
}

// Check says what is wrong with a rule.
func (r Rule) Check() error {
	for _, text := range r.Status {
		if _, err := parseStatus(text); err != nil {
			return err
		}
	}
	if late := len(r.Status) > 0 || r.ContentType != ""; late && (r.Bypass || r.Share || r.Key != nil) {
		return errors.New("bypass, share and key are needed before there is an answer: they cannot depend on status or content_type")
	}
	if r.ContentType != "" && strings.Count(r.ContentType, "/") != 1 {
		return fmt.Errorf("content_type %q is none: write one like text/html or image/*", r.ContentType)
	}
	if r.Path != "" && r.Path[0] != '/' && r.Path[0] != '*' {
		return fmt.Errorf("path %q matches nothing: begin it with / or *", r.Path)
	}
	if r.Key != nil {
		for key, err := range r.Key.Check() {
			return fmt.Errorf("key.%s: %w", key, err)
		}
	}
	return nil
}
