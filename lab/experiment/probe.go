package experiment

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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

// look asks a server that has just started for some paths. What it answers is kept
// when the arm is first started.
func (r *Run) look(ctx context.Context, name string, in *trial.Instance) error {
	got, err := probeAll(ctx, in.URL["address"], pathsOf(r.Spec.Probe))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probes == nil {
		r.probes = map[string][]Probe{}
	}
	if _, known := r.probes[name]; !known {
		r.probes[name] = got
	}
	return nil
}

// Probes are what arms answered when they first started, by arm.
func (r *Run) Probes() map[string][]Probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.probes)
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
