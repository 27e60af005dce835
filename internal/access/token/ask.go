package token

// This file asks a URL of the operator's something about a client: who it is,
// or with which keys tokens are signed.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millrace/internal/wire/lookup"
)

// MaxConns is how many connections a client has at most: it bounds what a storm of
// clients can do to who is asked.
const MaxConns = 64

// connectTimeout is as that of net/http's own transport.
const connectTimeout = 30 * time.Second

// NewClient is for requests that are answered within a time by exactly who was
// named: a redirect would take the clients' credentials elsewhere.
func NewClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:         (&lookup.Dialer{Dialer: net.Dialer{Timeout: connectTimeout}}).DialContext,
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // little text, and no bombs
			MaxConnsPerHost:     MaxConns,
			MaxIdleConnsPerHost: MaxConns,
			IdleConnTimeout:     90 * time.Second,
			// Long before the answer is too long something is wrong.
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// Get asks, and reads at most so many bytes.
func Get(c *http.Client, req *http.Request, most int64) (status int, body []byte, err error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, Bare(err)
	}
	defer resp.Body.Close()
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		return 0, nil, fmt.Errorf("it sends elsewhere (%d): if that is right, write %s instead", resp.StatusCode, Printable(withoutQuery(to)))
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil, nil
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer: %w", Bare(err))
	}
	if int64(len(body)) > most {
		return 0, nil, fmt.Errorf("the answer is longer than %d bytes", most)
	}
	return resp.StatusCode, body, nil
}

// Bare is an error without the URL that was asked, which may hold a token.
func Bare(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return errors.New("there was no answer in time")
		}
		return u.Err
	}
	return err
}

// Name is a URL as logs may have it.
func Name(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the URL"
	}
	return withoutQuery(u.Redacted())
}

func withoutQuery(s string) string {
	s, _, _ = strings.Cut(s, "?")
	return s
}

// CheckURL says what is wrong with an address that is to be asked.
func CheckURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return fmt.Errorf("%q is not an address that can be asked: write https://host/path", raw)
	}
	if u.Fragment != "" {
		return fmt.Errorf("%q has a #, which no server gets to see: leave it out", raw)
	}
	return nil
}

// Printable is s without what would spoil a log or a message, and at most 200
// bytes of it.
func Printable(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
