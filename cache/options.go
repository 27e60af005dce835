package cache

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/cache/key"
	"millrace/cache/rules"
	"millrace/cache/tier"
	"millrace/internal/bytesize"
	"millrace/internal/route/headers"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/field"
	"millrace/proxy"
	"millrace/store"
)

// Rule is for some requests or answers.
type Rule = rules.Rule

// To are the options of a cache for these upstreams, as http://host:port.
func To(upstreams ...string) Options {
	var o Options
	o.To = upstreams
	return o
}

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
	// answer says nothing itself. must-revalidate, proxy-revalidate, no-cache and
	// s-maxage in it forbid both; beside s-maxage it may name them. Default by preset,
	// where rfc9111 serves it without limit while the upstream cannot be reached at
	// all (RFC 9111, 4.2.4). An answer that breaks off
	// within its first 32 KiB, and within a second, is a failure, too; what
	// breaks off later is cut off for those who read it.
	StaleWhileRevalidate time.Duration `yaml:"stale_while_revalidate"`
	StaleIfError         time.Duration `yaml:"stale_if_error"`
	// Rules override what is above; the first that matches counts.
	Rules []rules.Rule `yaml:"rules"`
	// Key is what tells two requests apart.
	Key key.Options `yaml:"key"`
	// CORS lets pages of other origins read the answers.
	CORS headers.CORSOptions `yaml:"cors"`
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
	// Shared is a Redis or Valkey that several machines share.
	Shared store.Shared `yaml:"shared"`
	// Coalesce says whose requests for the same answer wait for one fetch: "machine",
	// those of this machine, or "shared", those of all machines that share a store. Then
	// a machine waits for another's fetch and takes the answer from there, for at most
	// twice the time that answers take; if the other dies, it asks after two seconds.
	// Default machine.
	Coalesce string `yaml:"coalesce"`
	// Largest is the size of the largest answer that is kept. Default 64MiB,
	// with a disk 1GiB. Without a disk none is kept that is larger than a
	// sixteenth of memory.
	Largest bytesize.Size `yaml:"largest"`
	// Dictionaries are paths of answers that are much like each other, in which a
	// star is any text, as in [/api/items*]. Browsers that have one of them get of the
	// next only what is different (RFC 9842). Such answers must be the same for
	// everybody; the upstream is asked for them uncompressed.
	Dictionaries dictionary.Rules `yaml:"dictionaries"`
	// NoCompress leaves answers as the upstream encoded them.
	NoCompress bool `yaml:"no_compress"`
}

// What Coalesce may be.
const (
	CoalesceMachine = "machine"
	CoalesceShared  = "shared"
)

const (
	// DefaultMemory is the memory of a cache, in bytes, when Options name none.
	DefaultMemory bytesize.Size = 256 << 20
	// DefaultLargest is the size of the largest answer that is kept then.
	DefaultLargest bytesize.Size = 64 << 20
	// DefaultLargestOnDisk is that of a cache with a disk.
	DefaultLargestOnDisk bytesize.Size = 1 << 30
)

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := o.Options.Check()
	if faults == nil {
		faults = map[string]error{}
	}
	switch o.Preset {
	case "", rules.PresetAPI, rules.PresetRFC, rules.PresetAssets:
	default:
		faults["preset"] = fmt.Errorf("preset %q is unknown: use api, rfc9111 or assets", o.Preset)
	}
	if o.Target != "" && !field.Token(o.Target) {
		faults["target"] = fmt.Errorf("%q cannot be the name of a header", o.Target)
	}
	for _, name := range o.TagHeaders {
		if !field.Token(name) {
			faults["tag_headers"] = fmt.Errorf("%q cannot be the name of a header", name)
		}
	}
	for _, name := range o.Languages {
		if !field.Token(name) {
			faults["languages"] = fmt.Errorf("%q is not a language: write one like en or pt-BR", name)
		}
	}
	if o.Memory != 0 && o.Memory < tier.MinMemory {
		faults["memory"] = fmt.Errorf("memory of %s holds nothing: at least %s", o.Memory, bytesize.Size(tier.MinMemory))
	}
	switch {
	case o.Coalesce != "" && o.Coalesce != CoalesceMachine && o.Coalesce != CoalesceShared:
		faults["coalesce"] = fmt.Errorf("%q is unknown: use machine or shared", o.Coalesce)
	case o.Coalesce == CoalesceShared && o.Shared.URL == "":
		faults["coalesce"] = errors.New("coalesce: shared does nothing without a store that machines share: name one with shared")
	}
	if o.DiskSize != 0 && o.Disk == "" {
		faults["disk_size"] = errors.New("disk_size without a folder: name one with disk")
	}
	if err := o.Dictionaries.Check(); err != nil {
		faults["dictionaries"] = err
	} else if len(o.Dictionaries) > 0 && o.NoCompress {
		faults["dictionaries"] = errors.New("dictionaries are for compressing, which no_compress forbids: leave one of them out")
	}
	if len(o.Rules) > rules.Max {
		faults["rules"] = fmt.Errorf("%d rules are more than the %d that every request can look at", len(o.Rules), rules.Max)
	}
	if o.Host == "client" && ignoresHost(o) {
		faults["host"] = errors.New("host: client and key.ignore_host contradict each other, as one client's host would be sent for all of them: leave host out, or name the one to send")
	}
	for key, err := range o.Shared.Check() {
		faults["shared."+key] = err
	}
	for i, rule := range o.Rules {
		if err := rule.Check(); err != nil {
			faults["rules"] = fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return faults
}

// ignoresHost reports whether some requests' hosts are not in their key.
func ignoresHost(o Options) bool {
	return o.Key.IgnoreHost || slices.ContainsFunc(o.Rules, func(r rules.Rule) bool { return r.Key != nil && r.Key.IgnoreHost })
}

// largest is the size of the largest answer that is kept.
func (o Options) largest(onDisk bool) int64 {
	switch {
	case o.Largest > 0:
		return int64(o.Largest)
	case onDisk:
		return int64(DefaultLargestOnDisk)
	}
	return int64(DefaultLargest)
}
