package cache

import (
	"strings"
	"sync"
	"time"

	"millrace/internal/observe/redact"
)

// Decision is one line of the ring log.
type Decision struct {
	Time    time.Time     `json:"time"`
	Method  string        `json:"method"`
	URL     string        `json:"url"`
	Status  int           `json:"status"`
	Outcome string        `json:"outcome"` // hit, stale, miss, coalesced, bypass, pass, error
	Reason  string        `json:"reason,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

// ringSize is how many decisions are remembered.
const ringSize = 1024

// maxDecisionURL is how much of a URL is remembered, so that the log is at most 2 MB.
const maxDecisionURL = 2 << 10

// loggedURL is a URL as the log has it.
func loggedURL(url string) string {
	url = redact.Target(url)
	if len(url) <= maxDecisionURL {
		return url
	}
	return strings.Clone(url[:maxDecisionURL])
}

// ring is a log of the latest decisions. The zero value is ready.
type ring struct {
	mu   sync.Mutex
	log  [ringSize]Decision
	next int // ever growing
}

func (g *ring) add(d Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log[g.next%ringSize] = d
	g.next++
}

// reasonFor is the reason of the latest decision about a URL.
func (g *ring) reasonFor(url string) string {
	url = loggedURL(url)
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := g.next - 1; i >= max(0, g.next-ringSize); i-- {
		if d := &g.log[i%ringSize]; d.URL == url && d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

// Recent lists the latest decisions, youngest first, whose URL, outcome or
// reason contains filter. The fast lane's hits are not among them.
func (h *Handler) Recent(filter string, most int) []Decision {
	g := &h.recent
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Decision
	for i := g.next - 1; i >= max(0, g.next-ringSize) && len(out) < most; i-- {
		d := g.log[i%ringSize]
		if strings.Contains(d.URL, filter) || strings.Contains(d.Outcome, filter) || strings.Contains(d.Reason, filter) {
			out = append(out, d)
		}
	}
	return out
}

// record counts a decision, in a shard, and puts it into the log.
func (h *Handler) record(x *exchange, shard uint32) {
	m := h.meters
	switch x.outcome {
	case "": // it panicked before anything was decided
		return
	case "hit", "disk", "shared":
		m.Hit.Add(shard, 1)
	case "stale":
		m.Stale.Add(shard, 1)
	case "coalesced":
		m.Coalesced.Add(shard, 1)
	case "miss":
		m.Miss.Add(shard, 1)
	case "validated":
		m.Validated.Add(shard, 1)
	case "pass":
		m.Pass.Add(shard, 1)
	case "bypass":
		m.Bypass.Add(shard, 1)
	case "error":
		m.Error.Add(shard, 1)
	}
	h.recent.add(Decision{
		Time: x.began, Method: x.head.Method, URL: loggedURL(x.url()), Status: x.status,
		Outcome: x.outcome, Reason: x.reason, Took: time.Since(x.began),
	})
}
