package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/load"
	"millrace/lab/load/client"
	"millrace/lab/record"
	"millrace/lab/trial"
)

// The metrics of the good client and its server under an attack.
const (
	goodFailed = "good_failed"
	goodIdle   = "good_p99_idle_ns"
	goodP99    = "good_p99_ns"
	idleRSS    = "rss_idle_bytes"
	mostRSS    = "rss_most_bytes"
	held       = "attackers_held"
	ended      = "attackers_ended"
)

func attackMetrics() []record.Metric {
	return []record.Metric{
		{Key: goodFailed, Name: "failures of the good client", About: "requests without the right answer, or without any within 10 s"},
		{Key: goodIdle, Name: "99th percentile of the good client before the attack", Unit: "ns"},
		{Key: goodP99, Name: "99th percentile of the good client under attack", Unit: "ns", About: "from the moment when a request is due, with its connection, to the end of its answer"},
		{Key: idleRSS, Name: "resident memory before the attack", Unit: "bytes"},
		{Key: mostRSS, Name: "resident memory at most under attack", Unit: "bytes"},
		{Key: held, Name: "uploads, answers or streams held at the end"},
		{Key: ended, Name: "of them ended by the server"},
	}
}

const (
	// every is how often the good client asks, each time on a new connection.
	every = 20 * time.Millisecond
	// goodTimeout is how long it waits for a connection, and for an answer.
	goodTimeout = 10 * time.Second
	// allowance is what its 99th percentile may have beyond twice that of an idle server.
	allowance = 20 * time.Millisecond
	// besieged is how long an attack lasts before the good client is looked at.
	besieged = 2 * time.Second
	// watchEvery is how often memory is read.
	watchEvery = 100 * time.Millisecond
)

// An attack is what becomes of a good client meanwhile.
type attack struct {
	name, about string
	path        string
	client.AbuseConfig
}

func (m *measurement) attacks() []experiment.Row {
	uploads := client.AbuseConfig{Kind: client.Uploads, Connections: 500, Length: 8192, Piece: 10, Every: 5 * time.Second}
	readers := client.AbuseConfig{Kind: client.Readers, Connections: 300, Piece: 1 << 10, Every: time.Second}
	streams := client.AbuseConfig{Kind: client.Streams, Connections: 3, Streams: 100, Length: 8192, Piece: 10, Every: 5 * time.Second}
	var all []experiment.Row
	for _, a := range []attack{
		{"attack-uploads", "500 slow POSTs: 8 KiB are promised and 10 bytes come every 5 s (slowhttptest -c 500 -B -i 5 -s 8192 -t POST -x 10)", upload, uploads},
		{"attack-readers", "300 clients that ask for 20 MB and take 1 KiB a second", "/20000000", readers},
		{"attack-streams", "three HTTP/2 connections with 100 POST requests each that do not end", upload, streams},
	} {
		a.Again = time.Second
		all = append(all, experiment.Row{
			Name: a.name, Figure: "99th percentile of the good client", Metric: goodP99, Ours: millrace, Arms: proxies(),
			// After everything else: it is on servers of their own.
			Connections: many + 1, Quick: true,
			About: a.about + fmt.Sprintf(", beside a client that asks for 501 bytes every %v, each time on a new connection", every),
			Task: func(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
				return m.besiege(ctx, slot, a)
			},
		})
	}
	return all
}

// besiege measures an attack on a server of its own.
func (m *measurement) besiege(ctx context.Context, slot trial.TaskSlot, a attack) (got trial.TaskResult, err error) {
	idle, attacked := 3*time.Second, 6*time.Second
	if m.quick {
		idle, attacked = 2*time.Second, 4*time.Second
	}
	err = m.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
		a.URL = strings.TrimSuffix(in.URL[""], "/") + a.path
		if a.Kind == client.Streams {
			a.URL = strings.TrimSuffix(in.URL[secure], "/") + a.path
		}
		var first error
		if got, first, err = a.watch(ctx, in.URL[""], target, idle, attacked); first != nil {
			m.Note("%s, %s: the first failure of the good client: %v", a.name, slot.Arm, first)
		}
		return err
	})
	return got, err
}

// watch looks at a good client before and during an attack. first is why it failed
// during that, if it did.
func (a attack) watch(ctx context.Context, url string, target *record.Target, idle, attacked time.Duration) (got trial.TaskResult, first, err error) {
	g, err := newGood(url)
	if err != nil {
		return got, nil, err
	}
	defer g.close()
	before := g.visit(ctx, idle)
	unattacked, err := target.Read()
	if err == nil && before.failed > 0 {
		err = fmt.Errorf("before the attack: %w", before.first)
	}
	if err != nil {
		return got, nil, err
	}
	running, err := client.BeginAttack(a.AbuseConfig)
	if err != nil {
		return got, nil, err
	}
	watching, stop := context.WithCancel(ctx)
	var readings []record.Reading
	var watched sync.WaitGroup // of one goroutine, which ends with stop
	watched.Go(func() { readings, _ = target.Watch(watching, watchEvery, nil) })
	err = experiment.Sleep(ctx, besieged)
	during := g.visit(ctx, attacked)
	counts := running.Stop()
	stop()
	watched.Wait()
	if err != nil || len(readings) == 0 {
		return got, nil, err
	}
	most := slices.MaxFunc(readings, func(a, b record.Reading) int { return int(a.RSS) - int(b.RSS) })
	used := readings[len(readings)-1].CPU - unattacked.CPU
	return trial.TaskResult{Done: during.asked, Values: map[string]float64{
		goodFailed: float64(during.failed), goodIdle: float64(before.times.Quantile(0.99)), goodP99: float64(during.times.Quantile(0.99)),
		idleRSS: float64(unattacked.RSS), mostRSS: float64(most.RSS), held: float64(counts.Held), ended: float64(counts.Ended + counts.Refused),
		experiment.CPU:        float64(used) / float64(during.asked), // of this server, not of the one that the slot is about
		"requests_per_second": float64(during.asked-during.failed) / attacked.Seconds(),
	}}, during.first, nil
}

// A good is the client that everybody else is in the way of.
type good struct {
	dialer client.Dialer
	want   []byte
}

func newGood(url string) (*good, error) {
	d, err := client.New(client.Options{Protocol: "http1", URL: strings.TrimSuffix(url, "/") + small, Timeout: goodTimeout})
	return &good{dialer: d, want: content(sizeOf(small))}, err
}

func (g *good) close() { _ = g.dialer.Close() } // what it has to say no longer matters

// A visit is what became of its requests.
type visit struct {
	asked, failed uint64
	first         error // the first failure
	times         load.Histogram
}

// visit asks by the clock, whatever becomes of the requests before, and waits for
// all of them. One that fails counts with the time that it took.
func (g *good) visit(ctx context.Context, length time.Duration) (v visit) {
	var mu sync.Mutex // guards v
	var all sync.WaitGroup
	began := time.Now()
	for due := time.Duration(0); due < length && ctx.Err() == nil; due += every {
		if experiment.Sleep(ctx, due-time.Since(began)) != nil {
			break
		}
		all.Go(func() { // ends with its answer, or goodTimeout
			err := ask(ctx, g.dialer, g.want)
			took := time.Since(began) - due
			mu.Lock()
			defer mu.Unlock()
			v.asked++
			v.times.Record(took)
			if err != nil {
				if v.failed++; v.failed == 1 {
					v.first = err
				}
			}
		})
	}
	all.Wait()
	return v
}
