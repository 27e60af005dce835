package cache

import (
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
	// Largest is the size of the largest answer that is kept. Default 64MiB, on disk 1GiB.
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
	// Cookies and Authorization allow keeping answers to requests that carry
	// them: share gives all clients the same answer. Otherwise put them into the key.
	Share bool `yaml:"share"`
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error { panic("not built") }
