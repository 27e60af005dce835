package dashboard

import "millrace/internal/observe/meter"

// refusal is a reason for which something was refused.
type refusal struct {
	reason string
	n      *meter.Counter
}

// refusals are all there are, always in the same order.
func refusals(m *meter.Meters) []refusal {
	return []refusal{
		{"requests: the access list", &m.Refused.Address},
		{"requests: over a rate limit", &m.Refused.Rate},
		{"requests: the address was caught by a trap", &m.Refused.Caught},
		{"requests: a crawler's proof was asked for", &m.Refused.Proof},
		{"addresses caught by a trap", &m.Trapped},
		{"connections closed at once: limits, failed handshakes", &m.Rejected},
		{"HTTP/2 connections: malformed", &m.HTTP2Refused.Malformed},
		{"HTTP/2 connections: header blocks too long", &m.HTTP2Refused.Headers},
		{"HTTP/2 connections: frames that ask for nothing", &m.HTTP2Refused.Idle},
		{"HTTP/2 connections: too many resets", &m.HTTP2Refused.Resets},
		{"HTTP/2 connections: answers not taken", &m.HTTP2Refused.Stalled},
		{"HTTP/2 connections: too many streams that wait", &m.HTTP2Refused.TooMany},
		{"HTTP/3 requests: header too late", &m.HTTP3Refused.Headers},
		{"HTTP/3 connections: too many resets", &m.HTTP3Refused.Resets},
		{"HTTP/3 connections: too many requests at once", &m.HTTP3Refused.Requests},
		{"HTTP/3 connections: too many streams that wait", &m.HTTP3Refused.TooMany},
	}
}

// refused is what was turned away, by reason.
func (d *Dashboard) refused() Panel {
	p := Panel{
		ID: "refused", Title: "Refused",
		Note:    "A few are normal: scanners, and clients that stop in the middle.",
		Columns: []Column{{Key: "what", Name: "what"}, {Key: "count", Name: "since the start", Unit: Count}, {Key: "per_second", Name: "rate", Unit: Rate}},
	}
	_, span := d.recorder.lately()
	for i, r := range refusals(d.source.Meters) {
		n, before := d.recorder.last.refused[i], d.recorder.base.refused[i]
		if n > 0 {
			p.Rows = append(p.Rows, Row{Values: []any{r.reason, float64(n), float64(n-before) / span.Seconds()}})
		}
	}
	return p
}
