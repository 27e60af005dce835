package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"millrace/internal/access/token"
)

// maxAnswer is some thousand patterns.
const maxAnswer = 64 << 10

// asker asks a URL what clients may do.
type asker struct {
	url    *url.URL
	name   string // as logs may have it
	client *http.Client
}

func newAsker(raw string, timeout time.Duration) *asker {
	u, err := url.Parse(raw)
	if err != nil { // Check has parsed it
		panic(err)
	}
	return &asker{url: u, name: token.Name(raw), client: token.NewClient(timeout)}
}

// ask returns what a client may do. The error is one of those of the package.
func (a *asker) ask(ctx context.Context, r *http.Request) (claimed, error) {
	status, body, err := token.Get(a.client, a.request(ctx, r), maxAnswer)
	switch {
	case err != nil:
		return claimed{}, fmt.Errorf("%w: asking %s: %w", token.ErrUnavailable, a.name, err)
	case status == http.StatusUnauthorized:
		return claimed{}, fmt.Errorf("%w: who asks is not known: sign in first", token.ErrUnauthorized)
	case status == http.StatusForbidden:
		return claimed{}, ErrForbidden
	case status != http.StatusOK:
		return claimed{}, fmt.Errorf("%w: asking %s: the answer is %d, not 200, 401 or 403", token.ErrUnavailable, a.name, status)
	}
	c, err := claimsOfAnswer(body, time.Now())
	if err != nil && !errors.Is(err, token.ErrUnauthorized) {
		err = fmt.Errorf("%w: asking %s: %w", token.ErrUnavailable, a.name, err)
	}
	return c, err
}

// request makes the request for the URL out of a client's: with the fields that say
// who the client is, without those about its body or connection.
func (a *asker) request(ctx context.Context, r *http.Request) *http.Request {
	u := *a.url
	if u.RawQuery == "" { // else a client could say again what we say in ours
		u.RawQuery = r.URL.RawQuery
	}
	q := (&http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	for _, name := range []string{"Authorization", "Cookie", "Origin"} {
		if v := r.Header.Values(name); len(v) > 0 {
			q.Header[name] = v
		}
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", "millrace")
	q.Header.Set("X-Original-URI", r.URL.RequestURI())
	// What the client itself says about where it comes from is not passed on.
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		q.Header.Set("X-Forwarded-For", host)
	}
	return q
}
