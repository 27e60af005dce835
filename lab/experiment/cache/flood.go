package cache

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const (
	tag = "all"
	// looked is how many of the tagged answers are asked for to see whether they
	// are stored.
	looked = 1000
	// heated is how often an answer is asked for before it is purged, so that the
	// quickest way to it is the one that has to forget.
	heated = 5
	// seenWithin is how long a purge may take to show before the run ends.
	seenWithin = 5 * time.Second
	// hands is how many connections ask for new answers: enough to keep two cores
	// busy.
	hands = 4
	// floodWithin bounds one flood.
	floodWithin = 2 * time.Minute
	// watchEvery is how often memory is read.
	watchEvery = 100 * time.Millisecond
)

// flood asks for objects, each once, as fast as they come, and compares every
// answer.
func (m *measurement) flood(ctx context.Context, url string, count int, object func(i int) Object) error {
	errs := make([]error, hands)
	var all sync.WaitGroup // of so many hands, which end with their share
	for hand := range hands {
		all.Go(func() { errs[hand] = m.share(ctx, url, count*hand/hands, count*(hand+1)/hands, object) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// share asks for the objects from one number up to another.
func (m *measurement) share(ctx context.Context, url string, from, to int, object func(i int) Object) error {
	var paths []string
	for i := from; i < to; i++ {
		paths = append(paths, object(i).Target())
	}
	got, err := load.Run(ctx, load.Config{
		URL: url, Paths: paths, Connections: 1, Threads: 1, Requests: uint64(len(paths)), Duration: floodWithin, Timeout: clientTimeout, Varies: true,
	})
	if err != nil {
		return err
	}
	if n := got.Errors.Sum(); n > 0 || got.Requests < uint64(len(paths)) {
		return fmt.Errorf("%d of %d requests were answered, %d failed, first: %s", got.Requests, len(paths), n, got.Errors.First)
	}
	for i, a := range got.Answers {
		right := fnv.New64a()
		_, _ = right.Write(object(from + i).Body(m.version)) // it never fails
		if a.Path != paths[i] || a.Status != http.StatusOK || a.Hash != right.Sum64() {
			return fmt.Errorf("the answer to %s is not the API's: status %d, %d bytes", a.Path, a.Status, a.Length)
		}
	}
	return nil
}

// everNew watches the memory of a cache that is asked for ever other URLs.
func (m *measurement) everNew(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var readings []record.Reading
	var watched sync.WaitGroup // of one goroutine, which ends with stop
	watched.Go(func() { readings, _ = slot.Target.Watch(watching, watchEvery, nil) })
	err := m.flood(ctx, slot.URL, m.urls, func(i int) Object {
		return Object{Path: "/url/" + strconv.Itoa(i), Size: 1 << 10}
	})
	stop()
	watched.Wait()
	most := uint64(0)
	for _, r := range readings {
		most = max(most, r.RSS)
	}
	return trial.TaskResult{Values: map[string]float64{peak: float64(most)}, Done: uint64(m.urls)}, err
}

// purge fills a cache with tagged answers, changes the API's answers, has the tag
// forgotten and asks until the new answer comes.
func (m *measurement) purge(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	tagged := func(i int) Object {
		return Object{Path: "/tagged/" + strconv.Itoa(i), Tag: tag, Versioned: true}
	}
	if err := m.flood(ctx, slot.URL, m.tagged, tagged); err != nil {
		return trial.TaskResult{}, fmt.Errorf("filling it: %w", err)
	}
	before := m.api.Requests()
	if err := m.flood(ctx, slot.URL, looked, func(i int) Object { return tagged(i * (m.tagged / looked)) }); err != nil {
		return trial.TaskResult{}, fmt.Errorf("looking what it stores: %w", err)
	}
	values := map[string]float64{stored: 1 - float64(m.api.Requests()-before)/looked}
	o := tagged(slot.Random.IntN(m.tagged))
	c, err := dial(ctx, slot.URL, o, 1)
	if err != nil {
		return trial.TaskResult{}, err
	}
	defer c.hangUp()
	for range heated {
		if _, err := c.wave(ctx, c.conns, o.Body(m.version)); err != nil {
			return trial.TaskResult{}, err
		}
	}
	m.newVersion()
	slot.Window(true)
	began := time.Now()
	if err := forget(ctx, slot); err != nil {
		return trial.TaskResult{}, err
	}
	values[purgeTime] = float64(time.Since(began))
	for {
		got, err := ask(ctx, c.conns[0])
		since := time.Since(began)
		switch {
		case err != nil:
			return trial.TaskResult{}, fmt.Errorf("asking for %s: %w", o.Target(), err)
		case got == string(o.Body(m.version)):
			values[seen] = float64(since)
			return trial.TaskResult{Values: values, Done: 1}, nil
		case since > seenWithin:
			return trial.TaskResult{}, fmt.Errorf("%v after the purge, %s is still answered as before", seenWithin, o.Target())
		}
	}
}

// ask is the body of one answer.
func ask(ctx context.Context, conn client.Conn) (string, error) {
	var b strings.Builder
	a, err := conn.Do(ctx, 0, &b)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("status %d", a.Status)
	}
	return b.String(), err
}

// forget has a cache forget the tag: by a call of millrace's admin socket, or as
// our VCL has Varnish take it.
func forget(ctx context.Context, slot trial.TaskSlot) error {
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: clientTimeout}
	method, url, text := "BAN", slot.URL, ""
	if socket, ok := strings.CutPrefix(slot.Instance.URL[control], "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}
		method, url, text = http.MethodPost, "http://localhost/cache/purge", `{"tag":"`+tag+`"}`
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("purging: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Tag", tag)
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("purging: %w", err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it is answered with %s: %.200s", resp.Status, reply)
	}
	if err != nil {
		return fmt.Errorf("purging: %w", err)
	}
	return nil
}
