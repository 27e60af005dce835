package protocols

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/link"
	"millrace/lab/load/client"
	"millrace/lab/stats"
	"millrace/lab/trial"
)

const (
	// delay of the link, in one direction, and loss, of packets in either.
	delay = 5 * time.Millisecond
	loss  = 0.02
	// lanes are how many connections a browser opens to a host over HTTP/1.1.
	lanes = 6
)

// A place is where the server is asked.
type place struct {
	suffix, about string
	far           bool // over the link
	conditions    link.Conditions
}

func places() []place {
	return []place{
		{"", "over the loopback interface", false, link.Conditions{}},
		{"-far", fmt.Sprintf("over a link with a round trip of %v", 2*delay), true, link.Conditions{Delay: delay}},
		{"-lossy", fmt.Sprintf("over the same link, which loses %.0f %% of the packets", 100*loss), true, link.Conditions{Delay: delay, Loss: loss}},
	}
}

// A kind is what is asked for.
type kind struct {
	name, figure, about string
	task                func(m *measurement, ctx context.Context, slot trial.TaskSlot, p place) (trial.TaskResult, error)
}

func (m *measurement) kinds() []kind {
	return []kind{
		{"small", "per request", "GET / (501 bytes) again and again on open connections", (*measurement).small},
		{"page", "per view", fmt.Sprintf("a new visitor, with the handshake: a page of 8 KB, then its %d assets (0.6 to 34 KB) at once over one connection, or one after the other over six of HTTP/1.1", experiment.Assets), (*measurement).page},
		{"large", "per download", fmt.Sprintf("a file of %d MiB on a new connection", m.large>>20), (*measurement).download},
	}
}

// rows are all of them, in the order of the table.
func (m *measurement) rows() []experiment.Row {
	var all []experiment.Row
	for _, k := range m.kinds() {
		for _, p := range places() {
			r := experiment.Row{
				Name: k.name + p.suffix, About: k.about + ", " + p.about, Figure: k.figure, Metric: experiment.CPU,
				Ours: http3, Arms: []string{http1, http2, http3}, Quick: true, Headline: k.name == "page" && p.far,
				Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
					return k.task(m, ctx, slot, p)
				},
			}
			if p.far {
				r.Missing = m.noLink
			}
			all = append(all, r)
		}
	}
	return all
}

// options are those of a client of a server at a place.
func (m *measurement) options(protocol, at string, p place, paths ...string) client.Options {
	o := client.Options{
		Protocol: protocol, URL: at, Paths: paths, Header: experiment.Chromium(), Insecure: true,
		Timeout: answerTimeout,
	}
	if protocol != http1 {
		o.Streams = experiment.Assets
	}
	if m.link != nil {
		o.Within = m.link.Within
	}
	if u, err := url.Parse(at); err == nil && p.far {
		u.Host = net.JoinHostPort(link.Far, u.Port())
		o.URL = u.String()
	}
	return o
}

// times are how long the client waited.
type times struct {
	mu  sync.Mutex
	all []float64 // nanoseconds
}

// take has do done, and notes how long that took.
func (t *times) take(do func() error) error {
	began := time.Now()
	err := do()
	took := time.Since(began)
	t.mu.Lock()
	t.all = append(t.all, float64(took))
	t.mu.Unlock()
	return err
}

func (t *times) result() trial.TaskResult {
	const twentieth = 0.95
	return trial.TaskResult{
		Done:   uint64(len(t.all)),
		Values: map[string]float64{usual: stats.Median(t.all), slow: stats.Quantile(t.all, twentieth)},
	}
}

// amount is n, or less in a quick run.
func (m *measurement) amount(n int) int { return max(1, n/m.divisor) }

// small asks for the small page on open connections.
func (m *measurement) small(ctx context.Context, slot trial.TaskSlot, p place) (trial.TaskResult, error) {
	visitors, times := 8, m.amount(1500)
	if p.far {
		visitors, times = 32, m.amount(150)
	}
	return m.gather(ctx, slot, p, burst{visitors, times, []string{"/"}, func(_ client.Dialer, open client.Conn) error {
		return experiment.Ask(ctx, open, 0)
	}})
}

// page has visitors that come, look at the page and go.
func (m *measurement) page(ctx context.Context, slot trial.TaskSlot, p place) (trial.TaskResult, error) {
	var paths []string
	for _, f := range experiment.PageFiles() {
		paths = append(paths, f.Path)
	}
	visitors, times := 4, m.amount(30)
	if p.far {
		visitors = 1 // their time is to be the link's, not that of two cores
	}
	return m.gather(ctx, slot, p, burst{visitors, times, paths, func(d client.Dialer, _ client.Conn) error {
		c, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // what it has to say no longer matters
		if slot.Arm == http1 {
			return viewHTTP1(ctx, d, c)
		}
		return experiment.View(ctx, c)
	}})
}

// viewHTTP1 looks at the page as a browser does over HTTP/1.1: when the HTML has come
// it opens more connections, and each asks for one asset after the other.
func viewHTTP1(ctx context.Context, d client.Dialer, first client.Conn) error {
	if err := experiment.Ask(ctx, first, 0); err != nil {
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
		for path := asked.Add(1); path <= experiment.Assets; path = asked.Add(1) {
			if err := experiment.Ask(ctx, c, int(path)); err != nil {
				return err
			}
		}
		return nil
	})
}

// download has one visitor that downloads the large file.
func (m *measurement) download(ctx context.Context, slot trial.TaskSlot, p place) (trial.TaskResult, error) {
	downloads := 1
	if !p.far {
		downloads = m.amount(6)
	}
	return m.gather(ctx, slot, p, burst{1, downloads, []string{experiment.LargePath}, func(d client.Dialer, _ client.Conn) error {
		c, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // what it has to say no longer matters
		a, err := c.Do(ctx, 0, nil)
		if err == nil && (a.Status != http.StatusOK || a.Body != m.large) {
			err = fmt.Errorf("%w: status %d, %d bytes of %d", experiment.ErrAnswer, a.Status, a.Body, m.large)
		}
		return err
	}})
}

// A burst are visitors that do something so many times, all at once, each with an
// open connection of its own. Its paths are those of all connections.
type burst struct {
	visitors, times int
	paths           []string
	do              func(d client.Dialer, open client.Conn) error
}

// gather has a burst do it. Each visitor does it once before it counts, and before
// the link loses anything; but for downloads, whose time would be doubled.
func (m *measurement) gather(ctx context.Context, slot trial.TaskSlot, p place, c burst) (trial.TaskResult, error) {
	d, err := client.New(m.options(slot.Arm, slot.URL, p, c.paths...))
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	conns := make([]client.Conn, c.visitors)
	defer func() { part(conns) }()
	m.set(link.Conditions{})
	err = experiment.Each(c.visitors, c.visitors, func(i int) (err error) {
		conns[i], err = d.Dial(ctx)
		if err == nil && c.paths[0] != experiment.LargePath {
			err = c.do(d, conns[i])
		}
		return err
	})
	if err != nil {
		return trial.TaskResult{}, err
	}
	m.set(p.conditions)
	var took times
	slot.Window(true)
	err = experiment.Each(c.visitors, c.visitors, func(i int) error {
		for range c.times {
			if err := took.take(func() error { return c.do(d, conns[i]) }); err != nil {
				return err
			}
		}
		return nil
	})
	slot.Window(false)
	return took.result(), err
}

// set says what the link does from now on, where there is one.
func (m *measurement) set(c link.Conditions) {
	if m.link != nil {
		m.link.Set(c)
	}
}

// part closes connections.
func part(conns []client.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close() // what it has to say no longer matters
		}
	}
}
