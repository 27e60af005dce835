package tls

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	// quietConnections are how many there are of those on which nothing happens,
	// and quietConnectionsQuick in a quick run.
	idleConnections      = 5000
	idleConnectionsQuick = 1000
	// warmUp is how many are opened and closed again before memory is read. They
	// are few: what the server keeps of them for others is not counted.
	warmUp = 20
	// idleTime is how long nothing happens.
	idleTime = 2 * time.Second
	// newConnections are how many are opened one after the other by each of the
	// clients, for the rows of handshakes.
	newConnections      = 50
	newConnectionsQuick = 30
	clients             = 8
	// settle is how long a server may take to end what was closed.
	settle = 200 * time.Millisecond
	// opening is how many connections are opened at one moment: far below the
	// queue of a listening socket, which would otherwise be what breaks first.
	opening = 64
	// perConnection is the metric of quiet connections.
	perConnection = "rss_per_connection_bytes"
)

// errNotResumed is why the row of a resumed session says nothing.
var errNotResumed = errors.New("the server has not resumed a session, or has resumed one where none was")

// shake measures new connections: a handshake, the page once, and the end. resumed:
// with a ticket that the server has given before.
func (m *measurement) shake(ctx context.Context, slot trial.TaskSlot, http2, resumed bool) (trial.TaskResult, error) {
	configs := make([]*tls.Config, clients)
	for i := range configs {
		configs[i] = settings(http2, nil)
		if resumed {
			configs[i] = settings(http2, tls.NewLRUClientSessionCache(1))
		}
	}
	visitOnce := func(config *tls.Config, resumes bool) error {
		v, err := visit(ctx, slot.URL, config)
		if err != nil {
			return err
		}
		defer v.close()
		if v.conn.ConnectionState().DidResume != resumes {
			return errNotResumed
		}
		return m.right(v)
	}
	err := experiment.Each(clients, clients, func(i int) error { return visitOnce(configs[i], false) }) // the first tickets
	if err == nil {
		err = experiment.Sleep(ctx, settle)
	}
	times := newConnections
	if m.quick {
		times = newConnectionsQuick
	}
	slot.Window(true)
	if err == nil {
		err = experiment.Each(clients, clients, func(i int) error {
			for range times {
				if err := visitOnce(configs[i], resumed); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = experiment.Sleep(ctx, settle)
	}
	slot.Window(false)
	return trial.TaskResult{Done: uint64(clients * times)}, err
}

// measureIdle measures idle connections on a server of their own that has done
// nothing before: one that was loaded holds memory that it uses again.
func (m *measurement) measureIdle(ctx context.Context, slot trial.TaskSlot, http2 bool) (result trial.TaskResult, err error) {
	err = m.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
		result, err = m.hold(ctx, in.URL[""], target, http2, m.most)
		return err
	})
	return result, err
}

// hold opens connections, asks for the page once on each, lets them idle and reads
// what the server holds.
func (m *measurement) hold(ctx context.Context, url string, target *record.Target, http2 bool, n int) (trial.TaskResult, error) {
	first, err := m.gather(ctx, url, http2, min(warmUp, n))
	part(first)
	if err == nil {
		err = experiment.Sleep(ctx, settle)
	}
	if err != nil {
		return trial.TaskResult{}, err
	}
	before, err := target.Read()
	if err != nil {
		return trial.TaskResult{}, err
	}
	all, err := m.gather(ctx, url, http2, n)
	defer part(all)
	if err == nil {
		err = experiment.Sleep(ctx, idleTime)
	}
	if err != nil {
		return trial.TaskResult{}, err
	}
	after, err := target.Read()
	// Of this server, not of the one that the slot is about.
	values := map[string]float64{"rss_bytes": float64(after.RSS), experiment.CPU: float64(after.CPU-before.CPU) / float64(n)}
	if after.RSS > before.RSS {
		values[perConnection] = float64(after.RSS-before.RSS) / float64(n)
	}
	return trial.TaskResult{Values: values, Done: uint64(n)}, err
}

// gather opens connections and asks for the page on each. Those that it opened are
// the caller's to part with, after an error, too.
func (m *measurement) gather(ctx context.Context, url string, http2 bool, n int) ([]*visitor, error) {
	config := settings(http2, nil)
	var mu sync.Mutex // guards all
	var all []*visitor
	err := experiment.Each(n, opening, func(int) error {
		v, err := visit(ctx, url, config)
		if err != nil {
			return err
		}
		mu.Lock()
		all = append(all, v)
		mu.Unlock()
		return m.right(v)
	})
	return all, err
}

// part closes connections.
func part(all []*visitor) {
	_ = experiment.Each(len(all), opening, func(i int) error { // it reports none
		all[i].close()
		return nil
	})
}
