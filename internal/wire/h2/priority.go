package h2

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// usual is the urgency of a request that names none; 0 is the most urgent and
// 7 the least (RFC 9218, 4.1).
const usual = 3

// maxPendingAnswers is how many answers of the host are collected before they are
// written, so that frames for net/http, and other answers, get their turn.
const maxPendingAnswers = 128

// pendingAnswer is an answer of the host that is collected and not written yet.
type pendingAnswer struct {
	id       uint32
	urgency  uint8
	from, to int // in task.out
}

// order sorts answers by urgency. Only neighbours change places: a frame between two
// answers, such as RST_STREAM, may belong to one of them and stays where it is.
func (t *task) order() {
	for rest := t.answers; len(rest) > 1; {
		n := 1
		for n < len(rest) && rest[n].from == rest[n-1].to {
			n++
		}
		run := rest[:n]
		rest = rest[n:]
		byUrgency := func(a, b pendingAnswer) int { return cmp.Compare(a.urgency, b.urgency) }
		if slices.IsSortedFunc(run, byUrgency) {
			continue
		}
		from, to := run[0].from, run[n-1].to
		slices.SortStableFunc(run, byUrgency)
		sorted := make([]byte, 0, to-from)
		for _, a := range run {
			sorted = append(sorted, t.out[a.from:a.to]...)
		}
		copy(t.out[from:], sorted)
	}
}

// urgency returns the urgency of a request (RFC 9218).
func (c *Conn) urgency(id uint32, fields []hpack.HeaderField) uint8 {
	if u, ok := c.run.updates.of(id); ok {
		return u
	}
	for i := range fields {
		if fields[i].Name == "priority" {
			return parseUrgency(fields[i].Value)
		}
	}
	return usual
}

// parseUrgency reads the urgency in a dictionary of structured fields (RFC 9218, 4).
func parseUrgency(dictionary string) uint8 {
	u := uint8(usual)
	for member := range strings.SplitSeq(dictionary, ",") {
		v, ok := strings.CutPrefix(strings.Trim(member, " \t"), "u=")
		if v, _, _ = strings.Cut(v, ";"); ok && len(v) == 1 && v[0] >= '0' && v[0] <= '7' {
			u = v[0] - '0'
		}
	}
	return u
}

// priorityUpdate handles a PRIORITY_UPDATE frame (RFC 9218, 7.1): for an answer that was
// not written yet, or a stream that the client will open. Net/http ignores such frames,
// also faulty ones, and so does this.
func (c *Conn) priorityUpdate(t *task, h head, p []byte) {
	if h.id != 0 || len(p) < 4 {
		return
	}
	id, u := binary.BigEndian.Uint32(p)&idMask, parseUrgency(string(p[4:]))
	for i := range t.answers {
		if t.answers[i].id == id {
			t.answers[i].urgency = u
		}
	}
	if c.unopened(id) && id&1 == 1 {
		c.run.updates.add(id, u)
	}
}

// updates remembers the last few PRIORITY_UPDATE frames of streams to come.
type updates struct {
	last [4]struct {
		id      uint32
		urgency uint8
	}
	n uint8
}

func (u *updates) add(id uint32, urgency uint8) {
	at := &u.last[int(u.n)%len(u.last)]
	at.id, at.urgency = id, urgency
	u.n++
}

// of returns the last urgency that came for a stream.
func (u *updates) of(id uint32) (urgency uint8, ok bool) {
	for i := range len(u.last) {
		if at := u.last[(int(u.n)+len(u.last)-1-i)%len(u.last)]; at.id == id {
			return at.urgency, true
		}
	}
	return 0, false
}
