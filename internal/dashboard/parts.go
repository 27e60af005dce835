package dashboard

import (
	"fmt"
	"strings"
	"time"
)

// caches are those of the routes. What the fast lane answered counts as a hit.
func (d *Dashboard) caches() Panel {
	p := Panel{
		ID: "cache", Title: "Cache",
		Note: "Hits are what the upstream was not asked for, the fast lane's answers among them; a cache is warm once nine of ten lately were hits.",
		Columns: []Column{
			{Key: "route", Name: "route"},
			{Key: "state", Name: "state"},
			{Key: "hit_ratio", Name: "hits", Unit: Share},
			{Key: "fast_hits", Name: "of them fast", Unit: Count},
			{Key: "hits", Name: "hits", Unit: Count},
			{Key: "stale", Name: "stale", Unit: Count},
			{Key: "misses", Name: "misses", Unit: Count},
			{Key: "passed", Name: "passed on", Unit: Count},
			{Key: "errors", Name: "errors", Unit: Count},
			{Key: "upstream_p99_seconds", Name: "upstream p99", Unit: Seconds},
			{Key: "objects", Name: "objects", Unit: Count},
			{Key: "memory_bytes", Name: "memory", Unit: Bytes},
			{Key: "disk_bytes", Name: "disk", Unit: Bytes},
			{Key: "evicted", Name: "evicted", Unit: Count},
			{Key: "purges", Name: "purges", Unit: Count},
		},
	}
	fast, lately := map[string]float64{}, map[string][2]float64{}
	for _, j := range d.source.Meters.Jobs() {
		if j.Name != "cache" {
			continue
		}
		name := j.Route
		if j.Site != "*" {
			name = j.Site + j.Route
		}
		all, now := d.recorder.of(j, 0)
		fast[name] = float64(all.Requests())
		sum := float64(now.Requests())
		for lane := 1; lane < len(laneNames); lane++ {
			_, now := d.recorder.of(j, lane)
			sum += float64(now.Requests())
		}
		lately[name] = [2]float64{float64(now.Requests()), sum}
	}
	for _, c := range d.source.Meters.Caches() {
		hits := fast[c.Route] + float64(c.Hit.Load()+c.Stale.Load()+c.Coalesced.Load()+c.Validated.Load())
		misses, passed := float64(c.Miss.Load()), float64(c.Pass.Load()+c.Bypass.Load())
		failed := float64(c.Error.Load())
		state, level := "warm", Fine
		switch ratio := hits / max(1, hits+misses); {
		case c.Objects.Load()+c.DiskObjects.Load() == 0:
			state = "empty"
		case ratio < 0.9 && lately[c.Route][0] < 0.9*lately[c.Route][1]:
			state = "cold"
		}
		if failed > 0 && failed*100 > hits+misses+passed {
			level = Warn
		}
		up := c.Upstream.Snapshot()
		p.Rows = append(p.Rows, Row{level, []any{
			c.Route, state, ratio(hits, hits+misses+passed+failed), fast[c.Route],
			hits, float64(c.Stale.Load()), misses, passed, failed,
			took(up.Quantile(0.99)), float64(c.Objects.Load()), float64(c.Memory.Load()), float64(c.DiskBytes.Load()),
			float64(c.Evicted.Load()), float64(c.Purges.Load()),
		}})
	}
	return p
}

func (d *Dashboard) images() Panel {
	p := Panel{
		ID: "images", Title: "Images",
		Columns: []Column{
			{Key: "route", Name: "route"},
			{Key: "variants_served", Name: "variants sent", Unit: Count},
			{Key: "originals_served", Name: "originals sent", Unit: Count},
			{Key: "converted", Name: "converted", Unit: Count},
			{Key: "failed", Name: "failed", Unit: Count},
			{Key: "shed", Name: "no room", Unit: Count},
			{Key: "waiting", Name: "waiting", Unit: Count},
			{Key: "running", Name: "running", Unit: Count},
			{Key: "took_p99_seconds", Name: "conversion p99", Unit: Seconds},
			{Key: "saved_bytes", Name: "saved", Unit: Bytes},
			{Key: "variants", Name: "kept", Unit: Count},
			{Key: "variant_bytes", Name: "their size", Unit: Bytes},
			{Key: "worker_bytes", Name: "workers' memory", Unit: Bytes},
		},
		Note: "What the fast lane sent is not among them: see Traffic.",
	}
	for _, i := range d.source.Meters.AllImages() {
		level, failed := Fine, reasons(&i.Failed, nil)
		if failed > 0 {
			level = Warn
		}
		original := func(reason string) bool { return strings.HasPrefix(reason, "original") || reason == "none" }
		took99 := i.Took.Snapshot()
		saved := max(0, float64(i.BytesIn.Load())-float64(i.BytesOut.Load()))
		p.Rows = append(p.Rows, Row{level, []any{
			i.Route, reasons(&i.Served, func(r string) bool { return !original(r) && !strings.HasPrefix(r, "refused") }), reasons(&i.Served, original),
			reasons(&i.Converted, nil), failed, float64(i.Shed.Load()),
			float64(i.Waiting.Load()), float64(i.Running.Load()), took(took99.Quantile(0.99)),
			saved, float64(i.Variants.Load()), float64(i.VariantBytes.Load()), float64(i.WorkerBytes.Load()),
		}})
	}
	return p
}

func (d *Dashboard) webSockets() Panel {
	p := Panel{
		ID: "websockets", Title: "WebSockets",
		Columns: []Column{
			{Key: "route", Name: "route"},
			{Key: "open", Name: "open", Unit: Count},
			{Key: "opened", Name: "opened", Unit: Count},
			{Key: "refused", Name: "refused", Unit: Count},
			{Key: "messages_in", Name: "messages in", Unit: Count},
			{Key: "messages_out", Name: "out", Unit: Count},
			{Key: "bytes_in", Name: "bytes in", Unit: Bytes},
			{Key: "bytes_out", Name: "out", Unit: Bytes},
			{Key: "queued_bytes", Name: "queued", Unit: Bytes},
			{Key: "dropped", Name: "dropped", Unit: Count},
			{Key: "channels", Name: "channels", Unit: Count},
			{Key: "subscriptions", Name: "subscriptions", Unit: Count},
			{Key: "lag_p99_seconds", Name: "lag p99", Unit: Seconds},
			{Key: "bus", Name: "bus"},
		},
	}
	for _, ws := range d.source.Meters.WebSockets() {
		level, bus := Fine, "up"
		dropped := reasons(&ws.Dropped, nil)
		if dropped > 0 {
			level = Warn
		}
		if ws.BusDown.Load() != 0 {
			level, bus = Bad, "down"
		}
		lag := ws.Lag.Snapshot()
		p.Rows = append(p.Rows, Row{level, []any{
			ws.Route, float64(ws.Open.Load()), float64(ws.Opened.Load()), float64(ws.Refused.Load()),
			float64(ws.MessagesIn.Load()), float64(ws.MessagesOut.Load()), float64(ws.BytesIn.Load()), float64(ws.BytesOut.Load()),
			float64(ws.QueuedBytes.Load()), dropped, float64(ws.Channels.Load()), float64(ws.Subscriptions.Load()),
			took(lag.Quantile(0.99)), bus,
		}})
	}
	return p
}

// upstreamsID is the panel that has a button in each row: the page looks for the
// columns pool and server.
const upstreamsID = "upstreams"

func servers(list []Upstream) Panel {
	p := Panel{
		ID: upstreamsID, Title: "Upstreams",
		Note: "Time is a moving average up to the answer's header. One that is drained gets no new requests; what runs ends by itself.",
		Columns: []Column{
			{Key: "pool", Name: "pool", Hidden: true},
			{Key: "server", Name: "server"},
			{Key: "state", Name: "state"},
			{Key: "running", Name: "running", Unit: Count},
			{Key: "streams", Name: "streams", Unit: Count},
			{Key: "waiting", Name: "waiting for the pool", Unit: Count},
			{Key: "latency_seconds", Name: "time", Unit: Seconds},
			{Key: "requests", Name: "requests", Unit: Count},
			{Key: "failed", Name: "failed", Unit: Count},
		},
	}
	for _, u := range list {
		state, level := u.state()
		p.Rows = append(p.Rows, Row{level, []any{
			u.Pool, u.Address, state, float64(u.Running), float64(u.Streams),
			float64(u.Waiting), took(u.Latency), float64(u.Requests), float64(u.Fails),
		}})
	}
	return p
}

func (u *Upstream) state() (string, Level) {
	switch {
	case u.Drained && u.Running+u.Streams == 0:
		return "drained", Warn
	case u.Drained:
		return "draining", Warn
	case u.Open:
		return "breaker open", Bad
	case !u.Healthy:
		return "down", Bad
	}
	return "up", Fine
}

// A certificate is about to expire that has less left than this, or than a third of
// its time: those of six days are renewed after four.
const soon = 14 * 24 * time.Hour

func certificates(list []Certificate) Panel {
	p := Panel{
		ID: "certificates", Title: "Certificates", Note: "Those that come by themselves.",
		Columns: []Column{
			{Key: "name", Name: "name"},
			{Key: "issuer", Name: "issuer"},
			{Key: "expires", Name: "expires", Unit: Moment},
			{Key: "renewal", Name: "renewal", Unit: Moment},
			{Key: "attempts", Name: "attempts", Unit: Count},
			{Key: "failures", Name: "failures", Unit: Count},
			{Key: "error", Name: "last error"},
		},
	}
	for _, c := range list {
		level, _ := c.trouble(time.Now())
		p.Rows = append(p.Rows, Row{level, []any{c.Name, c.Issuer, c.Until, c.Renewal, float64(c.Attempts), float64(c.Failures), c.Error}})
	}
	return p
}

// trouble is what is wrong with a certificate.
func (c *Certificate) trouble(now time.Time) (Level, string) {
	switch {
	case c.Until.IsZero() && c.Error != "":
		return Bad, "there is no certificate for " + c.Name + ": " + c.Error
	case c.Until.IsZero():
		return Fine, ""
	case now.After(c.Until):
		return Bad, "the certificate of " + c.Name + " has expired"
	case now.After(c.Renewal.Add(c.Until.Sub(c.Renewal)/2)) && c.Until.Sub(now) < soon:
		return Warn, fmt.Sprintf("the certificate of %s expires in %v and should have been renewed", c.Name, c.Until.Sub(now).Round(time.Hour))
	}
	return Fine, ""
}
