// Package compare asks two servers the same and says in what their answers
// differ. It also starts nginx, Caddy and Apache with configs that touch nothing
// outside of a temporary folder.
package compare

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds of one answer.
const (
	maxBody = 64 << 20 // what is compared of a body
	timeout = 30 * time.Second
)

// Site is a host that both servers answer for.
type Site struct {
	Host   string // as the client asks for it, without port
	TLS    bool
	Theirs string // address of the server that is the model: host:port
	Ours   string
}

// scheme of the site.
func (s Site) scheme() string {
	if s.TLS {
		return "https"
	}
	return "http"
}

// URL is what a client would ask for.
func (s Site) URL(target string) string { return s.scheme() + "://" + s.Host + target }

// Difference is one thing in which two answers differ.
type Difference struct {
	What         string // status, bytes, or the name of a field
	Theirs, Ours string
}

// Client asks both servers.
type Client struct {
	theirs, ours *http.Client
	strict       bool
}

// NewClient returns a client; a strict one takes no difference for harmless.
func NewClient(strict bool) *Client {
	return &Client{theirs: plainClient(), ours: plainClient(), strict: strict}
}

// plainClient follows no redirects and decodes nothing. Certificates are not
// checked: both servers are on this machine, and started by us.
func plainClient() *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableCompression:  true,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
			MaxIdleConnsPerHost: 2,
			DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
		},
	}
}

// Close closes the connections.
func (c *Client) Close() {
	c.theirs.CloseIdleConnections()
	c.ours.CloseIdleConnections()
}

// Answer is what a server said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Ask sends a GET to both, and returns in what the answers differ.
func (c *Client) Ask(ctx context.Context, s Site, target string) (Verdict, Answer, error) {
	theirs, err := ask(ctx, c.theirs, s, s.Theirs, target)
	if err != nil {
		return Verdict{}, theirs, fmt.Errorf("asking the model: %w", err)
	}
	ours, err := ask(ctx, c.ours, s, s.Ours, target)
	if err != nil {
		return Verdict{}, theirs, fmt.Errorf("asking Millrace: %w", err)
	}
	return c.judge(ctx, s, target, theirs, ours, Differences(s, target, theirs, ours, c.strict)), theirs, nil
}

func ask(ctx context.Context, client *http.Client, s Site, addr, target string) (a Answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.scheme()+"://"+addr+"/", nil)
	if err != nil {
		return a, fmt.Errorf("%s: %w", target, err)
	}
	path, query, has := strings.Cut(target, "?")
	r.URL = &url.URL{Scheme: s.scheme(), Host: addr, Opaque: path, RawQuery: query, ForceQuery: has && query == ""}
	r.Host = s.Host
	r.Header.Set("User-Agent", "millrace-compare")
	r.Header.Set("Accept-Encoding", "identity")
	if s.TLS {
		client = withName(client, s.Host)
	}
	response, err := client.Do(r)
	if err != nil {
		return a, err //nolint:wrapcheck // says what it was doing
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return a, fmt.Errorf("reading the answer to %s: %w", target, err)
	}
	return Answer{response.StatusCode, response.Header, body}, nil
}

// withName is a client that names the host in its handshake.
func withName(c *http.Client, host string) *http.Client {
	t := c.Transport.(*http.Transport).Clone()
	t.TLSClientConfig.ServerName = host
	t.DisableKeepAlives = true
	return &http.Client{Timeout: c.Timeout, CheckRedirect: c.CheckRedirect, Transport: t}
}

// Ignored says which differences are harmless, for people.
func Ignored() string {
	return "Server, Date, Via, the form of ETag, 301 or 308 for a folder without its slash, the text of errors and redirects that the servers write themselves, charset, " +
		"404 instead of 403 for a folder without an index, an absolute or relative Location, Expires beside Cache-Control and both of errors and redirects, and what Millrace says where the other says nothing " +
		"(Cache-Control, Vary, Accept-Ranges, Alt-Svc, Cache-Status, Age, nosniff)"
}

// Differences are those of two answers to the same request.
func Differences(s Site, target string, theirs, ours Answer, strict bool) (found []Difference) {
	note := func(what, a, b string) { found = append(found, Difference{what, a, b}) }
	own := !strict && ownPage(theirs) // the text is the server's own
	if own && ours.Status == http.StatusNotFound && withoutIndex(s, target, theirs) {
		return nil
	}
	if theirs.Status != ours.Status && (strict || !sameFolder(s, target, theirs, ours)) {
		note("status", fmt.Sprint(theirs.Status), fmt.Sprint(ours.Status))
	}
	if !bytes.Equal(theirs.Body, ours.Body) && !own {
		note("bytes", describe(theirs.Body), describe(ours.Body))
	}
	names := map[string]bool{}
	for name := range theirs.Header {
		names[name] = true
	}
	for name := range ours.Header {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := strings.Join(theirs.Header.Values(name), ", "), strings.Join(ours.Header.Values(name), ", ")
		if !strict {
			if name == "Strict-Transport-Security" && !s.TLS && a == "" {
				continue // over plain HTTP it says nothing (RFC 6797, 8.1)
			}
			if own && (name == "Content-Type" || name == "Content-Length") || harmless(name, a, b, theirs, ours) {
				continue
			}
			a, b = normal(s, target, name, a), normal(s, target, name, b)
		}
		if a != b {
			note(name, a, b)
		}
	}
	return found
}

// ownPage reports whether an answer's body is what nginx, Caddy or Apache writes itself.
func ownPage(a Answer) bool {
	return a.Status >= 300 && (len(a.Body) == 0 || bytes.Contains(a.Body, []byte("<hr><center>nginx")) || bytes.HasPrefix(a.Body, []byte("<!DOCTYPE HTML PUBLIC")) && bytes.Contains(a.Body, []byte("<h1>")) || bytes.HasPrefix(a.Body, []byte("<a href=")) && bytes.HasSuffix(a.Body, []byte("</a>.\n\n")))
}

// withoutIndex reports whether nginx speaks of a folder without an index: it
// says 403, and before that sends the client to the folder's path with a slash.
func withoutIndex(s Site, target string, a Answer) bool {
	if strings.HasSuffix(target, "/") {
		return a.Status == http.StatusForbidden
	}
	return a.Status == http.StatusMovedPermanently && location(s, target, a.Header.Get("Location")) == s.URL(target+"/")
}

// sameFolder reports whether both lead to the folder's path with a slash, once
// and for all: Caddy does so by 308.
func sameFolder(s Site, target string, theirs, ours Answer) bool {
	path, query, has := strings.Cut(target, "?")
	if has {
		query = "?" + query
	}
	for _, a := range []Answer{theirs, ours} {
		if a.Status != http.StatusMovedPermanently && a.Status != http.StatusPermanentRedirect || location(s, target, a.Header.Get("Location")) != s.URL(path+"/"+query) {
			return false
		}
	}
	return true
}

// harmless reports whether a difference in a field is one that is known.
func harmless(name, a, b string, theirs, ours Answer) bool {
	switch name {
	case "Server", "Date", "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Etag", "Via", "Status", "Alt-Svc":
		return true // Status is CGI's, which some pass on; Content-Length: the bodies are compared
	case "Expires":
		return theirs.Status >= 300 || b == "" && theirs.Header.Get("Cache-Control") != "" && ours.Header.Get("Cache-Control") != ""
	case "Vary":
		return a == "" || b == "" && strings.EqualFold(a, "Accept-Encoding") || // what is never compressed
			theirs.Status >= 400 && ownPage(theirs) // ours is text or HTML, by Accept
	case "Accept-Ranges", "Last-Modified":
		return a == "" || theirs.Status >= 400 // of a page for an error
	case "Cache-Control", "Cache-Status", "Age", "X-Content-Type-Options", "X-Request-Id":
		return a == "" || name == "Cache-Control" && theirs.Status >= 300
	}
	return false
}

// normal is a field's value without what does not matter.
func normal(s Site, target, name, value string) string {
	switch name {
	case "Content-Type":
		media, params, _ := strings.Cut(value, ";")
		if strings.HasPrefix(strings.TrimSpace(strings.ToLower(params)), "charset=utf-8") || params == "" {
			media = strings.ToLower(strings.TrimSpace(media))
			if media == "text/javascript" {
				return "application/javascript" // RFC 9239 made one of them
			}
			if media == "image/vnd.microsoft.icon" {
				return "image/x-icon"
			}
			if media == "text/xml" {
				return "application/xml" // RFC 7303, 9.2
			}
			return media
		}
	case "Cache-Control", "X-Content-Type-Options":
		var parts []string
		for p := range strings.SplitSeq(value, ",") {
			if p = strings.ToLower(strings.TrimSpace(p)); p != "" {
				parts = append(parts, p)
			}
		}
		slices.Sort(parts)
		return strings.Join(slices.Compact(parts), ", ")
	case "Location", "Content-Location":
		return location(s, target, value)
	case "Www-Authenticate":
		return strings.TrimSuffix(value, `, charset="UTF-8"`) // RFC 7617, 2.1
	case "Vary":
		parts := strings.Split(strings.ToLower(strings.ReplaceAll(value, " ", "")), ",")
		slices.Sort(parts)
		return strings.Join(slices.Compact(parts), ", ")
	}
	return value
}

// location resolves an address, without the port of a server that listens
// elsewhere than where it thinks.
func location(s Site, target, value string) string {
	if value == "" {
		return ""
	}
	base, err := url.Parse(s.URL(target))
	if err != nil {
		return value
	}
	u, err := base.Parse(value)
	if err != nil {
		return value
	}
	u.ForceQuery = false // a lone question mark
	for _, addr := range []string{s.Theirs, s.Ours} {
		_, port, err := net.SplitHostPort(addr)
		if err == nil && u.Port() == port {
			u.Host = u.Hostname()
		}
	}
	return u.String()
}

// describe is a body in few words.
func describe(body []byte) string {
	const shown = 60
	text := string(body[:min(len(body), shown)])
	if len(body) > shown {
		text += "…"
	}
	return fmt.Sprintf("%d bytes %q", len(body), text)
}
