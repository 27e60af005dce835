package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/crypto/ocsp"
)

const (
	// stapleEvery is how often certificates without a current staple are looked for.
	stapleEvery = time.Minute
	// stapleTime is the timeout of a request to a responder, stapleRetry the pause after
	// one that failed, mostStaple the largest answer.
	stapleTime  = 10 * time.Second
	stapleRetry = 5 * time.Minute
	mostStaple  = 64 << 10
)

// staple is a CA's statement that a certificate is not revoked (OCSP).
type staple struct {
	of     *tls.Certificate // as it was read
	from   time.Time
	until  time.Time
	tried  time.Time
	warned bool // the log has said that there is none
}

// Responders sends requests to CAs; an [http.Client] is one.
type Responders interface {
	Do(r *http.Request) (*http.Response, error)
}

// staples gets OCSP answers (RFC 6960) for the certificates of files whose CA
// names a responder, and renews them, until ctx ends.
func (c *certificates) staples(ctx context.Context, client Responders) {
	known := map[KeyPair]*staple{}
	tick := time.NewTicker(stapleEvery)
	defer tick.Stop()
	for {
		c.stapleAll(ctx, client, known, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stapleAll gets what is missing, or is past half of its time.
func (c *certificates) stapleAll(ctx context.Context, client Responders, known map[KeyPair]*staple, now time.Time) {
	c.mu.Lock()
	pairs := make(map[KeyPair]*tls.Certificate, len(c.pairs))
	for _, p := range c.pairs {
		pairs[p.files] = p.pair
	}
	c.mu.Unlock()
	for files := range known {
		if pairs[files] == nil {
			delete(known, files)
		}
	}
	for files, pair := range pairs {
		if len(pair.Leaf.OCSPServer) == 0 || len(pair.Certificate) < 2 {
			continue
		}
		s := known[files]
		if s == nil || s.of != pair {
			s = &staple{of: pair}
			known[files] = s
		}
		half := s.from.Add(s.until.Sub(s.from) / 2)
		if now.Before(half) || now.Sub(s.tried) < stapleRetry {
			continue
		}
		s.tried = now
		raw, answer, err := askResponder(ctx, client, pair)
		switch {
		case err == nil:
			stapled := *pair
			stapled.OCSPStaple = raw
			s.of, s.from, s.until, s.warned = &stapled, answer.ThisUpdate, answer.NextUpdate, false
			c.replace(files, pair, &stapled)
		case ctx.Err() != nil:
			return
		default:
			if !s.warned {
				c.errors.Warn("there is no OCSP answer for a certificate; it is served without one, and the CA is asked again", "cert", files.Cert, "err", err)
				s.warned = true
			}
			if len(pair.OCSPStaple) > 0 && now.After(s.until) { // clients would refuse an old one
				bare := *pair
				bare.OCSPStaple = nil
				s.of = &bare
				c.replace(files, pair, &bare)
			}
		}
	}
}

// replace replaces old by fresh, if old is still in use.
func (c *certificates) replace(files KeyPair, old, fresh *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pairs {
		if p.files == files && p.pair == old {
			p.pair = fresh
		}
	}
	c.choice.Store(newChoice(c.pairs))
}

// askResponder asks the CA about a certificate.
func askResponder(ctx context.Context, client Responders, pair *tls.Certificate) ([]byte, *ocsp.Response, error) {
	issuer, err := x509.ParseCertificate(pair.Certificate[1])
	if err != nil {
		return nil, nil, fmt.Errorf("read the issuer: %w", err)
	}
	question, err := ocsp.CreateRequest(pair.Leaf, issuer, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stapleTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, pair.Leaf.OCSPServer[0], bytes.NewReader(question))
	if err != nil {
		return nil, nil, fmt.Errorf("ask the responder: %w", err)
	}
	r.Header.Set("Content-Type", "application/ocsp-request")
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the responder: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, mostStaple))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the responder answers %s: %w", resp.Status, errors.Join(errResponder, err))
	}
	answer, err := ocsp.ParseResponseForCert(raw, pair.Leaf, issuer)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the responder's answer: %w", err)
	case answer.Status == ocsp.Revoked:
		return nil, nil, fmt.Errorf("%w: the certificate was revoked on %s: get a new one", errResponder, answer.RevokedAt.Format(time.DateOnly))
	case answer.Status != ocsp.Good || answer.NextUpdate.Before(time.Now()):
		return nil, nil, fmt.Errorf("%w: it does not know the certificate, or says nothing of today", errResponder)
	}
	return raw, answer, nil
}

var errResponder = errors.New("no staple")
