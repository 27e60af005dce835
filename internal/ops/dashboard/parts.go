package dashboard

import (
	"cmp"
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
			{Key: "hit_ratio", Name: "hit ratio", Unit: Share},
			{Key: "hits", Name: "hits in all", Unit: Count},
			{Key: "fast_hits", Name: "of these by the lane", Unit: Count},
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
	fast := map[string]looked{} // by the fast lane, without a miss
	for _, j := range d.source.Meters.Jobs() {
		if j.Name != "cache" {
			continue
		}
		name := j.Route
		if j.Site != "*" {
			name = j.Site + j.Route
		}
		all, lately := d.recorder.of(j, 0)
		fast[name] = looked{hits: all.Requests(), lately: lately.Requests()}
	}
	for _, c := range d.source.Meters.Caches() {
		hot := fast[c.Route]
		now := d.recorder.last.caches[c]
		before := d.recorder.base.caches[c]
		hits, misses := float64(now.hits+hot.hits), float64(now.misses)
		passed, failed := float64(c.Pass.Load()+c.Bypass.Load()), float64(c.Error.Load())
		state, level := "empty", Fine
		if c.Objects.Load()+c.DiskObjects.Load() > 0 {
			state = warmth(now.hits-before.hits+hot.lately, now.misses-before.misses)
			if state == "" {
				state = warmth(now.hits+hot.hits, now.misses)
			}
		}
		if failed > 0 && failed*100 > hits+misses+passed {
			level = Warn
		}
		up := c.Upstream.Snapshot()
		p.Rows = append(p.Rows, Row{level, []any{
			c.Route, cmp.Or(state, "cold"), ratio(hits, hits+misses+passed+failed),
			hits, float64(hot.hits), float64(c.Stale.Load()), misses, passed, failed,
			took(up.Quantile(0.99)), float64(c.Objects.Load()), float64(c.Memory.Load()), float64(c.DiskBytes.Load()),
			float64(c.Evicted.Load()), float64(c.Purges.Load()),
		}})
	}
	return p
}

// looked is how often something was looked up in a cache, and found.
type looked struct{ hits, lately, misses uint64 }

// warmth says whether nine of ten were found; "" for none.
func warmth(hits, misses uint64) string {
	switch {
	case hits+misses == 0:
		return ""
	case hits >= 9*misses:
		return "warm"
	}
	return "cold"
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
			{Key: "messages_out", Name: "messages out", Unit: Count},
			{Key: "bytes_in", Name: "bytes in", Unit: Bytes},
			{Key: "bytes_out", Name: "bytes out", Unit: Bytes},
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

// plugins are the WebAssembly modules.
func (d *Dashboard) plugins() Panel {
	p := Panel{
		ID: "plugins", Title: "Plugins",
		Note: "Of the instances busy now, each serves one request. A request that finds none for as long as timeout says gets 503.",
		Columns: []Column{
			{Key: "module", Name: "module"},
			{Key: "requests", Name: "requests", Unit: Count},
			{Key: "busy", Name: "busy now", Unit: Count},
			{Key: "instances", Name: "of at most", Unit: Count},
			{Key: "refused", Name: "found none", Unit: Count},
			{Key: "traps", Name: "traps and faults", Unit: Count},
			{Key: "timeouts", Name: "computed too long", Unit: Count},
			{Key: "uploads", Name: "slow uploads", Unit: Count},
			{Key: "starts", Name: "did not start", Unit: Count},
		},
	}
	for _, one := range d.source.Meters.Plugins() {
		level := Fine
		if one.Traps.Load()+one.Timeouts.Load()+one.Starts.Load() > 0 {
			level = Warn
		}
		p.Rows = append(p.Rows, Row{level, []any{
			one.Module, float64(one.Requests.Load()), float64(one.Busy.Load()), float64(one.Instances.Load()), float64(one.Refused.Load()),
			float64(one.Traps.Load()), float64(one.Timeouts.Load()), float64(one.Uploads.Load()), float64(one.Starts.Load()),
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

// A certificate is about to expire that has less left than this. Those that come by
// themselves have missed half of the time after their renewal as well, and those of
// files have less than a third of their time left: some live for six days.
const soon = 14 * 24 * time.Hour

func certificates(list []Certificate) Panel {
	p := Panel{
		ID: "certificates", Title: "Certificates", Note: "Those with a file are read again when it changes; the others come by themselves.",
		Columns: []Column{
			{Key: "name", Name: "name"},
			{Key: "issuer", Name: "issuer"},
			{Key: "file", Name: "file"},
			{Key: "expires", Name: "expires", Unit: Moment},
			{Key: "renewal", Name: "renewal", Unit: Moment},
			{Key: "attempts", Name: "attempts", Unit: Count},
			{Key: "failures", Name: "failures", Unit: Count},
			{Key: "error", Name: "last error"},
		},
	}
	for _, c := range list {
		level, _ := c.trouble(time.Now())
		var attempts, failures any
		if c.File == "" {
			attempts, failures = float64(c.Attempts), float64(c.Failures)
		}
		p.Rows = append(p.Rows, Row{level, []any{c.Name, c.Issuer, c.File, c.Until, c.Renewal, attempts, failures, c.Error}})
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
	case c.File != "" && c.Error != "":
		return Warn, "the changed certificate " + c.File + " cannot be used: the old one goes on serving"
	case c.File != "" && c.Until.Sub(now) < min(soon, c.Until.Sub(c.From)/3):
		return Warn, fmt.Sprintf("the certificate of %s expires in %v", c.Name, c.Until.Sub(now).Round(time.Hour))
	case c.File == "" && now.After(c.Renewal.Add(c.Until.Sub(c.Renewal)/2)) && c.Until.Sub(now) < soon:
		return Warn, fmt.Sprintf("the certificate of %s expires in %v and should have been renewed", c.Name, c.Until.Sub(now).Round(time.Hour))
	}
	return Fine, ""
}
