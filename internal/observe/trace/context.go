package trace

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// The fields of W3C Trace Context, as net/http spells them.
const (
	parentField = "Traceparent"
	stateField  = "Tracestate"
)

// The flags of traceparent (W3C Trace Context 2, 2.2.3).
const (
	sampledFlag = 1
	randomFlag  = 2
)

const (
	parentBytes = 55 // of version 00
	// maxState and maxMembers are how long a tracestate must be passed on at
	// least, and may be (3.3.1.1 and 3.3.1.5): a longer one is dropped.
	maxState   = 512
	maxMembers = 32
)

// Context is a place in a trace: what traceparent and tracestate say.
type Context struct {
	Trace ID
	Span  SpanID // of who has asked; zero: nobody, the trace begins here
	Flags byte
	State string
}

// Sampled reports whether spans of the trace are kept.
func (c *Context) Sampled() bool { return c.Flags&sampledFlag != 0 }

// Parse reads the fields of a request; ok is false where they say nothing that can
// be continued. A field that is wrong is as good as none.
func Parse(h http.Header) (c Context, ok bool) {
	if len(h[parentField]) != 1 {
		return Context{}, false
	}
	return parse(h[parentField][0], strings.Join(h[stateField], ","))
}

func parse(parent, states string) (c Context, ok bool) {
	if !c.parse(strings.Trim(parent, " \t")) {
		return Context{}, false
	}
	c.State = state(states)
	return c, true
}

// parse reads a traceparent: version-trace-parent-flags (3.2.2). One of a later
// version may go on behind them (4.1).
func (c *Context) parse(s string) bool {
	if len(s) < parentBytes || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" ||
		len(s) > parentBytes && (s[:2] == "00" || s[parentBytes] != '-') {
		return false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		from string
	}{{version[:], s[:2]}, {c.Trace[:], s[3:35]}, {c.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if !lowerHex(part.from) {
			return false
		}
		_, _ = hex.Decode(part.to, []byte(part.from))
	}
	c.Flags = flags[0] & (sampledFlag | randomFlag)
	return c.Trace != ID{} && c.Span != SpanID{}
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// state is a tracestate, empty where it is not to be passed on.
func state(s string) string {
	s = strings.Trim(s, " \t")
	if len(s) > maxState || strings.Count(s, ",") >= maxMembers {
		return ""
	}
	for member := range strings.SplitSeq(s, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue // 3.3.1.1 allows it
		}
		if key, value, ok := strings.Cut(member, "="); !ok || key == "" || value == "" || strings.Contains(value, "=") {
			return ""
		}
		for i := range len(member) {
			if member[i] < ' ' || member[i] > '~' {
				return ""
			}
		}
	}
	return s
}

// parentFor is a traceparent with a span as the parent of what another server does.
func (c *Context) parentFor(span SpanID) string {
	b := make([]byte, 0, parentBytes)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, span[:])
	b = append(b, '-')
	return string(hex.AppendEncode(b, []byte{c.Flags}))
}
