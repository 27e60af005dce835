package experiment

// This file has the tasks of several experiments.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/load/h2load"
	"millrace/lab/record"
	"millrace/lab/site"
	"millrace/lab/trial"
)

const (
	// Patience is how long a connection, or an answer, may take.
	Patience = 20 * time.Second
	// atOnce is how many connections are opened or closed at one moment: far below
	// the queue of a listening socket (net.core.somaxconn, 4096 by default), which
	// would otherwise be what breaks first.
	atOnce = 64
	// sources are the source addresses, each good for some 28,000 connections to
	// one server.
	sources = 4
	// compressing is how long a server may take to compress what it was asked for
	// first; some do that beside their answers.
	compressing = 700 * time.Millisecond
)

// ErrAnswer is an answer that is not what was asked for.
var ErrAnswer = errors.New("a wrong answer")

// TLS13 are the settings of handshakes: version 1.3 and X25519, which all servers
// have. sessions are those to resume; nil: none.
func TLS13(sessions tls.ClientSessionCache) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}, ClientSessionCache: sessions, ServerName: "localhost"}
}

// Options are those of a client that does a workload at a server. It comes from
// several addresses in turn.
func (w Workload) Options(url string) client.Options {
	var next atomic.Uint32
	return client.Options{
		Protocol: cmp.Or(string(w.Protocol), "http1"), URL: url, Paths: w.paths(), Header: w.header(), Insecure: true, TLS: TLS13(nil),
		Streams: max(1, w.Streams), Timeout: cmp.Or(w.Timeout, Patience), Message: bytes.Repeat([]byte("x"), w.Message),
		LocalAddr: func() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+next.Add(1)%sources))} },
	}
}

// Ask asks for one of a connection's paths, which must be answered with 200 and, if
// want is not nil, this body.
func Ask(ctx context.Context, conn client.Conn, path int, want []byte) error {
	var body bytes.Buffer
	into := &body
	if want == nil {
		into = nil
	}
	a, err := do(ctx, conn, path, into)
	switch {
	case err != nil:
		return err
	case a.Status != http.StatusOK || a.Body == 0:
		return fmt.Errorf("%w: status %d, %d bytes", ErrAnswer, a.Status, a.Body)
	case want != nil && !bytes.Equal(body.Bytes(), want):
		return fmt.Errorf("%w: %d bytes, %.80q", ErrAnswer, body.Len(), body.Bytes())
	}
	return nil
}

func do(ctx context.Context, conn client.Conn, path int, into *bytes.Buffer) (client.Answer, error) {
	if into == nil {
		return conn.Do(ctx, path, nil)
	}
	return conn.Do(ctx, path, into)
}

// AskOnce asks for the first path of a dialer on a connection of its own.
func AskOnce(ctx context.Context, d client.Dialer, want []byte) error {
	conn, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // what it has to say no longer matters
	return Ask(ctx, conn, 0, want)
}

// View asks for the page of [millrace/lab/site.Page], whose paths the connection has in that
// order, as a browser does over one connection: the HTML, and when that has come all
// assets at once.
func View(ctx context.Context, conn client.Conn) error {
	if err := Ask(ctx, conn, 0, nil); err != nil {
		return err
	}
	return Each(site.Assets, site.Assets, func(i int) error { return Ask(ctx, conn, i+1, nil) })
}

// PagePaths are those of [millrace/lab/site.Page].
func PagePaths() (paths []string) {
	for _, f := range site.Page() {
		paths = append(paths, f.Path)
	}
	return paths
}

// A Clients is connections that are open at once.
type Clients struct {
	Conns []client.Conn
	Err   error // why some are missing
}

// Gather opens connections and does something on each, where that is not nil.
func Gather(ctx context.Context, d client.Dialer, n int, first func(client.Conn) error) *Clients {
	c := &Clients{}
	var mu sync.Mutex                     // guards c
	_ = Each(n, atOnce, func(int) error { // it reports none
		conn, err := d.Dial(ctx)
		if err == nil && first != nil {
			err = first(conn)
		}
		mu.Lock()
		defer mu.Unlock()
		if conn != nil {
			c.Conns = append(c.Conns, conn)
		}
		c.Err = cmp.Or(c.Err, err)
		return nil
	})
	return c
}

// Part closes the connections.
func (c *Clients) Part() {
	_ = Each(len(c.Conns), atOnce, func(i int) error { // what they have to say no longer matters
		_ = c.Conns[i].Close()
		return nil
	})
}

// h2load has h2load do a workload, after a look whether the answer is right.
func (r *Run) h2load(ctx context.Context, slot trial.TaskSlot, w Workload) (trial.TaskResult, error) {
	path := cmp.Or(strings.Join(w.Paths, ""), "/")
	base := strings.TrimSuffix(cmp.Or(slot.Instance.URL[w.Over], slot.URL), "/")
	o := w.Options(base + path)
	o.LocalAddr = nil
	d, err := client.New(o)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	if path != site.LargePath {
		err = AskOnce(ctx, d, r.Right(path))
	}
	if err != nil {
		return trial.TaskResult{}, err
	}
	got, err := h2load.Burst{
		Exe: r.Tools["h2load"], URL: base + path, Connections: w.Connections, Streams: max(1, w.Streams), HTTP1: w.Protocol != load.HTTP2, Requests: w.Requests,
		Length: slot.Length, Window: slot.Window, Log: filepath.Join(r.Env.Work, "h2load.log"),
	}.Run(ctx)
	if err == nil && path == site.LargePath {
		size, sizeErr := r.LargeSize()
		if err = sizeErr; err == nil && got.Body < w.Requests*uint64(size) {
			err = fmt.Errorf("%w: %d bytes of files of %d", ErrAnswer, got.Body, size)
		}
	}
	return trial.TaskResult{Done: got.Done, Failed: got.Failed, FirstFailure: got.FirstFailure, Values: got.Values}, err
}

// LargeSize is that of the large file of the site, in bytes.
func (r *Run) LargeSize() (int64, error) {
	info, err := os.Stat(filepath.Join(r.Site, site.LargePath))
	if err != nil {
		return 0, fmt.Errorf("looking at the large file: %w", err)
	}
	return info.Size(), nil
}

// RSSPerConnection is the metric of quiet connections.
const RSSPerConnection = "rss_per_connection_bytes"

// idle opens connections, asks once over each unless they are WebSockets, lets them
// rest, and reads what the server holds; with Over "alone", on a server of their own
// that has done nothing before: one that was loaded holds memory that it uses again.
// Count of them are opened and closed before memory is read.
func (r *Run) idle(ctx context.Context, slot trial.TaskSlot, w Workload) (got trial.TaskResult, err error) {
	if w.Over != "alone" {
		return r.hold(ctx, slot.URL, slot.Target, w)
	}
	err = r.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
		got, err = r.hold(ctx, in.URL[""], target, w)
		return err
	})
	return got, err
}

func (r *Run) hold(ctx context.Context, url string, target *record.Target, w Workload) (got trial.TaskResult, err error) {
	n := r.MostConnections(w.Connections)
	d, err := client.New(w.Options(url))
	if err != nil {
		return got, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	var first func(client.Conn) error
	if w.Protocol != load.WebSocket {
		first = func(c client.Conn) error { return Ask(ctx, c, 0, r.Right("/")) }
	}
	before := Gather(ctx, d, min(w.Count, n), first)
	before.Part()
	if err := errors.Join(before.Err, Sleep(ctx, moment)); err != nil {
		return got, err
	}
	was, err := target.Read()
	if err != nil {
		return got, err
	}
	all := Gather(ctx, d, n, first)
	defer all.Part()
	if err := errors.Join(all.Err, Sleep(ctx, w.Idle)); err != nil {
		return got, err
	}
	is, err := target.Read()
	got = trial.TaskResult{Done: uint64(n), Values: map[string]float64{"rss_bytes": float64(is.RSS), CPU: float64(is.CPU-was.CPU) / float64(n)}}
	if is.RSS > was.RSS {
		got.Values[RSSPerConnection] = float64(is.RSS-was.RSS) / float64(n)
	}
	return got, err
}

// rest asks Count times over one connection and closes that. The server may free memory and
// forget what nobody asks for, as long as Every; what it uses in the time Idle from then on
// is the figure.
func (r *Run) rest(ctx context.Context, slot trial.TaskSlot, w Workload) (got trial.TaskResult, err error) {
	d, err := client.New(w.Options(slot.URL))
	if err != nil {
		return got, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	one := Gather(ctx, d, 1, func(c client.Conn) (err error) {
		for range w.Count {
			err = errors.Join(err, Ask(ctx, c, 0, nil))
		}
		return err
	})
	one.Part()
	if err := errors.Join(one.Err, Sleep(ctx, w.Every)); err != nil {
		return got, err
	}
	was, err := slot.Target.Read()
	if err := errors.Join(err, Sleep(ctx, w.Idle)); err != nil {
		return got, err
	}
	is, err := slot.Target.Read()
	return trial.TaskResult{Done: 1, Values: map[string]float64{CPU: float64(is.CPU - was.CPU), "rss_bytes": float64(is.RSS)}}, err
}

// visitors look at a page at once, each on a connection of its own.
const visitors = 4

// page looks at the page Count times as a browser does, over HTTP/2.
func (r *Run) page(ctx context.Context, slot trial.TaskSlot, w Workload) (got trial.TaskResult, err error) {
	o := w.Options(slot.URL)
	o.Paths, o.Streams = PagePaths(), site.Assets
	d, err := client.New(o)
	if err != nil {
		return got, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	all := Gather(ctx, d, visitors, nil)
	defer all.Part()
	look := func(times int) error {
		return Each(visitors, visitors, func(i int) error {
			for range times {
				if err := View(ctx, all.Conns[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err = all.Err; err != nil {
		return got, err
	}
	for range 2 { // what is done once for each file is done then
		if err := errors.Join(look(1), Sleep(ctx, compressing/2)); err != nil {
			return got, err
		}
	}
	slot.Window(true)
	err = look(w.Count)
	slot.Window(false)
	return trial.TaskResult{Done: uint64(visitors * w.Count)}, err
}

// WatchMemory reads what a target uses every so often, until the function that it
// returns is called, which gives all readings.
func WatchMemory(target *record.Target, every time.Duration) (stop func() ([]record.Reading, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var readings []record.Reading
	var err error
	var watched sync.WaitGroup // of one goroutine, which ends with stop
	watched.Go(func() { readings, err = target.Watch(ctx, every, nil) })
	return func() ([]record.Reading, error) {
		cancel()
		watched.Wait()
		return readings, err
	}
}

// MostRSS is the largest resident memory of some readings, in bytes.
func MostRSS(readings []record.Reading) (most uint64) {
	for _, r := range readings {
		most = max(most, r.RSS)
	}
	return most
}

// Admin is a client of millrace's admin listener at "unix:/path".
func Admin(socket string, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", strings.TrimPrefix(socket, "unix:"))
		},
	}}
}
