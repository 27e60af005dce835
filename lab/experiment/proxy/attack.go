package proxy

import (
	"context"
	"errors"
	"fmt"
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

// attacks are what may become of others meanwhile.
func attacks() map[string]client.AbuseConfig {
	return map[string]client.AbuseConfig{
		"uploads": {Kind: client.Uploads, Connections: 500, Length: 8192, Piece: 10, Every: 5 * time.Second, Again: time.Second},
		"readers": {Kind: client.Readers, Connections: 300, Piece: 1 << 10, Every: time.Second, Again: time.Second},
		"streams": {Kind: client.Streams, Connections: 3, Streams: 100, Length: 8192, Piece: 10, Every: 5 * time.Second, Again: time.Second},
	}
}

// besiege measures an attack on a server of its own.
func besiege(ctx context.Context, r *experiment.Run, slot trial.TaskSlot, w experiment.Workload) (got trial.TaskResult, err error) {
	a := attacks()[w.Over]
	err = r.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
		at := in.URL[""]
		if a.Kind == client.Streams {
			at = in.URL["secure"]
		}
		a.URL = strings.TrimSuffix(at, "/") + w.Paths[0]
		var first error
		if got, first, err = watch(ctx, a, in.URL[""], target, w.Idle, w.Every); first != nil {
			r.Note("%s, %s: the first failure of the good client: %v", w.Name, slot.Arm, first)
		}
		return err
	})
	return got, err
}

// watch looks at a good client before and during an attack. first is why it failed
// during that, if it did.
func watch(ctx context.Context, a client.AbuseConfig, url string, target *record.Target, idle, attacked time.Duration) (got trial.TaskResult, first, err error) {
	good, err := client.New(client.Options{Protocol: "http1", URL: strings.TrimSuffix(url, "/") + small, Timeout: goodTimeout})
	if err != nil {
		return got, nil, err
	}
	defer good.Close() //nolint:errcheck // what it has to say no longer matters
	before := visits(ctx, good, idle)
	unattacked, err := target.Read()
	if err == nil && before.failed > 0 {
		err = fmt.Errorf("before the attack: %w", before.first)
	}
	if err != nil {
		return got, nil, err
	}
	running, err := client.BeginAttack(a)
	if err != nil {
		return got, nil, err
	}
	watched := experiment.WatchMemory(target, watchEvery)
	err = experiment.Sleep(ctx, besieged)
	during := visits(ctx, good, attacked)
	counts := running.Stop()
	readings, watchErr := watched()
	if err = errors.Join(err, watchErr); err != nil || len(readings) == 0 {
		return got, nil, err
	}
	used := readings[len(readings)-1].CPU - unattacked.CPU
	return trial.TaskResult{Done: during.asked, Values: map[string]float64{
		goodFailed: float64(during.failed), goodIdle: float64(before.times.Quantile(0.99)), goodP99: float64(during.times.Quantile(0.99)),
		idleRSS: float64(unattacked.RSS), mostRSS: float64(experiment.MostRSS(readings)), held: float64(counts.Held), ended: float64(counts.Ended + counts.Refused),
		experiment.CPU:        float64(used) / float64(during.asked), // of this server, not of the one that the slot is about
		"requests_per_second": float64(during.asked-during.failed) / attacked.Seconds(),
	}}, during.first, nil
}

// A visit is what became of the good client's requests.
type visit struct {
	asked, failed uint64
	first         error // the first failure
	times         load.Histogram
}

// visits asks by the clock, whatever becomes of the requests before, and waits for
// all of them. One that fails counts with the time that it took.
func visits(ctx context.Context, d client.Dialer, length time.Duration) (v visit) {
	var mu sync.Mutex // guards v
	var all sync.WaitGroup
	began := time.Now()
	for due := time.Duration(0); due < length && ctx.Err() == nil; due += every {
		if experiment.Sleep(ctx, due-time.Since(began)) != nil {
			break
		}
		all.Go(func() { // ends with its answer, or goodTimeout
			err := experiment.AskOnce(ctx, d, content(small))
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

// goodClient is what became of a good client of one server under attack.
type goodClient struct {
	failed    float64 // in all rounds
	idle, p99 float64 // medians, ns
	rounds    int
}

// goodClientOf is false where the server was not attacked.
func goodClientOf(res *record.Result, workload, arm string) (goodClient, bool) {
	s := goodClient{idle: experiment.MedianOf(res, arm, workload, goodIdle), p99: experiment.MedianOf(res, arm, workload, goodP99)}
	for _, sample := range res.Samples {
		if sample.Arm == arm && sample.Workload == workload {
			s.failed += sample.Values[goodFailed]
			s.rounds++
		}
	}
	return s, s.rounds > 0
}

func (s goodClient) most() float64 { return 2*s.idle + float64(allowance) }

// why is why the bar was not reached; empty: it was.
func (s goodClient) why() string {
	var why []string
	if s.failed > 0 {
		why = append(why, fmt.Sprintf("%.0f failed", s.failed))
	}
	if s.p99 > s.most() {
		why = append(why, "too slow")
	}
	return strings.Join(why, ", ")
}

// report adds what becomes of a good client under each attack, of every server, and
// under which of them millrace's is well.
func report(res *record.Result, chosen []experiment.Workload) {
	t := record.Table{
		Title: "A good client under attack", Lead: true,
		About: fmt.Sprintf("No failure in any round, and a 99th percentile of at most twice that of the idle server and %s, is what millrace must reach. "+
			"Medians of the rounds, failures of all of them together, memory as resident.", experiment.Duration(float64(allowance))),
		Columns: []string{"attack", "server", "failures", "idle", "under attack", "must be", "", "memory idle", "at most", "attackers held", "ended"},
	}
	var well, lost []string
	for _, w := range chosen {
		for _, arm := range w.Arms {
			s, ok := goodClientOf(res, w.Name, arm)
			if !ok || w.Metric != goodP99 {
				continue
			}
			reached := "reached"
			if why := s.why(); why != "" {
				reached = "not reached: " + why
			}
			median := func(key string) float64 { return experiment.MedianOf(res, arm, w.Name, key) }
			t.Rows = append(t.Rows, []string{
				w.Name, arm, fmt.Sprintf("%.0f", s.failed), experiment.Duration(s.idle), experiment.Duration(s.p99), "0 failures, ≤ " + experiment.Duration(s.most()), reached,
				experiment.Bytes(median(idleRSS)), experiment.Bytes(median(mostRSS)), fmt.Sprintf("%.0f", median(held)), fmt.Sprintf("%.0f", median(ended)),
			})
			switch {
			case arm != "millrace":
			case s.why() == "":
				well = append(well, "“"+w.Name+"”")
			default:
				lost = append(lost, fmt.Sprintf("“%s” (%s)", w.Name, s.why()))
			}
		}
	}
	if len(t.Rows) == 0 {
		return
	}
	res.Tables = append(res.Tables, t)
	parts := []string{res.Answer}
	if len(well) > 0 {
		parts = append(parts, "a good client is well under "+experiment.List(well))
	}
	if len(lost) > 0 {
		parts = append(parts, "a good client suffers under "+experiment.List(lost))
	}
	res.Answer = strings.TrimPrefix(strings.Join(parts, "; "), "; ")
}
