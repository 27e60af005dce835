package certs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// refusals remembers the rate limits of CAs, and their ends (RFC 8555, 6.6). A CA that
// refuses an order limits its name; with any other request it limits this machine or its
// account.
type refusals struct {
	mu    sync.Mutex
	of    map[string]map[string]refusal // by name, "" for all of them, and by CA
	swept time.Time                     // when expired ones were removed last
}

// refusal is a CA's answer, which is repeated without asking it until the time is over.
type refusal struct {
	until time.Time
	kind  string // of the answer, for its Content-Type
	text  []byte
}

// Bounds of refusals.
const (
	mostRefusals = mostNames
	mostAnswer   = 64 << 10
	mostRequest  = 64 << 10
	// longestRefusal is the longest limit of Let's Encrypt. A CA that names a
	// longer time is asked again after this one.
	longestRefusal = 7 * 24 * time.Hour
	refusalSweep   = time.Minute
)

// until returns when a CA may be asked for a name again; zero: now.
func (r *refusals) until(name, ca string) time.Time {
	found, _ := r.find(name, ca)
	return found.until
}

func (r *refusals) find(name, ca string) (found refusal, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, scope := range []string{name, ""} {
		if one, there := r.of[scope][ca]; there && now.Before(one.until) && one.until.After(found.until) {
			found, ok = one, true
		}
	}
	return found, ok
}

// everywhere returns when the first of these CAs may be asked for a name again; zero:
// now.
func (r *refusals) everywhere(name string, cas []string) (first time.Time) {
	for _, ca := range cas {
		until := r.until(name, ca)
		if until.IsZero() {
			return until
		}
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

func (r *refusals) note(name, ca string, one refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); len(r.of) >= mostRefusals && now.Sub(r.swept) >= refusalSweep {
		r.swept = now
		maps.DeleteFunc(r.of, func(_ string, cas map[string]refusal) bool {
			maps.DeleteFunc(cas, func(_ string, old refusal) bool { return !now.Before(old.until) })
			return len(cas) == 0
		})
	}
	if len(r.of) >= mostRefusals {
		return // full: the CA is asked again, and refuses again
	}
	if r.of[name] == nil {
		r.of[name] = map[string]refusal{}
	}
	r.of[name][ca] = one
}

// throttledTransport sends requests to a CA, but not before the end of its rate limit.
type throttledTransport struct {
	ca        string
	directory string // its URL
	next      http.RoundTripper
	refused   *refusals
}

var errNoClient = errors.New("certmagic keeps the client of an issuer elsewhere now: adapt this package")

// throttle puts a throttledTransport into an issuer's client, and returns the client.
// certmagic has no option for that, and does not pass Retry-After on.
func throttle(issuer *certmagic.ACMEIssuer, refused *refusals) (*http.Client, error) {
	field := reflect.ValueOf(issuer).Elem().FieldByName("httpClient")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*http.Client]() || field.IsNil() {
		return nil, errNoClient
	}
	client := (*http.Client)(field.UnsafePointer())
	client.Transport = &throttledTransport{issuer.IssuerKey(), issuer.CA, client.Transport, refused}
	return client, nil
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (p *throttledTransport) CloseIdleConnections() {
	if c, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// begins reports whether a request begins a new order. Requests of an order that the CA
// has accepted are always sent.
func (p *throttledTransport) begins(r *http.Request, name string) bool {
	return name != "" || r.Method == http.MethodHead || r.URL.String() == p.directory
}

// RoundTrip implements [http.RoundTripper].
func (p *throttledTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	name := ordered(r)
	if p.begins(r, name) {
		if one, ok := p.refused.find(name, p.ca); ok {
			if r.Body != nil {
				_ = r.Body.Close() // in memory
			}
			return one.again(r), nil
		}
	}
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // as http.RoundTripper has it
	}
	wait := retryAfter(resp, time.Now())
	if wait <= 0 || r.Method == http.MethodGet && !p.begins(r, name) { // Retry-After of renewal information (ARI) is not a rate limit
		return resp, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read what the CA refuses: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	p.refused.note(name, p.ca, refusal{time.Now().Add(min(wait, longestRefusal)), resp.Header.Get("Content-Type"), text})
	return resp, nil
}

// again returns the CA's answer, for another request.
func (one refusal) again(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {one.kind}},
		Body:   io.NopCloser(bytes.NewReader(one.text)), ContentLength: int64(len(one.text)),
	}
}

// retryAfter returns the Retry-After of a CA's refusal; 0: it does not refuse, or does not
// say (RFC 9110, 10.2.3).
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	text := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return at.Sub(now)
	}
	return 0
}

// ordered returns the names in an order (RFC 8555, 7.4); "" for other requests.
func ordered(r *http.Request) string {
	if r.Method != http.MethodPost || r.GetBody == nil || r.ContentLength > mostRequest {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	var signed struct {
		Payload string `json:"payload"`
	}
	if json.NewDecoder(io.LimitReader(body, mostRequest)).Decode(&signed) != nil {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(signed.Payload)
	if err != nil {
		return ""
	}
	var order struct {
		Identifiers []struct {
			Value string `json:"value"`
		} `json:"identifiers"`
	}
	if json.Unmarshal(payload, &order) != nil || len(order.Identifiers) == 0 {
		return ""
	}
	names := make([]string, 0, len(order.Identifiers))
	for _, one := range order.Identifiers {
		names = append(names, strings.ToLower(one.Value))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}
