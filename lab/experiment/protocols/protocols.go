// Package protocols is what of the experiment protocols is code: one server that is
// asked for the same over HTTP/1.1, HTTP/2 and HTTP/3, on the machine itself and over
// a link that takes its time and loses packets.
package protocols

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/link"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/site"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// answerTimeout is how long one answer may take: the large file over a link that
	// loses packets takes minutes over TCP.
	answerTimeout = 10 * time.Minute
	// startTime is how long a server may take until it answers over a protocol.
	startTime = 10 * time.Second
	// compressing is how long a server may take to compress what it was asked for
	// first; millrace does that beside its answers.
	compressing = 700 * time.Millisecond
	// delay of the link, in one direction, and loss, of packets in either.
	delay = 5 * time.Millisecond
	loss  = 0.02
	// lanes are how many connections a browser opens to a host over HTTP/1.1.
	lanes = 6
	// http1 is the arm, and the protocol, that has one request at a time.
	http1 = "http1"
)

// measurement is one run of the experiment.
type measurement struct {
	*experiment.Run
	link *link.Link // nil: there is none
}

// Hooks are those of the experiment.
func Hooks(r *experiment.Run) experiment.Hooks {
	m := &measurement{Run: r}
	h := experiment.Hooks{
		Prepare: m.open,
		Start:   map[string]func(context.Context) (*trial.Instance, error){},
		Tasks: map[string]experiment.Task{
			"small": m.small, "view": m.page, "download": m.download,
		},
		Report: m.report,
	}
	for _, p := range r.Spec.Peers {
		h.Start[p.Arm] = func(ctx context.Context) (*trial.Instance, error) { return m.start(ctx, p.Arm) }
	}
	return h
}

// open makes the link, or says why there is none.
func (m *measurement) open(context.Context) (err error) {
	if m.link, err = link.Open(m.Env.Seed); err != nil {
		m.Missing["link"] = err
		return nil
	}
	m.Defer(m.link.Close)
	return nil
}

// start starts a server, and returns when it answers with the right page. In the
// link's network it listens at all addresses, in the machine's at the loopback one.
func (m *measurement) start(ctx context.Context, arm string) (*trial.Instance, error) {
	m.set("near")
	var fields map[string]string
	var command experiment.Command
	if m.link != nil {
		fields, command = map[string]string{"Host": "0.0.0.0"}, m.link.Command
	}
	in, err := m.StartWith(ctx, arm, fields, command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err = m.look(ctx, arm, in.URL[""])
		if err == nil {
			if err = experiment.Sleep(ctx, compressing); err == nil {
				return in, nil
			}
		}
		if experiment.Sleep(ctx, 50*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("%s does not answer: %w", arm, err), in.Stop())
		}
	}
}

// look compares the small page, and asks for all that the server may compress.
func (m *measurement) look(ctx context.Context, arm, url string) error {
	paths := append([]string{"/"}, experiment.PagePaths()...)
	d, err := client.New(m.options(arm, url, "near", paths))
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	c, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // likewise
	err = experiment.Ask(ctx, c, 0, m.Right("/"))
	for i := 1; i < len(paths) && err == nil; i++ {
		err = experiment.Ask(ctx, c, i, nil)
	}
	return err
}

// options are those of a client of a server at a place: near, or over the link.
func (m *measurement) options(protocol, at, place string, paths []string) client.Options {
	o := experiment.Workload{Protocol: load.Protocol(protocol), Paths: paths, Browser: true, Timeout: answerTimeout}.Options(at)
	o.LocalAddr = nil // in the link's network there is one
	if protocol != http1 {
		o.Streams = site.Assets
	}
	if m.link != nil {
		o.Within = m.link.Within
	}
	if u, err := url.Parse(at); err == nil && place != "near" {
		u.Host = net.JoinHostPort(link.Far, u.Port())
		o.URL = u.String()
	}
	return o
}

// set says what the link does from now on, where there is one.
func (m *measurement) set(place string) {
	if m.link != nil {
		m.link.Set(map[string]link.Conditions{"far": {Delay: delay}, "lossy": {Delay: delay, Loss: loss}}[place])
	}
}

// small asks for the small page on open connections.
func (m *measurement) small(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	return m.gather(ctx, slot, w, func(_ client.Dialer, open client.Conn) error { return experiment.Ask(ctx, open, 0, nil) })
}

// page has visitors that come, look at the page and go.
func (m *measurement) page(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	w.Paths = experiment.PagePaths()
	return m.gather(ctx, slot, w, func(d client.Dialer, _ client.Conn) error {
		c, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // what it has to say no longer matters
		if slot.Arm == http1 {
			return viewHTTP1(ctx, d, c)
		}
		return experiment.View(ctx, c)
	})
}

// viewHTTP1 looks at the page as a browser does over HTTP/1.1: when the HTML has come
// it opens more connections, and each asks for one asset after the other.
func viewHTTP1(ctx context.Context, d client.Dialer, first client.Conn) error {
	if err := experiment.Ask(ctx, first, 0, nil); err != nil {
		return err
	}
	var asked atomic.Int64
	return experiment.Each(lanes, lanes, func(i int) error {
		c := first
		if i > 0 {
			more, err := d.Dial(ctx)
			if err != nil {
				return err
			}
			defer more.Close() //nolint:errcheck // what it has to say no longer matters
			c = more
		}
		for path := asked.Add(1); path <= site.Assets; path = asked.Add(1) {
			if err := experiment.Ask(ctx, c, int(path), nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// download has one visitor that downloads the large file.
func (m *measurement) download(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (trial.TaskResult, error) {
	size, err := m.LargeSize()
	if err != nil {
		return trial.TaskResult{}, err
	}
	return m.gather(ctx, slot, w, func(d client.Dialer, _ client.Conn) error {
		c, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // what it has to say no longer matters
		a, err := c.Do(ctx, 0, nil)
		if err == nil && (a.Status != http.StatusOK || a.Body != size) {
			err = fmt.Errorf("%w: status %d, %d bytes of %d", experiment.ErrAnswer, a.Status, a.Body, size)
		}
		return err
	})
}

// gather has visitors do something, all at once, each with an open connection of its
// own. Each does it once before it counts, and before the link loses anything; but for
// downloads, whose time would be doubled.
func (m *measurement) gather(ctx context.Context, slot trial.TaskSlot, w experiment.Workload, do func(d client.Dialer, open client.Conn) error) (got trial.TaskResult, err error) {
	d, err := client.New(m.options(slot.Arm, slot.URL, w.Over, w.Paths))
	if err != nil {
		return got, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	m.set("near")
	all := experiment.Gather(ctx, d, w.Connections, func(c client.Conn) error {
		if w.Paths[0] == site.LargePath {
			return nil
		}
		return do(d, c)
	})
	defer all.Part()
	if all.Err != nil {
		return got, all.Err
	}
	m.set(w.Over)
	var mu sync.Mutex // guards times
	var times []float64
	slot.Window(true)
	err = experiment.Each(w.Connections, w.Connections, func(i int) error {
		for range w.Count {
			began := time.Now()
			if err := do(d, all.Conns[i]); err != nil {
				return err
			}
			took := time.Since(began)
			mu.Lock()
			times = append(times, float64(took))
			mu.Unlock()
		}
		return nil
	})
	slot.Window(false)
	if err != nil {
		return got, err
	}
	const twentieth = 0.95
	return trial.TaskResult{Done: uint64(len(times)), Values: map[string]float64{
		"time_ns": stats.Median(times), "slow_ns": stats.Quantile(times, twentieth),
	}}, nil
}

// report adds what the link did, and the answer: the server's CPU time for a small
// page, and the client's time for the rows that count most, or for all.
func (m *measurement) report() {
	if m.link != nil {
		c := m.link.Counts()
		if tcp := m.link.TCP(); tcp != "reno" {
			m.Note("TCP finds its rate by %s here, and not by Reno as QUIC does: rows with lost packets compare that, too", tcp)
		}
		m.Note("the link carried %d packets, lost %d as it should, and %d because too many were under way", c.Delivered, c.Lost, c.Crowded)
	}
}
