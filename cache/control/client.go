package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// maxAnswer bounds what a server may answer: the longest list of decisions, with
// URLs of a sensible length, is far below.
const maxAnswer = 64 << 20

// Client talks to the Handler of a running server. It is safe for concurrent use.
type Client struct {
	// HTTP reaches the server's admin listener at Base (admin.Client makes both):
	// http://millrace and a client that dials its socket.
	HTTP *http.Client
	Base string
}

// Purge returns when the purge is in effect on the server. With an error that
// Unannounced is true for, it is in effect there, but other machines that share
// its store may not know of it.
func (c *Client) Purge(ctx context.Context, p Purge) (Purged, error) {
	var done Purged
	b, err := json.Marshal(p)
	if err != nil {
		return done, fmt.Errorf("writing what to purge: %w", err)
	}
	if err := c.call(ctx, http.MethodPost, "purge", nil, b, &done); err != nil {
		return done, err
	}
	var errs []error
	for _, problem := range done.Problems {
		errs = append(errs, &unannouncedError{problem})
	}
	return done, errors.Join(errs...)
}

// unannouncedError is a purge that other machines may not have heard of.
type unannouncedError struct{ Problem }

// Error implements error.
func (e *unannouncedError) Error() string {
	return fmt.Sprintf("in the cache of %s: %s", e.Route, e.Problem.Error)
}

// Unannounced reports whether an error of Purge means that the purge is in
// effect on the server that was asked.
func Unannounced(err error) bool {
	_, ok := errors.AsType[*unannouncedError](err)
	return ok
}

// Explain asks what would happen to a request for a URL with a scheme and a host
// now. method may be empty for GET; header may be nil.
func (c *Client) Explain(ctx context.Context, target, method string, header http.Header) (Explanation, error) {
	q := url.Values{"url": {target}}
	if method != "" {
		q.Set("method", method)
	}
	for name, values := range header {
		for _, v := range values {
			q.Add("header", name+": "+v)
		}
	}
	var e Explanation
	err := c.call(ctx, http.MethodGet, "explain", q, nil, &e)
	return e, err
}

// Recent lists the latest n decisions whose URL, outcome or reason contains
// filter, youngest first; n of zero leaves the number to the server (50), and
// 10,000 is the most.
func (c *Client) Recent(ctx context.Context, filter string, n int) ([]Decision, error) {
	q := url.Values{}
	if filter != "" {
		q.Set("filter", filter)
	}
	if n != 0 {
		q.Set("n", strconv.Itoa(n))
	}
	var list []Decision
	err := c.call(ctx, http.MethodGet, "recent", q, nil, &list)
	return list, err
}

// Stats reads the counters of every route's cache.
func (c *Client) Stats(ctx context.Context) ([]Stats, error) {
	var list []Stats
	err := c.call(ctx, http.MethodGet, "stats", nil, nil, &list)
	return list, err
}

// call sends one request and reads its answer into v.
func (c *Client) call(ctx context.Context, method, name string, q url.Values, body []byte, v any) error {
	target := c.Base + Prefix + name
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.HTTP.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the socket's made-up URL helps nobody
		}
		return fmt.Errorf("asking the server: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	if len(b) > maxAnswer {
		return fmt.Errorf("the server's answer has more than %d bytes: ask for less with a filter", maxAnswer)
	}
	if res.StatusCode != http.StatusOK {
		if done, ok := v.(*Purged); ok && json.Unmarshal(b, done) == nil && done.status() == res.StatusCode {
			return nil // it says itself what is wrong
		}
		return refused(res.StatusCode, b)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	return nil
}

// refused is what the server has said, or a guess why it said nothing.
func refused(status int, body []byte) error {
	var f failure
	if json.Unmarshal(body, &f) == nil && f.Error != "" {
		return errors.New(f.Error)
	}
	if status == http.StatusNotFound {
		return errors.New("this server has no cache, or is of another version: see its routes with GET / on its admin address")
	}
	return fmt.Errorf("the server answers with status %d: %.200q", status, body)
}
