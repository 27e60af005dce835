package dashboard

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
)

// A certificate is complained of in time, and one that was just renewed is not.
func TestCertificateTrouble(t *testing.T) {
	now, day := time.Now(), 24*time.Hour
	of := func(from, until time.Duration) Certificate {
		return Certificate{Name: "a.example", File: "a.pem", From: now.Add(from), Until: now.Add(until)}
	}
	changed := of(-day, 89*day)
	changed.Error = "cannot be used"
	for _, c := range []struct {
		name  string
		cert  Certificate
		level Level
		says  string
	}{
		{"file, fresh", of(-day, 89*day), Fine, ""},
		{"file, 13 of 90 days left", of(-77*day, 13*day), Warn, "expires in 312h0m0s"},
		{"file, 3 of 6 days left", of(-3*day, 3*day), Fine, ""},
		{"file, 1 of 6 days left", of(-5*day, day), Warn, "expires"},
		{"file, expired", of(-90*day, -time.Hour), Bad, "has expired"},
		{"file, changed and of no use", changed, Warn, "a.pem cannot be used"},
		{"by itself, before its renewal", Certificate{Name: "a", Until: now.Add(10 * day), Renewal: now.Add(day)}, Fine, ""},
		{"by itself, late", Certificate{Name: "a", Until: now.Add(3 * day), Renewal: now.Add(-20 * day)}, Warn, "should have been renewed"},
		{"by itself, none yet", Certificate{Name: "a"}, Fine, ""},
		{"by itself, refused", Certificate{Name: "a", Error: "the CA said no"}, Bad, "the CA said no"},
	} {
		if level, says := c.cert.trouble(now); level != c.level || !strings.Contains(says, c.says) {
			t.Errorf("%s: %q %q, want %q %q", c.name, level, says, c.level, c.says)
		}
	}
}

// TestCacheWarmth: a cache is warm or cold by what was asked for lately, and by all
// where nothing was.
func TestCacheWarmth(t *testing.T) {
	m := meter.New()
	c := m.Cache("/api/")
	now := time.Now()
	d := New(Source{Meters: m}, Actions{}, slog.New(slog.DiscardHandler))
	d.recorder = newRecorder(m, now)
	for i, step := range []struct {
		hits, misses uint64
		objects      int64
		want         string
	}{
		{0, 0, 0, "empty"},
		{0, 30, 30, "cold"},
		{0, 0, 30, "cold"}, // nothing lately: by all
		{90, 10, 40, "warm"},
		{100, 40, 40, "cold"},
		{400, 0, 40, "warm"},
		{0, 0, 0, "empty"},
	} {
		c.Hit.Add(0, step.hits)
		c.Miss.Add(0, step.misses)
		c.Objects.Set(step.objects)
		now = now.Add(time.Second)
		d.recorder.record(now)
		if got := d.caches().Rows[0].Values[1]; got != step.want {
			t.Errorf("step %d: the cache is %v, want %s", i, got, step.want)
		}
		for range 2 * int(window/time.Second) { // from then on it was not lately
			now = now.Add(time.Second)
			d.recorder.record(now)
		}
	}
}

// TestRefused: what was refused is shown by its reason, with the rate of late.
func TestRefused(t *testing.T) {
	m := meter.New()
	now := time.Now()
	d := New(Source{Meters: m}, Actions{}, slog.New(slog.DiscardHandler))
	m.Refused.Rate.Add(0, 100) // before Run
	d.recorder = newRecorder(m, now)
	d.recorder.record(now.Add(5 * time.Second))
	if rows := d.refused().Rows; len(rows) != 1 || rows[0].Values[1] != 100.0 || rows[0].Values[2] != 0.0 {
		t.Errorf("the rows are %v", rows)
	}
	m.Refused.Rate.Add(0, 30)
	m.HTTP3Refused.Requests.Add(0, 1)
	d.recorder.record(now.Add(6 * time.Second))
	rows := d.refused().Rows
	if len(rows) != 2 || rows[0].Values[1] != 130.0 || rows[0].Values[2] != 5.0 || !strings.HasPrefix(rows[1].Values[0].(string), "HTTP/3") {
		t.Errorf("the rows are %v", rows)
	}
}

// TestScarce: what is lost for want of room is said while it happens, with what to do, and
// not for ever.
func TestScarce(t *testing.T) {
	m := meter.New()
	now := time.Now()
	d := New(Source{Meters: m, Troubles: func() []Trouble { return []Trouble{{Bad, "a store is down", "Start it."}} }}, Actions{}, slog.New(slog.DiscardHandler))
	m.LaneEvicted.Add(0, 7) // before Run
	d.recorder = newRecorder(m, now)
	problems := func() (all []string) {
		for _, row := range d.problems(now, []Upstream{{Pool: "p", Address: "a", Healthy: true, Waiting: 2}, {Pool: "p", Address: "b", Healthy: true, Waiting: 2}}, nil, nil).Rows {
			all = append(all, string(row.Level)+" "+row.Values[0].(string)+"|"+row.Values[1].(string))
		}
		return all
	}
	has := func(all []string, part string) bool {
		return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) })
	}
	d.recorder.record(now.Add(time.Second))
	if all := problems(); len(all) != 2 || !has(all, "bad a store is down|Start it.") || !has(all, "warn 2 requests wait for the upstream p|") {
		t.Errorf("at first the problems are %q", all)
	}
	m.LaneEvicted.Add(0, 1200)
	m.LogDropped.Add(0, 1)
	m.Cache("/api/").Evicted.Add(0, 3)
	m.Images("/photos/").Shed.Add(0, 1)
	m.WebSocket("/live/").Dropped.Add("slow")
	m.Plugin("x.wasm").Timeouts.Add(0, 2)
	now = now.Add(2 * time.Second)
	d.recorder.record(now)
	all := problems()
	for _, want := range []string{
		"warn 1,200 answers were evicted from the fast lane in the last 2s|It is full: raise `lane.memory`.",
		"1 line of the access log was not written", "3 answers were evicted from the cache of /api/", "1 image of /photos/ was sent as they are",
		"1 message of /live/ was dropped", "2 calls of the plugin x.wasm failed",
	} {
		if !has(all, want) {
			t.Errorf("%q is not among %q", want, all)
		}
	}
	for range 3 * int(window/time.Second) { // from then on it was not lately
		now = now.Add(time.Second)
		d.recorder.record(now)
	}
	if all := problems(); len(all) != 2 {
		t.Errorf("later the problems are %q", all)
	}
}

// TestSleep: without clients nothing is recorded, and rates are not spread over that time.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New()
		d := New(Source{Meters: m}, Actions{}, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			d.Run(ctx)
		}()
		recorded := func() int {
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.recorder.seconds)
		}
		m.Clients.Add(1)
		time.Sleep(time.Minute + time.Millisecond)
		if n := recorded(); n != 60 {
			t.Errorf("%d seconds of a minute were recorded", n)
		}
		m.Clients.Add(-1)
		time.Sleep(time.Hour)
		if n := recorded(); n > 62 {
			t.Errorf("%d seconds were recorded, though there were no clients after 60", n)
		}
		j := m.Job("static")
		m.Clients.Add(1)
		time.Sleep(time.Millisecond)
		for range 100 {
			j.Fast.Observe(0, 200, 10, time.Millisecond)
		}
		time.Sleep(time.Second)
		recorded()
		if lately, took := d.recorder.lately(); lately.Requests() != 100 || took > 2*time.Second {
			t.Errorf("lately %d requests have come in %v", lately.Requests(), took)
		}
		stop()
		<-over
	})
}
