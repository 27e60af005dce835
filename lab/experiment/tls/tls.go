// Package tls is what of the experiment tls is code: new connections, with full
// handshakes and with sessions that are resumed.
package tls

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	// clients open connections at once, each one after the other.
	clients = 8
	// settle is how long a server may take to end what was closed.
	settle = 200 * time.Millisecond
)

// errResumed is why new connections say nothing.
var errResumed = errors.New("the server has not resumed a session, or has resumed one where none was")

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	return experiment.Hooks{Tasks: map[string]experiment.Task{
		"handshake": func(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
			return shake(ctx, slot, w, r.Right("/"))
		},
	}}
}

// shake measures new connections: a handshake, the page once, and the end. Resumed
// ones have a ticket that the server has given before.
func shake(ctx context.Context, slot trial.TaskSlot, w experiment.Workload, page []byte) (got trial.TaskResult, err error) {
	dialers := make([]client.Dialer, clients)
	resumes := make([]bool, clients) // each is of one goroutine at a time
	for i := range dialers {
		o := w.Options(slot.URL)
		if w.Resumed {
			o.TLS = experiment.TLS13(tls.NewLRUClientSessionCache(1))
		}
		o.TLS.VerifyConnection = func(s tls.ConnectionState) error {
			if s.DidResume != resumes[i] {
				return errResumed
			}
			return nil
		}
		if dialers[i], err = client.New(o); err != nil {
			return got, err
		}
		defer dialers[i].Close() //nolint:errcheck // what it has to say no longer matters
	}
	once := func(i int) error { return experiment.AskOnce(ctx, dialers[i], page) }
	if err := experiment.Each(clients, clients, once); err != nil { // the first tickets
		return got, err
	}
	for i := range resumes {
		resumes[i] = w.Resumed
	}
	if err := experiment.Sleep(ctx, settle); err != nil {
		return got, err
	}
	slot.Window(true)
	err = experiment.Each(clients, clients, func(i int) error {
		for range w.Count / clients {
			if err := once(i); err != nil {
				return err
			}
		}
		return nil
	})
	err = errors.Join(err, experiment.Sleep(ctx, settle))
	slot.Window(false)
	return trial.TaskResult{Done: uint64(w.Count)}, err
}
