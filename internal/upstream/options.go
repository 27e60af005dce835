package upstream

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"millrace/internal/bytesize"
)

// Options of an upstream. The zero value but To is a good default; negative
// numbers count as 0.
type Options struct {
	// To are the addresses: http://host:port, https://host (HTTP/2 if the server
	// offers it), h2c://host:port for HTTP/2 without TLS, unix:/path for
	// HTTP/1.1 over a socket; ws:// and wss:// are other spellings of http:// and
	// https://. A path is put before the request's: nothing beside it
	// is asked for. At most 64. Required.
	To []string `yaml:"to"`
	// Balance is how one of several servers is chosen: two_choices takes the
	// better of two random ones by latency and running requests, least_connections
	// the one with the fewest running, round_robin the next, and hash the same for
	// the same HashBy as long as it has no more than 1.25 times its share of the
	// load. Where WebSockets are passed on, two_choices and least_connections go by
	// the open ones as well. Default two_choices.
	Balance string `yaml:"balance"`
	// HashBy is what hash goes by: url (path and query, in a cache the key of
	// the answer), path, client (its address), header:NAME or cookie:NAME;
	// requests without that header or cookie, and clients of a UNIX socket, go by url.
	// Default url.
	HashBy string `yaml:"hash_by"`
	// Weights are how much each address gets beside the others, in their order: with
	// [3, 1] the first has three times the requests. Default the same for all.
	Weights []int `yaml:"weights"`
	// SlowStart is the time in which a server that has come back, after failed
	// probes, an ejection or an open breaker, gets from a tenth of its requests to
	// all of them. Default none.
	SlowStart time.Duration `yaml:"slow_start"`
	// Sticky keeps a visitor with one server by a cookie: "sticky: NAME". When that
	// server fails, another one takes over, and the cookie changes.
	Sticky Sticky `yaml:"sticky"`
	// Host is the Host header: "client" passes the client's on (in lower case, without
	// the scheme's own port), "upstream" is the address's, anything else is sent as it
	// is. Default upstream.
	Host string `yaml:"host"`

	// Concurrency is the most requests at once to each address. Event streams and
	// upgraded connections count until their header only, long answers to slow clients
	// until their buffer in memory is full. Default 1024.
	Concurrency int `yaml:"concurrency"`
	// Queue is how many more requests may wait for a free place, over all addresses.
	// Each client's address (of IPv6, its network of 64 bits) has its turn; those of
	// one client are served as they come. When it is full, the requests that are
	// furthest from their turn get 503. Default 1024.
	Queue int `yaml:"queue"`
	// QueueTimeout is how long one may wait there before it gets 503. Default 5s.
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// Streams is the most upgraded connections (WebSockets), event streams
	// (text/event-stream) and long answers to slow clients at once to each address; of
	// the first two, more get 503. Default 16384.
	Streams int `yaml:"streams"`

	// ProxyProtocol has every connection begin with a header of the PROXY protocol,
	// v1 or v2, that names the client: what HAProxy calls send-proxy. Such a
	// connection serves one request, over HTTP/1.1, and is not kept. Default none.
	ProxyProtocol string `yaml:"proxy_protocol"`

	// ConnectTimeout is for connecting, and once more for the TLS handshake. Default 3s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// HeaderTimeout is from the request's end to the end of the response's
	// header, and so how long a long poll may wait. Default 60s.
	HeaderTimeout time.Duration `yaml:"header_timeout"`
	// BodyTimeout is how long a body may make no progress, in either direction, as
	// far as it is the upstream that is waited for. It does not apply to event
	// streams and upgraded connections. Default 60s.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// HeaderBytes is the most that a response's header may hold. Default 256KiB.
	HeaderBytes bytesize.Size `yaml:"header_bytes"`
	// IdleConnections is how many connections to each address are kept open for
	// the next requests. Default as many as Concurrency.
	IdleConnections int `yaml:"idle_connections"`
	// IdleTimeout is how long they are kept. It must be shorter than the
	// upstream's own, or requests meet connections that are just being closed; many
	// servers close after 5s. Default 4s.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	// Health says which servers are asked at all.
	Health Health `yaml:"health"`
	// Retries says how often a failed request is repeated.
	Retries Retries `yaml:"retries"`
	// Breaker keeps requests from a server that fails most of them.
	Breaker Breaker `yaml:"breaker"`
	// TLS is for https:// addresses.
	TLS TLS `yaml:"tls"`
}

// Health says which servers are asked at all.
type Health struct {
	// Path is what probes get, for example /healthz. It replaces the path of
	// the address. Without it there are no probes.
	Path string `yaml:"path"`
	// Interval is the time between two probes of a server. Default 5s.
	Interval time.Duration `yaml:"interval"`
	// Timeout is how long a probe may take to the end of its answer. Default 2s.
	Timeout time.Duration `yaml:"timeout"`
	// HealthyAfter is how many good probes in a row bring a server back. Default 2.
	HealthyAfter int `yaml:"healthy_after"`
	// UnhealthyAfter is how many bad probes in a row take a server out. When all
	// are out, clients get 503. Default 3.
	UnhealthyAfter int `yaml:"unhealthy_after"`
	// Status lists the statuses of good answers to probes: 204, 2xx. Default 2xx.
	Status []string `yaml:"status"`
	// Body is a regular expression (RE2) that must match somewhere in the first
	// 64 KiB of a good answer's body. Default any body.
	Body string `yaml:"body"`
	// Failures is how many requests in a row must fail to connect, time out or
	// break off until a server is ejected: the others get its requests. The only
	// server is never ejected; if all are, none is. Default 3.
	Failures int `yaml:"failures"`
	// Eject is how long a server stays ejected the first time; it doubles with
	// each time in a row, up to 32 times as long. Default 5s.
	Eject time.Duration `yaml:"eject"`
}

// Retries says how often a failed request is repeated, on another server if
// there is one: only before a byte of the answer has come, and either before a
// byte of the request was sent, or if the method is idempotent (GET, HEAD,
// OPTIONS, TRACE, PUT, DELETE).
type Retries struct {
	// Attempts is how often a request is tried in all; 1 never repeats. Default 3.
	Attempts int `yaml:"attempts"`
	// Status lists statuses that are retried as well, for idempotent methods
	// without a body: 502, 5xx. When attempts or budget are used up, the last
	// answer counts. Default none.
	Status []string `yaml:"status"`
	// Budget is how many requests may be repeats, in percent of those of the
	// last 10 seconds; 10 always may. Repeats of what was sent already get half of
	// that, so that one page that always fails leaves the others theirs. Default 20.
	Budget int `yaml:"budget"`
}

// Breaker keeps requests from a server that fails most of them, so that
// clients get 503 (or a cache's stale answer) at once, and the server time to
// recover. A failure is a broken or refused connection, a timeout, or an answer
// that breaks the protocol; no status is one. A request that fails after it was sent
// may be the cause itself, and counts once, however often it is repeated. Failures of
// that kind never close an upstream: they do not open the breaker of its only server, and
// where they have opened those of all, all are asked.
type Breaker struct {
	// Off switches it off.
	Off bool `yaml:"off"`
	// Window is the time over which failures are counted. Default 10s.
	Window time.Duration `yaml:"window"`
	// Requests is how many requests the window must hold to judge. Default 20.
	Requests int `yaml:"requests"`
	// Failures is the percentage of them that must have failed. Default 50.
	Failures int `yaml:"failures"`
	// Open is how long no request passes; then a single one does, and decides.
	// It doubles each time that one fails, up to 8 times as long. Default 5s.
	Open time.Duration `yaml:"open"`
}

// TLS is for https:// addresses. Versions before TLS 1.2 are not spoken.
type TLS struct {
	// CA is a PEM file with the authorities that may sign the server's
	// certificate. Default those of the system.
	CA string `yaml:"ca"`
	// ServerName is the name that the certificate must have. Default the
	// address's host.
	ServerName string `yaml:"server_name"`
	// Insecure accepts any certificate, and so any server.
	Insecure bool `yaml:"insecure"`
	// Cert and Key are PEM files with a certificate to show to the server, and
	// its key.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

const (
	// maxServers is how many bits a set has; more servers want a balancer of their own.
	maxServers = 64
	// longest is the longest duration that makes sense: who waits a day has gone.
	longest = 24 * time.Hour
)

// UnmarshalText lets one address stand for the options.
func (o *Options) UnmarshalText(text []byte) error {
	if _, err := parseAddress(string(text)); err != nil {
		return err
	}
	*o = Options{To: []string{string(text)}}
	return nil
}

// complete replaces zero values with the defaults.
func (o Options) complete() Options {
	text(&o.Balance, "two_choices")
	text(&o.HashBy, "url")
	text(&o.Host, "upstream")
	number(&o.Concurrency, 1024)
	number(&o.Queue, 1024)
	number(&o.QueueTimeout, 5*time.Second)
	number(&o.Streams, 16384)
	number(&o.ConnectTimeout, 3*time.Second)
	number(&o.HeaderTimeout, 60*time.Second)
	number(&o.BodyTimeout, 60*time.Second)
	number(&o.HeaderBytes, 256<<10)
	number(&o.IdleConnections, o.Concurrency)
	number(&o.IdleTimeout, 4*time.Second)
	number(&o.Health.Interval, 5*time.Second)
	number(&o.Health.Timeout, 2*time.Second)
	number(&o.Health.HealthyAfter, 2)
	number(&o.Health.UnhealthyAfter, 3)
	if len(o.Health.Status) == 0 {
		o.Health.Status = []string{"2xx"}
	}
	number(&o.Health.Failures, 3)
	number(&o.Health.Eject, 5*time.Second)
	number(&o.Retries.Attempts, 3)
	number(&o.Retries.Budget, 20)
	number(&o.Breaker.Window, 10*time.Second)
	number(&o.Breaker.Requests, 20)
	number(&o.Breaker.Failures, 50)
	number(&o.Breaker.Open, 5*time.Second)
	return o
}

func text(v *string, otherwise string) { *v = cmp.Or(*v, otherwise) }

func number[N int | time.Duration | bytesize.Size](v *N, otherwise N) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	o.checkAddresses(faults)
	if _, ok := balancers[o.Balance]; o.Balance != "" && !ok {
		faults["balance"] = fmt.Errorf("there is no balance %q: use %s", o.Balance, strings.Join(sortedKeys(balancers), ", "))
	}
	if err := checkHashBy(o.HashBy); err != nil {
		faults["hash_by"] = err
	} else if o.HashBy != "" && o.Balance != "hash" {
		faults["hash_by"] = errors.New(`"hash_by" does nothing without balance: hash`)
	}
	if u, err := url.Parse("http://" + o.Host); err != nil || u.Host != o.Host {
		faults["host"] = fmt.Errorf("%q is not a host: write client, upstream, or a name like api.example.com", o.Host)
	}
	if b := o.HeaderBytes; b > 0 && (b < 1<<10 || b > 16<<20) {
		faults["header_bytes"] = fmt.Errorf("%s for a header is out of range: at least 1KiB, at most 16MiB", b)
	}
	o.checkIntroduction(faults)
	o.checkHealth(faults)
	o.checkWeights(faults)
	o.checkSticky(faults)
	for i, s := range o.Retries.Status {
		if !isStatus(s) || s[0] < '4' {
			faults[fmt.Sprintf("retries.status[%d]", i)] = fmt.Errorf("%q is not the status of a failure: write 503, or 5xx for a class", s)
		}
	}
	for key, percent := range map[string]int{"retries.budget": o.Retries.Budget, "breaker.failures": o.Breaker.Failures} {
		if percent > 100 {
			faults[key] = fmt.Errorf("%d is not a percentage: at most 100", percent)
		}
	}
	if o.Retries.Attempts > maxAttempts {
		faults["retries.attempts"] = fmt.Errorf("%d attempts are too many: at most %d", o.Retries.Attempts, maxAttempts)
	}
	for key, d := range map[string]time.Duration{
		"queue_timeout": o.QueueTimeout, "slow_start": o.SlowStart, "connect_timeout": o.ConnectTimeout, "header_timeout": o.HeaderTimeout,
		"body_timeout": o.BodyTimeout, "idle_timeout": o.IdleTimeout, "health.interval": o.Health.Interval,
		"health.timeout": o.Health.Timeout, "health.eject": o.Health.Eject, "breaker.window": o.Breaker.Window, "breaker.open": o.Breaker.Open,
	} {
		if d > longest {
			faults[key] = fmt.Errorf("%s is too long: at most 24h", d)
		}
	}
	if w := o.Breaker.Window; w > 0 && w < 10*time.Millisecond {
		faults["breaker.window"] = fmt.Errorf("%s is too short: at least 10ms", w)
	}
	o.checkTLS(faults)
	return faults
}

func (o Options) checkAddresses(faults map[string]error) {
	switch {
	case len(o.To) == 0:
		faults["to"] = errors.New("an upstream needs an address: to: http://127.0.0.1:5000")
	case len(o.To) > maxServers:
		faults["to"] = fmt.Errorf("%d addresses are too many: at most %d", len(o.To), maxServers)
	}
	seen := map[address]bool{}
	for i, to := range o.To {
		key := fmt.Sprintf("to[%d]", i)
		a, err := parseAddress(to)
		a.text = "" // ws://a is http://a
		if err != nil {
			faults[key] = err
		} else if seen[a] {
			faults[key] = fmt.Errorf("%q is listed twice", to)
		}
		seen[a] = true
	}
}

func (o Options) checkHealth(faults map[string]error) {
	h := o.Health
	if u, err := url.ParseRequestURI(h.Path); h.Path != "" && (err != nil || u.Host != "" || h.Path[0] != '/') {
		faults["health.path"] = fmt.Errorf("%q is not a path: write /healthz", h.Path)
	}
	if _, err := regexp.Compile(h.Body); err != nil {
		faults["health.body"] = fmt.Errorf("%q is not a regular expression: %w", h.Body, err)
	} else if h.Body != "" && h.Path == "" {
		faults["health.body"] = errors.New(`"body" does nothing without "path"`)
	}
	for i, s := range h.Status {
		if !isStatus(s) {
			faults[fmt.Sprintf("health.status[%d]", i)] = fmt.Errorf("%q is not a status: write 204, or 2xx for a class", s)
		}
	}
}

func (o Options) checkTLS(faults map[string]error) {
	t := o.TLS
	if t == (TLS{}) {
		return
	}
	if !slices.ContainsFunc(o.To, isSecure) {
		faults["tls"] = errors.New("no address has https://, so this has no effect")
	}
	if _, err := t.authorities(); err != nil {
		faults["tls.ca"] = err
	}
	if _, err := t.certificates(); err != nil {
		faults["tls.cert"] = err
	}
	if t.Insecure && t.CA != "" {
		faults["tls.insecure"] = errors.New("this accepts any certificate, which makes \"ca\" pointless: leave one of them out")
	}
}

// isSecure reports whether an address is spoken to over TLS.
func isSecure(to string) bool {
	a, err := parseAddress(to)
	return err == nil && a.scheme == "https"
}

// config is what crypto/tls works with.
func (t TLS) config() (*tls.Config, error) {
	roots, err := t.authorities()
	if err != nil {
		return nil, err
	}
	certs, err := t.certificates()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs:            roots,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.Insecure, // what the user asked for by that name
		Certificates:       certs,
		ClientSessionCache: tls.NewLRUClientSessionCache(maxServers),
		MinVersion:         tls.VersionTLS12,
	}, nil
}

// authorities is nil for those of the system.
func (t TLS) authorities() (*x509.CertPool, error) {
	if t.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", t.CA)
	}
	return roots, nil
}

func (t TLS) certificates() ([]tls.Certificate, error) {
	if t.Cert == "" && t.Key == "" {
		return nil, nil
	}
	if t.Cert == "" || t.Key == "" {
		return nil, errors.New("a certificate needs its key, and a key its certificate: give both cert and key")
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("loading the client certificate: %w", err)
	}
	return []tls.Certificate{pair}, nil
}

// isStatus reports whether s is a status or a class of them: 204, 2xx.
func isStatus(s string) bool {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' {
		return false
	}
	rest := strings.ToLower(s[1:])
	return rest == "xx" || strings.Trim(rest, "0123456789") == ""
}

// checkHashBy reports what is wrong with a HashBy.
func checkHashBy(by string) error {
	kind, name, named := strings.Cut(by, ":")
	switch {
	case !named && slices.Contains([]string{"", "url", "path", "client"}, by):
		return nil
	case named && (kind == "header" || kind == "cookie") && name != "" && textproto.TrimString(name) == name && !strings.ContainsAny(name, " :;,=\t\r\n"):
		return nil
	}
	return fmt.Errorf("%q is not supported: use url, path, client, header:NAME or cookie:NAME", by)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
