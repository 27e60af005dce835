// Package bus joins the channels of several machines into one: it gives publications
// an order, keeps the latest of each channel, and delivers them to everyone who
// listens. [Memory] does so within one process, store/bus/nats between machines. Engines
// pass the suite in store/bus/bustest.
package bus

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxChannel is the most bytes that a channel's name has. Names are UTF-8
// without control characters and not empty; everything else is allowed:
// engines encode what their own names cannot hold.
const MaxChannel = 255

var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the bus is closed")
	// ErrTooBig is returned for a publication that is larger than the engine takes.
	ErrTooBig = errors.New("the publication is larger than the bus carries")
	// ErrDown is returned by calls that need other machines while they cannot
	// be reached. Publish does not return it: it delivers here, and sends the
	// rest later.
	ErrDown = errors.New("the bus cannot reach the other machines")
	// ErrChannel is returned, wrapped with the reason, for what cannot be the
	// name of a channel.
	ErrChannel = errors.New("not a channel's name")
)

// CheckChannel returns what is wrong with a channel's name (an error that
// wraps ErrChannel), or nil.
func CheckChannel(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrChannel)
	case len(name) > MaxChannel:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrChannel, len(name), MaxChannel)
	}
	for i, r := range name {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(name[i:]); size == 1 {
				return fmt.Errorf("%w: it is not UTF-8 at byte %d", ErrChannel, i)
			}
		}
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: it has the control character %U at byte %d", ErrChannel, r, i)
		}
	}
	return nil
}

// Position is a place in a channel's order. Epoch changes when the order
// begins anew (a restart of a process that keeps it in memory, a stream that
// was made again): positions of different epochs cannot be compared. Offset
// grows with every publication of the channel, not always by one; 0 is before
// the first.
type Position struct {
	Epoch  string
	Offset uint64
}

// Message is one publication.
type Message struct {
	Channel string
	// Offset is its place in the channel's order. 0: it has none yet, because
	// the other machines cannot be reached; it is delivered here at once, and
	// the engine tells its Offset with [Listener.Placed] when it has one.
	Offset uint64
	// ID is unique to the publication: what a client has seen by it, it must
	// not show again. Engines make one if it is empty.
	ID   string
	Data []byte // must not be changed, by whoever published or receives it
	Time time.Time
	// From is the client that has published it, if its protocol tells others; nil: a
	// program, or nobody says. It must not be changed either.
	From *Member
	// Tags are what the publisher says of it besides, for clients; nil: nothing. They
	// must not be changed.
	Tags map[string]string
}

// History is what a channel still has.
type History struct {
	// Messages, oldest first.
	Messages []Message
	// Top is the position of the channel now: everything up to it is in
	// Messages, was before since, or is lost; nothing after it is in Messages.
	Top Position
	// Complete: nothing that came after since is missing. An engine that
	// cannot be sure says false. It is false when no since was given.
	Complete bool
}

// Member is a client that is present in a channel.
type Member struct {
	Client string `json:"client"`         // unique to the connection
	User   string `json:"user,omitempty"` // who it says it is
	Info   []byte `json:"info,omitempty"` // JSON, as the grant had it
	// InChannel is the same for one channel, as a subscription's own token had it.
	InChannel []byte `json:"in_channel,omitempty"`
}

// Listener receives what happens on a bus. Its methods must return quickly, may not
// call the bus, and may not wait for anyone who is in a call of Publish or Close.
type Listener interface {
	// Deliver brings the publications of channels that were listened to: those
	// of one channel one after the other in the order of their offsets (those
	// without an offset in the order in which they were published), each once.
	// Different channels are delivered at the same time.
	Deliver(m Message)
	// Placed says that a message that was delivered without an offset has one
	// now.
	Placed(channel, id string, offset uint64)
	// Reset says that publications of a channel may have been missed for good
	// (the history did not reach back over an interruption, or the order began
	// anew): clients should ask anew. "" stands for all channels.
	Reset(channel string)
	// State says that the other machines can be reached again (nil), or why
	// not.
	State(err error)
	// Members are the clients of this process in a channel, for other machines
	// that ask.
	Members(channel string) []Member
}

// Keep bounds what is kept of each channel.
type Keep struct {
	Messages int           // at most this many; 0 keeps nothing
	Age      time.Duration // at most this old; 0 is any age
	// Bytes of all channels together, with what the engine itself needs to keep
	// them; 0 means no bound. The channel written longest ago loses first.
	Bytes    int64
	Channels int // channels with a history; 0 means no bound. As Bytes.
}

// Bus is the interface of all engines. All methods are safe for concurrent use.
type Bus interface {
	// Start begins to call l. It is called once, before anything else.
	Start(l Listener) error
	// Publish puts m into its channel (Offset and Time are the bus's) and
	// returns it with its place. It is delivered to whoever listens, the
	// publisher's own process included, perhaps after Publish has returned. The
	// same ID within the history's bounds is published once: the second call
	// returns the first's place. An error means that nobody gets it, or, if the
	// context ended or the bus was closed while it was on its way, that this is
	// not known; calling again with the same ID is safe.
	Publish(ctx context.Context, m Message) (Message, error)
	// Listen begins deliveries of a channel: every publication of this process
	// after the moment it returns, and every one at all after the Top of a
	// History that is called behind it (so it need not wait for other machines).
	// Some from shortly before may come too. Calls do not nest.
	Listen(channel string) error
	// Ignore ends them. One that is under way may still arrive.
	Ignore(channel string)
	// History calls done, once, with the publications after since (of the same
	// epoch; else with all that are there and Complete false), or without since
	// (nil) with the latest. Of more than limit it takes the latest limit ones,
	// and Complete is false; limit 0 is all of them. It may call done before it
	// returns (an engine in memory does), or later from another goroutine, with
	// ErrDown or a timeout of the engine's at the latest. done may call the bus.
	History(channel string, since *Position, limit int, done func(History, error))
	// Members calls done, once and as History, with the clients present in a
	// channel on all machines, this one included; with ErrDown those of this one.
	Members(channel string, done func([]Member, error))
	// Close ends deliveries; none is under way when it returns. What was
	// published while other machines could not be reached is sent if that is
	// possible within two seconds.
	Close() error
}
