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

// Form is how clients of one kind are told of publications and notes.
type Form struct {
	// Message is what a publication is to them; nil: its data as it is. Note is the same
	// for a note; nil, or what returns nil: they are not told. Each is called at most
	// once for a publication, on any runner, and must not call the hub.
	Message func(m bus.Message) []byte
	Note    func(n Note) []byte
	Op      frame.Opcode // of Frame
}

// MaxForms is the most that a hub has.
const MaxForms = 5

// Publication is a message, or a note, on its way to many. What it holds is
// made ready once for all. It must not be copied or changed, may be kept, and
// is safe for concurrent use.
type Publication struct {
	bus.Message
	// Note is set if this is not a publication of a client; Message then has
	// only the channel, and Frame is what Form.Note makes.
	Note *Note

	options *Options
	since   time.Time // it is on its way
	gen     uint16    // see channel.gen

	forms [MaxForms]formed
}

// formed is a publication in one form.
type formed struct {
	once  sync.Once
	frame *frame.Prepared
}

// Frame is the publication in a form; nil: clients of it are not told.
func (p *Publication) Frame(form int) *frame.Prepared {
	f := &p.forms[form]
	f.once.Do(func() { f.frame = p.makeFrame(form) })
	return f.frame
}

func (p *Publication) makeFrame(form int) *frame.Prepared {
	var f Form
	compressFrom := 0
	if p.options != nil {
		compressFrom = p.options.CompressFrom
		if form < len(p.options.Forms) {
			f = p.options.Forms[form]
		}
	}
	payload := p.Data
	switch {
	case p.Note != nil && f.Note == nil:
		return nil
	case p.Note != nil:
		if payload = f.Note(*p.Note); payload == nil {
			return nil
		}
	case f.Message != nil:
		payload = f.Message(p.Message)
	}
	return frame.Prepare(f.Op, payload, compressFrom)
}

// publicationCost is what a publication takes in an inbox beside its data.
const publicationCost = 320

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
