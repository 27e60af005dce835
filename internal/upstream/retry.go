package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

const (
	// maxAttempts bounds Retries.Attempts.
	maxAttempts = 10
	// budgetWindow is the time whose requests make the budget.
	budgetWindow = 10 * time.Second
	// minRetries may be repeated in that time however few requests there are:
	// one visitor's request deserves a second try as well.
	minRetries = 10
	// retryPause is how long to wait before the same server is asked again; it
	// doubles each time, and half of it is random, so that a herd scatters.
	retryPause = 20 * time.Millisecond
)

// again reports whether try n of a request may be repeated after f, and with what body.
func (p *Pool) again(k *call, f *failure, up *upload, n int) (*upload, bool) {
	if f.final || n >= p.options.Retries.Attempts || k.ctx.Err() != nil {
		return nil, false
	}
	if f.sent && !isIdempotent(k.request.Method) {
		return nil, false
	}
	next, ok := up.again(k.request.Again)
	if !ok || !p.withdraw(f.sent) {
		next.abandon()
		return nil, false
	}
	return next, true
}

// unwelcome reports whether try n of a request is repeated for its answer's status, by
// [Retries.Status].
func (p *Pool) unwelcome(k *call, a *Answer, up *upload, n int) bool {
	if !p.repeats(k.request.Method, a.Status) || up != nil || n >= p.options.Retries.Attempts || k.ctx.Err() != nil {
		return false
	}
	return p.withdraw(true)
}

// repeats reports whether requests are repeated for the status of an answer.
func (p *Pool) repeats(method string, status int) bool {
	statuses := p.options.Retries.Status
	return len(statuses) > 0 && isIdempotent(method) && slices.ContainsFunc(statuses, func(s string) bool { return matches(s, status) })
}

// withdraw takes one repeat from the budget. Those of requests that were sent may take
// half of it: a page that always fails leaves the others theirs.
func (p *Pool) withdraw(sent bool) bool {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	requests, repeats := p.budget.counts(now)
	most := max(minRetries, requests*uint64(p.options.Retries.Budget)/100)
	if sent {
		most /= 2
	}
	if repeats >= most {
		return false
	}
	p.budget.add(now, 1)
	p.retried++
	return true
}

// pause waits before a retry, and reports whether ctx is still alive.
func pause(ctx context.Context, n int) bool {
	d := retryPause << (n - 1)
	select {
	case <-time.After(d/2 + rand.N(d/2)):
		return true
	case <-ctx.Done():
		return false
	}
}

// isIdempotent reports whether a request may be made twice (RFC 9110, 9.2.2).
func isIdempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}
