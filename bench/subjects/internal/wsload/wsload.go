// Package wsload is the client of bench/run ws: one thread with epoll that holds
// as many WebSockets as one process may, so that it costs less than what it
// measures. It echoes, receives what is published, or only holds what it has
// opened; in between, and while it opens more, it answers pings. Linux only.
package wsload

import (
	"errors"
	"fmt"
	"time"
)

// Order is one line of JSON that tells a client what to do; exactly one of its
// fields is set. The client answers each with one line: the type that the
// field's comment names, or Failure.
type Order struct {
	Open      *Open      `json:"open,omitempty"`      // answered with State
	Echo      *Echo      `json:"echo,omitempty"`      // answered with Echoed
	Broadcast *Broadcast `json:"broadcast,omitempty"` // answered with Broadcasted
	State     bool       `json:"state,omitempty"`     // answered with State
	Close     bool       `json:"close,omitempty"`     // answered with State
}

// Failure is the answer to an order that cannot be carried out.
type Failure struct {
	Error string `json:"error,omitempty"`
}

// Open opens connections, and sends a first message on each if it is told to.
// What an earlier order has opened must be closed.
type Open struct {
	Address     string        `json:"address"` // host:port of IPv4
	Path        string        `json:"path"`
	Connections int           `json:"connections"`
	FirstSource int           `json:"first_source"` // the first source address is 127.0.0.N, N at least 2
	Sources     int           `json:"sources"`      // so many, taken in turn
	Busy        int           `json:"busy"`         // that are being opened at one moment
	TLS         bool          `json:"tls"`          // whatever the certificate
	Subscribe   string        `json:"subscribe"`    // to this channel of millrace's; empty: the server knows
	Limit       time.Duration `json:"limit"`        // what is not open then has failed
}

// State is what became of the connections that were opened.
type State struct {
	Failure
	Open    int           `json:"open"`    // now
	Failed  int           `json:"failed"`  // were never open
	Dropped int           `json:"dropped"` // ended, but not because we closed them
	Unclean int           `json:"unclean"` // the server did not end in time when we closed them
	First   string        `json:"first"`   // the first reason of the above
	Took    time.Duration `json:"took"`    // for opening, or closing
}

// Echo sends messages on all open connections, one at a time on each.
type Echo struct {
	Size     int           `json:"size"`     // bytes of each message, at least MinSize
	Duration time.Duration `json:"duration"` // then no more is sent; 0: one message on each connection
}

// Echoed is what came back.
type Echoed struct {
	Failure
	Messages uint64        `json:"messages"` // that came back as they were sent
	Failed   uint64        `json:"failed"`   // that did not
	First    string        `json:"first"`    // why the first of them did not
	Took     time.Duration `json:"took"`     // from the first sent to the last answered
	Trip     Times         `json:"trip"`     // from sending to having it back
}

// Broadcast publishes on a channel and receives that on all open connections.
type Broadcast struct {
	URL   string        `json:"url"`   // where to POST
	Every time.Duration `json:"every"` // one publication
	Count int           `json:"count"` // so many
	Size  int           `json:"size"`  // bytes of each, at least MinData
}

// Broadcasted is what was received.
type Broadcasted struct {
	Failure
	Published uint64        `json:"published"` // accepted by the server
	Refused   uint64        `json:"refused"`   // not
	First     string        `json:"first"`     // why
	Delivered uint64        `json:"delivered"` // to a connection for the first time
	Lost      uint64        `json:"lost"`      // not delivered to a connection that was open at the start
	Doubled   uint64        `json:"doubled"`   // delivered again, or too late
	Took      time.Duration `json:"took"`      // from the first publication to the last delivery
	Lag       Times         `json:"lag"`       // from the moment when a publication was due to its being read by us
}

// Times describes many durations.
type Times struct {
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

const (
	// MinSize is the least size of a message: it holds its connection's number.
	MinSize = 16
	// MaxSize is the largest: it fits a frame with two bytes of length.
	MaxSize = 1 << 16 / 2
	// MinData is the least size of a publication: it holds a number and a time.
	MinData = 64
	// maxConnections is more than the descriptors of one process; it bounds the
	// memory for them.
	maxConnections = 1 << 20
	// maxBusy bounds the goroutines that open connections.
	maxBusy = 1024
	// maxPublications bounds what one order may publish.
	maxPublications = 1 << 20
)

func (o *Open) check() error {
	switch {
	case o.Connections < 1 || o.Connections > maxConnections:
		return fmt.Errorf("%d connections: it must be 1 to %d", o.Connections, maxConnections)
	case o.Busy < 1 || o.Busy > maxBusy:
		return fmt.Errorf("%d connections busy at once: it must be 1 to %d", o.Busy, maxBusy)
	case o.Sources < 1 || o.FirstSource < 2 || o.FirstSource+o.Sources > 255:
		return fmt.Errorf("sources 127.0.0.%d and %d following: they must be within 127.0.0.2…254", o.FirstSource, o.Sources-1)
	case o.Limit <= 0:
		return errors.New("the limit must be above zero")
	case o.TLS && o.Subscribe != "":
		return errors.New("connections over TLS are only held, they subscribe to nothing")
	}
	return nil
}

func (e *Echo) check() error {
	if e.Size < MinSize || e.Size > MaxSize || e.Duration < 0 {
		return fmt.Errorf("messages of %d bytes for %v: it must be %d to %d bytes, and no negative time", e.Size, e.Duration, MinSize, MaxSize)
	}
	return nil
}

func (b *Broadcast) check() error {
	if b.Size < MinData || b.Size > MaxSize || b.Every <= 0 || b.Count < 1 || b.Count > maxPublications {
		return fmt.Errorf("%d publications of %d bytes every %v: it must be 1 to %d of %d to %d bytes", b.Count, b.Size, b.Every, maxPublications, MinData, MaxSize)
	}
	return nil
}
