// Package websocket is what of the experiments websocket and ws-echo-ramp is code:
// publications that are counted for every subscriber, and steps of ever more
// connections that other processes open.
package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	// data is how many bytes a publication has.
	data = 100
	// marker begins what is looked for in a publication, whatever a server writes
	// around it: marker, number, "@", time, "@".
	marker = "mrb@"
	// before is how many publications come before what is counted: what is done
	// for the first time is done then.
	before = 2
	// settle is how long a server rests between what is counted and what is not.
	settle = 200 * time.Millisecond
	// messageTimeout is how long a connection, or a message, may take.
	messageTimeout = 10 * time.Second
	// subscription is what millrace wants to hear first.
	subscription = `{"subscribe":"bench"}`
)

// Hooks are those of the experiment websocket.
func Hooks(*experiment.Run) experiment.Hooks {
	return experiment.Hooks{Tasks: map[string]experiment.Task{"publish": publish}}
}

// errNoMessenger cannot happen: every WebSocket is one.
var errNoMessenger = errors.New("the connection is not a WebSocket")

// subscribe sends a client's subscription, and waits for its confirmation.
func subscribe(ctx context.Context, conn client.Conn) error {
	m, ok := conn.(client.Messenger)
	if !ok {
		return errNoMessenger
	}
	if err := m.Send(ctx, []byte(subscription)); err != nil {
		return err
	}
	text, err := m.Receive(ctx, nil)
	if err == nil && !strings.Contains(string(text), `"subscribed"`) {
		err = fmt.Errorf("%s is answered with %.100q", subscription, text)
	}
	return err
}

// A delivery is everything that subscribers receive.
type delivery struct {
	began time.Time
	count int

	mu       sync.Mutex // guards what follows
	lags     load.Histogram
	received uint64
	doubled  uint64
	first    string // the first failure
}

// publish opens subscribers, publishes, and waits until all have everything.
func publish(ctx context.Context, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	w.Timeout = messageTimeout
	dialer, err := client.New(w.Options(slot.URL))
	if err != nil {
		return got, err
	}
	defer dialer.Close() //nolint:errcheck // what it has to say no longer matters
	var first func(client.Conn) error
	if strings.HasPrefix(slot.Arm, "millrace") {
		first = func(c client.Conn) error { return subscribe(ctx, c) }
	}
	all := experiment.Gather(ctx, dialer, w.Connections, first)
	defer all.Part()
	if err := errors.Join(all.Err, experiment.Sleep(ctx, settle)); err != nil {
		return got, err
	}
	d := &delivery{began: time.Now(), count: w.Count}
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	var subscribers sync.WaitGroup // of one goroutine for each, which ends with the last publication or stop
	for _, conn := range all.Conns {
		if m, ok := conn.(client.Messenger); ok {
			subscribers.Go(func() { d.receive(receiving, m) })
		}
	}
	err = d.publish(ctx, slot, w.Every)
	late := time.AfterFunc(messageTimeout, stop) // what has not come then is lost
	subscribers.Wait()
	late.Stop()
	slot.Window(false)
	if err != nil {
		return got, err
	}
	due := uint64(w.Connections) * uint64(w.Count)
	return trial.TaskResult{
		Values: map[string]float64{"lag_p50_ns": float64(d.lags.Quantile(0.5)), "lag_p99_ns": float64(d.lags.Quantile(0.99))},
		Done:   d.received, Failed: due - min(due, d.received) + d.doubled, FirstFailure: d.first,
	}, nil
}

// publish posts all publications, each when it is due: if one takes long, the
// next ones are late, and say so by their time.
func (d *delivery) publish(ctx context.Context, slot trial.TaskSlot, every time.Duration) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	poster := &http.Client{Transport: transport, Timeout: messageTimeout}
	start := time.Since(d.began)
	for i := range before + d.count {
		due := start + time.Duration(i)*every
		if err := experiment.Sleep(ctx, due-time.Since(d.began)); err != nil {
			return err
		}
		if i == before {
			slot.Window(true)
		}
		text := fmt.Sprintf(`"%s%d@%d@`, marker, i, due)
		text += strings.Repeat("x", max(0, data-len(text)-1)) + `"` // a JSON string, which is text as well
		if err := post(ctx, poster, slot.Instance.URL["publish"], text); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	return nil
}

func post(ctx context.Context, poster *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := poster.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && (answer.StatusCode < 200 || answer.StatusCode > 299) {
		err = fmt.Errorf("the server answered %s: %.80q", answer.Status, text)
	}
	return err
}

// receive counts what comes to one subscriber, until the last publication.
func (d *delivery) receive(ctx context.Context, m client.Messenger) {
	var message []byte
	for next := 0; next < before+d.count; {
		var err error
		message, err = m.Receive(ctx, message)
		number, due, ok := parse(message)
		if err == nil && !ok {
			continue // not a publication
		}
		d.mu.Lock()
		switch {
		case err != nil:
			if d.first == "" {
				d.first = err.Error()
			}
		case number < next:
			d.doubled++
		case number >= before:
			d.received++
			d.lags.Record(time.Since(d.began) - due)
		}
		d.mu.Unlock()
		if err != nil {
			return
		}
		next = max(next, number+1)
	}
}

// parse finds the number and the time of a publication.
func parse(message []byte) (number int, due time.Duration, ok bool) {
	_, rest, ok := bytes.Cut(message, []byte(marker))
	if !ok {
		return 0, 0, false
	}
	first, rest, ok1 := bytes.Cut(rest, []byte("@"))
	second, _, ok2 := bytes.Cut(rest, []byte("@"))
	number, err1 := strconv.Atoi(string(first))
	ns, err2 := strconv.ParseInt(string(second), 10, 64)
	return number, time.Duration(ns), ok1 && ok2 && err1 == nil && err2 == nil
}
