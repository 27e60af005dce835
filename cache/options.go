package cache

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/cache/cors"
	"millrace/cache/key"
	"millrace/internal/bytesize"
	"millrace/internal/proxy"
)

// Options of the job. The zero value but an upstream is a good default.
type Options struct {
	// The upstream, and how requests are passed on: see the job proxy.
	proxy.Options `yaml:",inline"`

	// Preset is api (the default), rfc9111 or assets.
	Preset string `yaml:"preset"`
	// TTL is the lifetime of answers that give none themselves. Without it
	// they are joined while they are under way, but not kept.
	TTL time.Duration `yaml:"ttl"`
	// StaleWhileRevalidate and StaleIfError are how long a stale answer may be
	// served while it is refreshed, and when the upstream fails, where the
	// answer says nothing itself. Default by preset.
	StaleWhileRevalidate time.Duration `yaml:"stale_while_revalidate"`
	StaleIfError         time.Duration `yaml:"stale_if_error"`
	// Rules override what is above; the first that matches counts.
	Rules []Rule `yaml:"rules"`
	// Key is what tells two requests apart.
	Key key.Options `yaml:"key"`
	// CORS lets pages of other origins read the answers.
	CORS cors.Options `yaml:"cors"`
	// Languages that the upstream speaks, to keep Vary: Accept-Language small.
	Languages []string `yaml:"languages"`
	// TagHeaders name the response fields with purge tags. Default
	// Surrogate-Key and Cache-Tag. They do not reach clients.
	TagHeaders []string `yaml:"tag_headers"`
	// Target is the name of this cache's own targeted field besides
	// CDN-Cache-Control: Millrace-Cache-Control.
	Target string `yaml:"target"`

	// Memory is how many bytes of answers are kept in memory. Default 256MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Disk is a folder for answers that outlive memory and a restart.
	Disk string `yaml:"disk"`
	// DiskSize is how many bytes of files are kept there. Default 10GiB.
	DiskSize bytesize.Size `yaml:"disk_size"`
	// Shared is the URL of a Redis or Valkey that several machines share.
	Shared string `yaml:"shared"`
	// Largest is the size of the largest answer that is kept. Default 64MiB,
	// with a disk 1GiB. Without a disk none is kept that is larger than a
	// sixteenth of memory.
	Largest bytesize.Size `yaml:"largest"`
	// NoCompress leaves answers as the upstream encoded them.
	NoCompress bool `yaml:"no_compress"`
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

const (
	defaultTarget  = "Millrace-Cache-Control"
	defaultMemory  = 256 << 20
	defaultLargest = 64 << 20
	largestOnDisk  = 1 << 30
	// maxRules bounds what every miss looks at.
	maxRules = 256
)

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := o.Options.Check()
	if faults == nil {
		faults = map[string]error{}
	}
	switch o.Preset {
	case "", presetAPI, presetRFC, presetAssets:
	default:
		faults["preset"] = fmt.Errorf("preset %q is unknown: use api, rfc9111 or assets", o.Preset)
	}
	if o.Target != "" && !token(o.Target) {
		faults["target"] = fmt.Errorf("%q cannot be the name of a header", o.Target)
	}
	for _, name := range o.TagHeaders {
		if !token(name) {
			faults["tag_headers"] = fmt.Errorf("%q cannot be the name of a header", name)
		}
	}
	for _, name := range o.Languages {
		if !token(name) {
			faults["languages"] = fmt.Errorf("%q is no language: write one like en or pt-BR", name)
		}
	}
	if o.Memory != 0 && o.Memory < minMemory {
		faults["memory"] = fmt.Errorf("memory of %s holds nothing: at least %s", o.Memory, bytesize.Size(minMemory))
	}
	if o.DiskSize != 0 && o.Disk == "" {
		faults["disk_size"] = errors.New("disk_size without a folder: name one with disk")
	}
	if len(o.Rules) > maxRules {
		faults["rules"] = fmt.Errorf("%d rules are more than the %d that every request can look at", len(o.Rules), maxRules)
	}
	for i, rule := range o.Rules {
		if err := rule.check(); err != nil {
			faults["rules"] = fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return faults
}

// check says what is wrong with a rule.
func (r Rule) check() error {
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

// token reports whether s can be the name of a field (RFC 9110, 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}
