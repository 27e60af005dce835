package websocket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/trial"
)

const (
	channel = "bench"
	// data is how many bytes a publication has.
	data = 100
	// marker begins what is looked for in a publication, whatever a server writes
	// around it: marker, number, "@", time, "@".
	marker = "mrb@"
	// before is how many publications come before what is counted: what is done
	// for the first time is done then.
	before = 2
)

// published is the workload of something that is sent to many.
func published(subscribers int, every time.Duration, count int) trial.Workload {
	return trial.Workload{
		Name:  fmt.Sprintf("publish to %d", subscribers),
		About: fmt.Sprintf("%d publications of %d bytes, one every %v, each to %d subscribers", count, data, every, subscribers),
		Arms:  []string{gws + channels, millrace + channels, "coder" + channels, "gorilla" + channels}, Decide: []string{"cpu_ns", lagHigh},
		Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
			return broadcast(ctx, slot, subscribers, every, count)
		},
	}
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

// broadcast opens subscribers, publishes, and waits until all have everything.
func broadcast(ctx context.Context, slot trial.TaskSlot, n int, every time.Duration, count int) (trial.TaskResult, error) {
	hello := ""
	if strings.HasPrefix(slot.Arm, millrace) {
		hello = `{"subscribe":"` + channel + `"}`
	}
	c, err := gather(ctx, slot.URL, hello, n)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.part()
	if err := experiment.Sleep(ctx, settle); err != nil {
		return trial.TaskResult{}, err
	}
	d := &delivery{began: time.Now(), count: count, first: c.first}
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup // of one goroutine for each subscriber, which ends with the last publication or stop
	for _, conn := range c.conns {
		if m, ok := conn.(client.Messenger); ok {
			all.Go(func() { d.receive(receiving, m) })
		}
	}
	err = d.publish(ctx, slot, every)
	late := time.AfterFunc(messageTimeout, stop) // what has not come then is lost
	all.Wait()
	late.Stop()
	slot.Window(false)
	if err != nil {
		return trial.TaskResult{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	due := uint64(n) * uint64(count)
	return trial.TaskResult{
		Values: map[string]float64{lagMedian: float64(d.lags.Quantile(0.5)), lagHigh: float64(d.lags.Quantile(0.99))},
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
		if err := post(ctx, poster, slot.Instance.URL[publish], text); err != nil {
			return err
		}
	}
	return nil
}

func post(ctx context.Context, poster *http.Client, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := poster.Do(req)
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err == nil && (answer.StatusCode < 200 || answer.StatusCode > 299) {
		err = fmt.Errorf("the server answered %s: %.80q", answer.Status, text)
	}
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
}

// receive counts what comes to one subscriber, until the last publication.
func (d *delivery) receive(ctx context.Context, m client.Messenger) {
	var message []byte
	for next := 0; next < before+d.count; {
		var err error
		if message, err = m.Receive(ctx, message); err != nil {
			d.mu.Lock()
			if d.first == "" {
				d.first = err.Error()
			}
			d.mu.Unlock()
			return
		}
		number, due, ok := parse(message)
		if !ok {
			continue // not a publication
		}
		d.mu.Lock()
		switch {
		case number < next:
			d.doubled++
		case number >= before:
			d.received++
			d.lags.Record(time.Since(d.began) - due)
		}
		d.mu.Unlock()
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
