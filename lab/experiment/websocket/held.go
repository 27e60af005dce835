package websocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The metrics of the tasks.
const (
	perConnection = "rss_per_connection_bytes"
	lagMedian     = "lag_p50_ns"
	lagHigh       = "lag_p99_ns"
)

func metrics() []record.Metric {
	return []record.Metric{
		{Key: perConnection, Name: "resident memory per connection", Unit: "bytes", About: "of all of the server's processes, with connections that rest, above what it had after some were opened and closed"},
		{Key: lagMedian, Name: "median lag", Unit: "ns", About: "from the moment when a publication was due to its being read"},
		{Key: lagHigh, Name: "99th percentile of lag", Unit: "ns"},
	}
}

const (
	// warmUp is how many connections are opened and closed again before memory
	// is read.
	warmUp = 500
	// settle is how long a server rests between what is counted and what is not.
	settle = 200 * time.Millisecond
	// busy is how many connections are opened or closed at one moment. It is far
	// below the queue of a listening socket (net.core.somaxconn, 4096 by default),
	// which would otherwise be what breaks first.
	busy = 128
	// sources are the source addresses, each good for some 28,000 connections to
	// one server.
	sources = 4
	// messageTimeout is how long a connection, or a message, may take.
	messageTimeout = 10 * time.Second
)

// connections are those of one workload that are open.
type connections struct {
	dialer client.Dialer
	conns  []client.Conn
	failed uint64
	first  string // why the first of them failed
}

// gather opens connections, and says on each what is to be said first, where
// that is not empty; the answer is read.
func gather(ctx context.Context, url, hello string, n int) (*connections, error) {
	var next atomic.Uint32
	d, err := client.New(client.Options{
		Protocol: "websocket", URL: url, Insecure: true, Timeout: messageTimeout,
		LocalAddr: func() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+next.Add(1)%sources))} },
	})
	if err != nil {
		return nil, err
	}
	c := &connections{dialer: d}
	var mu sync.Mutex // guards c
	each(n, func(int) {
		conn, err := d.Dial(ctx)
		if err == nil && hello != "" {
			err = subscribe(ctx, conn, hello)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			c.conns = append(c.conns, conn)
		} else if c.failed++; c.failed == 1 {
			c.first = err.Error()
		}
	})
	if len(c.conns) == 0 {
		return nil, fmt.Errorf("no connection opened: %s", c.first)
	}
	return c, ctx.Err()
}

// errNoMessenger cannot happen: every WebSocket is one.
var errNoMessenger = errors.New("the connection is not a WebSocket")

// subscribe sends a client's subscription, and waits for its confirmation.
func subscribe(ctx context.Context, conn client.Conn, hello string) error {
	m, ok := conn.(client.Messenger)
	if !ok {
		return errNoMessenger
	}
	if err := m.Send(ctx, []byte(hello)); err != nil {
		return err
	}
	text, err := m.Receive(ctx, nil)
	if err == nil && !strings.Contains(string(text), `"subscribed"`) {
		err = fmt.Errorf("%s is answered with %.100q", hello, text)
	}
	return err
}

// part closes all connections.
func (c *connections) part() {
	each(len(c.conns), func(i int) { _ = c.conns[i].Close() }) // what they have to say no longer matters
	_ = c.dialer.Close()
}

// each calls do with 0 to n-1, from busy goroutines, which it waits for.
func each(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(busy, n) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	all.Wait()
}

// idleWorkload is the workload of connections on which nothing happens.
func idleWorkload(name string, n int, idleTime time.Duration, arms []string) trial.Workload {
	return trial.Workload{
		Name: name, About: fmt.Sprintf("%d connections on which nothing happens for %v", n, idleTime),
		Arms: arms, Decide: []string{perConnection},
		Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
			return hold(ctx, slot, n, idleTime)
		},
	}
}

// hold opens connections, lets them idle and reads what the server holds.
func hold(ctx context.Context, slot trial.TaskSlot, n int, idleTime time.Duration) (trial.TaskResult, error) {
	first, err := gather(ctx, slot.URL, "", min(warmUp, n))
	if err != nil {
		return trial.TaskResult{}, err
	}
	first.part()
	if err := experiment.Sleep(ctx, settle); err != nil {
		return trial.TaskResult{}, err
	}
	before, err := slot.Target.Read()
	if err != nil {
		return trial.TaskResult{}, err
	}
	slot.Window(true)
	c, err := gather(ctx, slot.URL, "", n)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.part()
	if err := experiment.Sleep(ctx, idleTime); err != nil {
		return trial.TaskResult{}, err
	}
	after, err := slot.Target.Read()
	slot.Window(false)
	values := map[string]float64{}
	if after.RSS > before.RSS {
		values[perConnection] = float64(after.RSS-before.RSS) / float64(len(c.conns))
	}
	return trial.TaskResult{Values: values, Done: uint64(len(c.conns)), Failed: c.failed, FirstFailure: c.first}, err
}
