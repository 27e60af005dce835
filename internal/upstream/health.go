package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/internal/wire/field"
)

// maxProbeBytes bounds what is read of the answer to a probe, so that its
// connection can be used again.
const maxProbeBytes = 64 << 10

// watch probes s until the pool is closed. Probes need no place: a server
// whose places are all taken is busy, not unhealthy.
func (p *Pool) watch(s *server) {
	ticker := time.NewTicker(p.options.Health.Interval)
	defer ticker.Stop()
	for {
		if err := p.probe(s); p.ctx.Err() == nil {
			p.probed(s, err)
		}
		select {
		case <-ticker.C:
		case <-p.ctx.Done():
			return
		}
	}
}

// probe asks s for the health path; nil means that it is healthy.
func (p *Pool) probe(s *server) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.options.Health.Timeout)
	defer cancel()
	q := &Request{Method: http.MethodGet, Host: s.hostField, Fields: field.Lines{{Name: "User-Agent", Value: "millrace-health"}}}
	q.Path, q.Query, q.Asks = strings.Cut(p.options.Health.Path, "?")
	answer, err := p.sendProbe(ctx, s, q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxProbeBytes))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if p.good != nil && !p.good.Match(body) {
		return fmt.Errorf("the answer's body does not match %q", p.options.Health.Body)
	}
	for _, good := range p.options.Health.Status {
		if matches(good, answer.Status) {
			return nil
		}
	}
	return fmt.Errorf("the answer is %d", answer.Status)
}

// sendProbe sends a request to s, also when all places are taken.
func (p *Pool) sendProbe(ctx context.Context, s *server, q *Request) (*Answer, error) {
	if s.client == nil || s.speaks.Load() == speaksHTTP2 {
		return s.probeByHTTP(ctx, q)
	}
	x := &Exchange{pool: p, server: s, caller: ctx, request: q, step: placed}
	switch err := x.run(); {
	case errors.Is(err, errSpeaksHTTP2):
		s.speaks.Store(speaksHTTP2)
		return s.probeByHTTP(ctx, q)
	case err != nil:
		f := x.failure(err)
		x.abandon()
		return nil, f.err
	}
	return x.reply(), nil
}

// probeByHTTP is sendProbe by net/http.
func (s *server) probeByHTTP(ctx context.Context, q *Request) (*Answer, error) {
	out := s.request(ctx, q)
	out.URL.Opaque = q.Path                     // a path of its own, without the prefix
	resp, err := s.transporter().RoundTrip(out) //nolint:bodyclose // the answer's closes it
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return AnswerOf(resp), nil
}

// matches reports whether a status is the one, or of the class, of a pattern.
func matches(pattern string, status int) bool {
	digits := strconv.Itoa(status)
	if strings.EqualFold(pattern[1:], "xx") {
		return pattern[0] == digits[0]
	}
	return pattern == digits
}

// probed records the result of a probe, unless that was none for want of descriptors.
func (p *Pool) probed(s *server, err error) {
	if exhausted(err) {
		return
	}
	now := p.now()
	p.mu.Lock()
	needed := p.options.Health.UnhealthyAfter
	if s.down {
		needed = p.options.Health.HealthyAfter
	}
	if (err == nil) != s.down {
		s.streak = 0 // as before
	} else {
		s.streak++
	}
	changed := s.streak >= needed
	if changed {
		s.down, s.streak, s.back = !s.down, 0, now
		p.dispatch(now)
	}
	p.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		p.errorLog.Warn("an upstream fails its health checks and gets no requests", slog.String("upstream", s.name), slog.Any("error", err))
	default:
		p.errorLog.Info("an upstream passes its health checks and gets requests again", slog.String("upstream", s.name))
	}
}
