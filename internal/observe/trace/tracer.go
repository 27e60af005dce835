package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"millrace/internal/observe/redact"
)

// Options of traces.
type Options struct {
	// OTLP is where spans are sent: the address of a collector that takes
	// OpenTelemetry's protocol over HTTP, in protobuf, like
	// http://127.0.0.1:4318. Without a path, /v1/traces is meant.
	// Empty: traces are continued and passed on, and nothing is sent.
	OTLP string `yaml:"otlp"`
	// Sample is the share of the traces that begin here of which spans are sent,
	// from 0 to 1. Who has begun a trace that is continued has decided for it.
	// Default 0.01.
	Sample *float64 `yaml:"sample"`
	// From says whose traceparent is continued: proxies, those that are trusted
	// (limits.trusted_proxies); always, everybody's, who can then have
	// everything sampled; or never. Others begin a new trace. Default proxies.
	From string `yaml:"from"`
	// Service is the name of this server in traces. Default millrace.
	Service string `yaml:"service"`
	// Headers are further fields for the collector, such as Authorization.
	Headers map[string]string `yaml:"headers"`
	// Queue is how many requests may wait to be sent. More are dropped, and
	// counted. Default 2048.
	Queue int `yaml:"queue"`
	// Timeout is how long the collector may take. Default 10s.
	Timeout time.Duration `yaml:"timeout"`
}

// IDOptions say which id a request has. "on" stands for the defaults, the name
// of a field for that one.
type IDOptions struct {
	// Header is the field that has the id, in answers and for other servers.
	// Default X-Request-ID.
	Header string `yaml:"header"`
	// From says whose ids are taken over: proxies, those that are trusted
	// (limits.trusted_proxies); always, everybody's; or never. Default proxies.
	From string `yaml:"from"`
	// Off is for "off".
	Off bool `yaml:"off"`
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *IDOptions) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "on", "true":
	case "off", "false":
		o.Off = true
	default:
		o.Header = s
	}
	return nil
}

// Whose word is taken.
const (
	fromProxies = "proxies"
	fromAll     = "always"
	fromNobody  = "never"
)

const (
	defaultSample = 0.01
	defaultHeader = "X-Request-ID"
	maxQueue      = 1 << 16
)

func checkFrom(from string) error {
	switch from {
	case "", fromProxies, fromAll, fromNobody:
		return nil
	}
	return fmt.Errorf("%q: write proxies, always or never", from)
}

// Endpoint is the URL that spans are posted to.
func (o Options) Endpoint() (string, error) {
	u, err := url.Parse(o.OTLP)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", fmt.Errorf("%q is not the address of a collector: write one like http://127.0.0.1:4318", redact.Text(o.OTLP))
	case u.User != nil:
		return "", errors.New("the address has a password in it: put it into headers, as in {Authorization: \"Basic ...\"}")
	case u.Port() == "4317":
		return "", errors.New("port 4317 is that of OTLP over gRPC: write the one for HTTP, which is 4318")
	case u.Path == "" || u.Path == "/":
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.OTLP != "" {
		if _, err := o.Endpoint(); err != nil {
			faults["otlp"] = err
		}
	}
	if o.Sample != nil && (math.IsNaN(*o.Sample) || *o.Sample < 0 || *o.Sample > 1) {
		faults["sample"] = fmt.Errorf("%v is no share: write a number from 0 to 1, like 0.01 for one of a hundred", *o.Sample)
	}
	if err := checkFrom(o.From); err != nil {
		faults["from"] = err
	}
	if o.Queue < 0 || o.Queue > maxQueue {
		faults["queue"] = fmt.Errorf("%d: from 1 to %d", o.Queue, maxQueue)
	}
	if o.Timeout < 0 {
		faults["timeout"] = errors.New("it must be longer than nothing, like 10s")
	}
	for name, value := range o.Headers {
		if !fieldName(name) || strings.ContainsAny(value, "\r\n\x00") {
			faults["headers"] = fmt.Errorf("%q is not a header field", name)
		}
	}
	return faults
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o IDOptions) Check() map[string]error {
	faults := map[string]error{}
	if err := checkFrom(o.From); err != nil {
		faults["from"] = err
	}
	if o.Header == "" {
		return faults
	}
	switch name := textproto.CanonicalMIMEHeaderKey(o.Header); {
	case !fieldName(o.Header):
		faults["header"] = fmt.Errorf("%q is not the name of a header field: write one like X-Request-ID, or on", o.Header)
	case !strings.HasPrefix(name, "X-") && !strings.HasSuffix(strings.ToLower(name), "-id"):
		faults["header"] = fmt.Errorf("%s has another meaning: write a name like X-Request-ID, that begins with X- or ends in -ID", o.Header)
	case name == "X-Forwarded-For" || name == "X-Real-Ip" || name == "X-Forwarded-Host" || name == "X-Forwarded-Proto":
		faults["header"] = fmt.Errorf("%s has another meaning: write a name like X-Request-ID", o.Header)
	}
	return faults
}

// fieldName reports whether s is a token (RFC 9110, 5.6.2).
func fieldName(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != ""
}

// Tracer follows requests. A nil one follows none.
type Tracer struct {
	propagates bool
	exports    bool
	below      uint64 // of the last seven bytes of a trace's id: it is sampled
	from       string // whose traceparent is continued

	header string // of ids, canonical; empty: requests have none
	idFrom string
}

// New returns a Tracer. tracing and ids may be nil: then nothing is continued, and
// requests have no ids. steps says that somebody else wants to know what requests
// are spent with. It is nil where there is nothing to do.
func New(tracing *Options, ids *IDOptions, steps bool) *Tracer {
	t := &Tracer{}
	if tracing != nil {
		t.propagates, t.exports, t.from = true, tracing.OTLP != "", tracing.From
		sample := defaultSample
		if tracing.Sample != nil {
			sample = *tracing.Sample
		}
		t.below = uint64(sample * (1 << 56))
	}
	if ids != nil && !ids.Off {
		t.header, t.idFrom = defaultHeader, ids.From
		if ids.Header != "" {
			t.header = ids.Header
		}
		t.header = textproto.CanonicalMIMEHeaderKey(t.header)
	}
	if !t.propagates && t.header == "" && !steps {
		return nil
	}
	return t
}

// Header is the field of ids, in its canonical form; empty: requests have none.
func (t *Tracer) Header() string {
	if t == nil {
		return ""
	}
	return t.header
}

// Marks reports whether requests, or those to other servers, get anything by being
// followed: an id or a place in a trace.
func (t *Tracer) Marks() bool { return t != nil && (t.propagates || t.header != "") }

// Trusts reports whether the id of a client is taken over, who is a trusted proxy
// or not.
func (t *Tracer) Trusts(proxy bool) bool { return t != nil && takes(t.idFrom, proxy) }

func takes(from string, proxy bool) bool {
	return from == fromAll || proxy && from != fromNobody
}

// samples decides for a trace that begins here, by its id: all servers that
// sample the same share choose the same traces (W3C Trace Context 2, 2.2.2.2).
func (t *Tracer) samples(id ID) bool {
	return t.exports && binary.BigEndian.Uint64(id[8:])&(1<<56-1) < t.below
}

// maxID is how long an id may be that is taken over.
const maxID = 128

// UsableID reports whether an id may be taken over: printable ASCII without
// spaces, quotes, backslashes and commas, at most 128 bytes.
func UsableID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' || c == ',' {
			return false
		}
	}
	return true
}
