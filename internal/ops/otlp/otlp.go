// Package otlp sends spans to a collector: OTLP 1.x over HTTP, in protobuf.
//
// Requests never wait for it. What has ended is put into a queue of bounded length;
// one goroutine makes batches of it and posts them, and while the collector is
// slow or down, what finds no room is dropped and counted.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace/internal/observe/meter"
	"millrace/internal/observe/trace"
)

const (
	defaultQueue   = 2048
	defaultTimeout = 10 * time.Second

	// batchMost is how many requests are sent at once, and batchDelay how long one
	// may wait for others: a page and its assets come in one batch.
	batchMost  = 256
	batchDelay = 2 * time.Second

	// A batch that fails is sent again after firstPause, then twice that, up to
	// lastPause or to what the collector asks for, until retryLimit is over.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	retryLimit = time.Minute

	// closeTimeout is how long Close may take to send what waits.
	closeTimeout = 3 * time.Second

	// reportEvery bounds how often a failing collector is reported.
	reportEvery = time.Minute

	maxAnswer = 64 << 10 // bytes of a collector's answer
)

// Exporter sends spans. It must be closed.
type Exporter struct {
	client   *http.Client
	url      string
	header   http.Header
	resource resource
	timeout  time.Duration
	counters *meter.Tracing
	report   func(error)

	queue   chan *trace.Trace
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed by the sender
	closing sync.Once
	giveUp  context.CancelFunc
	ctx     context.Context // of what is sent

	reported time.Time // the sender's alone
}

// Open starts the exporter's goroutine, which ends with Close, and connects to
// nobody yet. version is that of this program. report is told why spans could not
// be sent, at most once a minute, from that goroutine.
func Open(o trace.Options, version string, m *meter.Tracing, report func(error)) (*Exporter, error) {
	url, err := o.Endpoint()
	if err != nil {
		return nil, fmt.Errorf("tracing.otlp: %w", err)
	}
	e := &Exporter{
		url: url, header: http.Header{}, timeout: o.Timeout, counters: m, report: report,
		resource: newResource(o.Service, version),
		quit:     make(chan struct{}), done: make(chan struct{}),
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               nil, // the operator has named the collector
				MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
				MaxResponseHeaderBytes: maxAnswer,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if e.timeout <= 0 {
		e.timeout = defaultTimeout
	}
	size := o.Queue
	if size <= 0 {
		size = defaultQueue
	}
	e.queue = make(chan *trace.Trace, size)
	for name, value := range o.Headers {
		e.header.Set(name, value)
	}
	e.header.Set("Content-Type", "application/x-protobuf")
	e.header.Set("Content-Encoding", "gzip")
	e.header.Set("User-Agent", "millrace/"+version)
	e.ctx, e.giveUp = context.WithCancel(context.Background())
	go e.run() // Close waits for it
	return e, nil
}

// Add has the spans of a request sent. It never waits: without room they are
// dropped and counted.
func (e *Exporter) Add(t *trace.Trace) {
	select {
	case e.queue <- t:
	default:
		e.counters.Dropped.Add(0, 1)
	}
}

// Close sends what waits, for at most three seconds; the rest is dropped.
func (e *Exporter) Close() error {
	e.closing.Do(func() { close(e.quit) })
	late := time.AfterFunc(closeTimeout, e.giveUp)
	defer late.Stop()
	<-e.done
	e.giveUp()
	e.client.CloseIdleConnections()
	return nil
}

// run sends batches until Close.
func (e *Exporter) run() {
	defer close(e.done)
	batch := make([]*trace.Trace, 0, batchMost)
	delay := time.NewTimer(batchDelay)
	defer delay.Stop()
	for {
		select {
		case t := <-e.queue:
			batch = append(batch, t)
		case <-e.quit:
			e.flush(batch)
			return
		}
		delay.Reset(batchDelay)
	collect:
		for len(batch) < batchMost {
			select {
			case t := <-e.queue:
				batch = append(batch, t)
			case <-delay.C:
				break collect
			case <-e.quit:
				e.flush(batch)
				return
			}
		}
		e.send(batch)
		clear(batch)
		batch = batch[:0]
	}
}

// flush sends what is still there at the end.
func (e *Exporter) flush(batch []*trace.Trace) {
	for {
		select {
		case t := <-e.queue:
			if batch = append(batch, t); len(batch) < batchMost {
				continue
			}
		default:
			if len(batch) == 0 {
				return
			}
		}
		e.send(batch)
		batch = batch[:0]
	}
}

// refusal is an answer of the collector that is no success.
type refusal struct {
	status int
	after  time.Duration // it asks for; 0: nothing
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("it answers %d %s", r.status, http.StatusText(r.status))
}

// again reports whether the same may be sent later (OTLP, "Failures").
func (r *refusal) again() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// send sends a batch, again and again where that may help.
func (e *Exporter) send(batch []*trace.Trace) {
	body, err := e.resource.encode(batch)
	if err != nil {
		e.lose(batch, err)
		return
	}
	began, pause := time.Now(), firstPause
	for {
		rejected, err := e.post(body)
		if err == nil {
			e.counters.Sent.Add(0, uint64(len(batch)))
			if rejected > 0 {
				e.counters.Rejected.Add(0, uint64(rejected))
				e.fail(fmt.Errorf("it threw %d spans away", rejected))
			}
			return
		}
		wait := pause
		if r, ok := errors.AsType[*refusal](err); ok {
			if !r.again() {
				e.lose(batch, err)
				return
			}
			wait = max(wait, min(r.after, lastPause))
		}
		e.fail(err)
		if time.Since(began)+wait > retryLimit || !e.pause(wait) {
			e.lose(batch, err)
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// pause reports whether the time has passed before Close.
func (e *Exporter) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-e.quit:
		return false
	}
}

func (e *Exporter) lose(batch []*trace.Trace, err error) {
	e.counters.Failed.Add(0, uint64(len(batch)))
	e.fail(err)
}

// fail reports an error unless one was reported lately.
func (e *Exporter) fail(err error) {
	if now := time.Now(); e.reported.IsZero() || now.Sub(e.reported) >= reportEvery {
		e.reported = now
		e.report(fmt.Errorf("sending spans to %s: %w", e.url, err))
	}
}

// post sends a body once, and returns how many spans the collector threw away.
func (e *Exporter) post(body []byte) (rejected int64, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header = e.header
	resp, err := e.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		no := &refusal{status: resp.StatusCode}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			no.after = time.Duration(min(n, int(lastPause/time.Second))) * time.Second
		}
		return 0, no
	case err != nil:
		return 0, err
	}
	return rejectedSpans(answer), nil
}

// rejectedSpans reads ExportTraceServiceResponse: partial_success (1) with
// rejected_spans (1). What is not understood says nothing.
func rejectedSpans(answer []byte) int64 {
	partial, _ := field(answer, 1, protowire.BytesType)
	inner, n := protowire.ConsumeBytes(partial)
	if n < 0 {
		return 0
	}
	number, _ := field(inner, 1, protowire.VarintType)
	v, n := protowire.ConsumeVarint(number)
	if n < 0 || int64(v) < 0 {
		return 0
	}
	return int64(v)
}

// field is the rest of a message from a field's value on.
func field(b []byte, number protowire.Number, kind protowire.Type) ([]byte, bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		if b = b[n:]; num == number && typ == kind {
			return b, true
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return nil, false
		}
		b = b[n:]
	}
	return nil, false
}

// encode is the body of a request with the spans of a batch.
func (r *resource) encode(batch []*trace.Trace) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(r.data(batch))
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("compressing spans: %w", err)
	}
	return b.Bytes(), nil
}
