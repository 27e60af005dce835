package experiment

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"millrace/lab/load/client"
	"millrace/lab/trial"
)

// probeTime bounds one answer of the look at an arm's: small files.
const probeTime = 10 * time.Second

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
	d, err := client.New(client.Options{Protocol: "http1", URL: "http://" + address, Paths: paths, Timeout: probeTime})
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	conn, err := d.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the answers: %w", err)
	}
	defer conn.Close() //nolint:errcheck // likewise
	var out []Probe
	for i, path := range paths {
		a, err := conn.Do(ctx, i, nil)
		if err != nil {
			return nil, fmt.Errorf("looking at the answers: %w", err)
		}
		out = append(out, Probe{Path: path, Status: a.Status, Header: a.Head, Head: int(a.Bytes - a.Body), Body: int(a.Body)})
	}
	return out, nil
}
