package former

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"millrace/lab/trial"
)

const (
	// probeTime bounds the look at an arm's answers: a handful of small files.
	probeTime = 10 * time.Second
	// probeBytes is more than all probed answers of one connection.
	probeBytes = 1 << 20
)

// A Probe is one answer of an arm, seen once outside of any measurement.
type Probe struct {
	Path   string
	Status int
	Header http.Header
	Head   int // bytes of status line, header and framing
	Body   int // bytes of the body
}

// look asks a server that has just started for all paths: so that what it does
// once for each (opening, compressing) is not charged to the first slot. What it
// answers is kept when the arm is first started.
func (s *Servers) look(ctx context.Context, name string, in *trial.Instance) error {
	if len(s.Probed) == 0 {
		return nil
	}
	address := strings.TrimSuffix(strings.TrimPrefix(in.URL[""], "http://"), "/")
	got, err := probeAll(ctx, address, s.Probed)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.probes[name]; !known {
		if s.probes == nil {
			s.probes = map[string][]Probe{}
		}
		s.probes[name] = got
	}
	return nil
}

// Probes are what arms answered when they first started, by arm.
func (s *Servers) Probes() map[string][]Probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.probes)
}

// probeAll asks for paths one after the other on one connection. Any status is
// kept: judging is the gates' affair.
func probeAll(ctx context.Context, address string, paths []string) ([]Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("looking at the answers: %w", err)
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return nil, fmt.Errorf("looking at the answers: %w", err)
		}
	}
	// Nothing is pipelined, so what was read when a body has ended is what
	// that answer took.
	var seen bytes.Buffer
	r := bufio.NewReader(io.TeeReader(io.LimitReader(conn, probeBytes), &seen))
	var out []Probe
	for _, path := range paths {
		seen.Reset()
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address); err != nil {
			return nil, fmt.Errorf("looking at the answer to %s: %w", path, err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil, fmt.Errorf("looking at the answer to %s: %w", path, err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("looking at the answer to %s: %w", path, err)
		}
		header := res.Header.Clone()
		if res.ContentLength >= 0 {
			header.Set("Content-Length", fmt.Sprint(res.ContentLength)) // ReadResponse keeps it, but is free not to
		}
		if len(res.TransferEncoding) > 0 {
			header["Transfer-Encoding"] = res.TransferEncoding
		}
		out = append(out, Probe{Path: path, Status: res.StatusCode, Header: header, Head: seen.Len() - int(n), Body: int(n)})
	}
	return out, nil
}
