package hub

import (
	"sync"
	"time"

	"millrace/store/bus"
	"millrace/websocket/frame"
)

// Kinds of notes.
const (
	// Placed: the publication ID has the place Offset in its channel's order
	// now; it was delivered without one.
	Placed = "placed"
	// Reset: publications may have been missed. Who wants them subscribes
	// anew, behind the last position it knows.
	Reset = "reset"
	// Join and Leave: Member is now, or no longer, in the channel. Only for
	// subscriptions with Request.Joins, and only of clients of this process:
	// the bus has no way to tell others (Hub.Presence asks them).
	Join  = "join"
	Leave = "leave"
)

// Note is news about a channel that is not a publication.
type Note struct {
	Kind    string // Placed, Reset, Join or Leave
	Channel string
	ID      string      // of Placed
	Offset  uint64      // of Placed
	Member  *bus.Member // of Join and Leave; must not be changed
}

// Publication is a message, or a note, on its way to many. What it holds is
// made ready once for all. It must not be copied or changed, may be kept, and
// is safe for concurrent use.
type Publication struct {
	bus.Message
	// Note is set if this is not a publication of a client; Message then has
	// only the channel, and Frame and Event are what Options.Note makes.
	Note *Note

	options *Options
	since   time.Time // it is on its way
	gen     uint16    // see channel.gen

	framed sync.Once
	frame  *frame.Prepared
	evened sync.Once
	event  []byte
}

// Frame is the publication for WebSockets.
func (p *Publication) Frame() *frame.Prepared {
	p.framed.Do(p.makeFrame)
	return p.frame
}

func (p *Publication) makeFrame() {
	var o Options
	if p.options != nil {
		o = *p.options
	}
	p.frame = frame.Prepare(frame.Text, p.render(o.Text, o.Note), o.CompressFrom)
}

// Event is the publication for event streams: what Options.Event returned, or
// Options.Note for a note. It must not be changed.
func (p *Publication) Event() []byte {
	p.evened.Do(p.makeEvent)
	return p.event
}

func (p *Publication) makeEvent() {
	var o Options
	if p.options != nil {
		o = *p.options
	}
	p.event = p.render(o.Event, o.Note)
}

func (p *Publication) render(message func(bus.Message) []byte, note func(Note) []byte) []byte {
	switch {
	case p.Note != nil && note != nil:
		return note(*p.Note)
	case message != nil:
		return message(p.Message)
	}
	return p.Data
}

// publicationCost is what a publication takes in an inbox beside its data.
const publicationCost = 256

// cost is in bytes. One publication is counted by every inbox that it is in:
// the last of them to be delivered is what keeps it.
func (p *Publication) cost() int64 { return int64(len(p.Data)) + publicationCost }

// isFor reports whether a note may be told to s.
func (p *Publication) isFor(s *Subscription) bool {
	return p.Note == nil || s.flags&wantsMembers != 0 || p.Note.Kind != Join && p.Note.Kind != Leave
}

// isReset reports whether p is a reset note.
func (p *Publication) isReset() bool { return p.Note != nil && p.Note.Kind == Reset }

// note makes a note ready to be sent.
func (h *Hub) note(n Note) *Publication {
	return &Publication{Message: bus.Message{Channel: n.Channel}, Note: &n, options: &h.o}
}
