package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

// clientTimeout is how long a connection, or an answer, may take.
const clientTimeout = 20 * time.Second

// errAnswer is an answer that is not the application's.
var errAnswer = errors.New("a wrong answer")

// content is what the application answers with.
func content(n int) []byte {
	const pattern = "0123456789abcdef"
	return bytes.Repeat([]byte(pattern), n/len(pattern)+1)[:n]
}

// sizeOf is how many bytes the application answers a path with.
func sizeOf(path string) int {
	n, err := strconv.Atoi(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return -1
	}
	return n
}

// ask asks for the first path of a dialer on a connection of its own, and compares
// the answer.
func ask(ctx context.Context, d client.Dialer, want []byte) error {
	conn, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // what it has to say no longer matters
	var body bytes.Buffer
	a, err := conn.Do(ctx, 0, &body)
	switch {
	case err != nil:
		return err
	case a.Status != http.StatusOK:
		return fmt.Errorf("%w: status %d", errAnswer, a.Status)
	case !bytes.Equal(body.Bytes(), want):
		return fmt.Errorf("%w: %d bytes, %.80q", errAnswer, body.Len(), body.Bytes())
	}
	return nil
}

// press looks whether the answer is right and has h2load ask for it.
func (m *measurement) press(ctx context.Context, slot trial.TaskSlot, b experiment.H2loadBurst) (trial.TaskResult, error) {
	protocol := "http2"
	if b.HTTP1 {
		protocol = "http1"
	}
	b.Exe, b.URL = m.h2load, strings.TrimSuffix(slot.Instance.URL[secure], "/")+small
	d, err := client.New(client.Options{Protocol: protocol, URL: b.URL, Insecure: true, Timeout: clientTimeout})
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	if err := ask(ctx, d, content(sizeOf(small))); err != nil {
		return trial.TaskResult{}, err
	}
	b.Log = filepath.Join(m.Env.Work, "h2load.log")
	got, _, err := b.Run(ctx, slot)
	return got, err
}

const (
	// openings are how many WebSockets are opened in a slot, and openingsQuick in a
	// quick run.
	openings, openingsQuick = 3000, 1000
	// opening is how many are opened at one moment.
	opening = 50
	// settle is how long a server may take to end what was closed.
	settle = 200 * time.Millisecond
	// sources are the source addresses, each good for some 28,000 connections to
	// one server.
	sources = 4
)

// opened completes a row of WebSockets that are opened, used for one message and
// closed.
func (m *measurement) opened(r experiment.Row) experiment.Row {
	n := openings
	if m.quick {
		n = openingsQuick
	}
	r.Figure, r.Metric, r.Connections = "CPU per opening", experiment.CPU, opening
	r.About += fmt.Sprintf(", sending one message, and its end; %d, of them %d at a time", n, opening)
	r.Task = func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
		return open(ctx, slot, n)
	}
	return r
}

// open opens WebSockets.
func open(ctx context.Context, slot trial.TaskSlot, n int) (trial.TaskResult, error) {
	var mu sync.Mutex // guards next and times
	var next int
	var times load.Histogram
	d, err := client.New(client.Options{
		Protocol: "websocket", URL: "ws" + strings.TrimPrefix(strings.TrimSuffix(slot.URL, "/"), "http") + echoPath, Timeout: clientTimeout,
		LocalAddr: func() net.Addr {
			mu.Lock()
			defer mu.Unlock()
			next++
			return &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+next%sources))}
		},
	})
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer d.Close() //nolint:errcheck // what it has to say no longer matters
	one := func(int) error {
		began := time.Now()
		conn, err := d.Dial(ctx)
		if err != nil {
			return err
		}
		took := time.Since(began)
		_, err = conn.Do(ctx, 0, nil)
		mu.Lock()
		times.Record(took)
		mu.Unlock()
		return errors.Join(err, conn.Close())
	}
	if err := experiment.Each(opening, opening, one); err != nil { // what is done for the first time is done then
		return trial.TaskResult{}, err
	}
	times = load.Histogram{}
	slot.Window(true)
	began := time.Now()
	err = experiment.Each(n, opening, one)
	took := time.Since(began)
	if err == nil {
		err = experiment.Sleep(ctx, settle)
	}
	slot.Window(false)
	return trial.TaskResult{Done: uint64(n), Values: map[string]float64{
		"requests_per_second": float64(n) / took.Seconds(), "latency_p99_ns": float64(times.Quantile(0.99)),
	}}, err
}
