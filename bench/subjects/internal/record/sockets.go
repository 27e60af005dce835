package record

import (
	"time"

	"millrace/bench/subjects/internal/proc"
)

// Sockets is what bench/run ws measured; a part that was not asked for has
// nothing.
type Sockets struct {
	Parts      []string        `json:"parts"`
	Echoes     []SocketEcho    `json:"echoes,omitempty"`
	Casts      []SocketCast    `json:"casts,omitempty"`
	Idle       []SocketIdle    `json:"idle,omitempty"`
	Ramps      []SocketRamp    `json:"ramps,omitempty"`
	Commands   []SocketCommand `json:"commands"`
	Notes      []string        `json:"notes,omitempty"` // of what was left out
	CastRounds int             `json:"cast_rounds"`     // of the broadcasts
	Rest       time.Duration   `json:"rest"`            // of idle connections, before memory is read
	Data       int             `json:"data"`            // bytes of a publication
}

// SocketCommand is how a server was started.
type SocketCommand struct {
	Arm     string `json:"arm"`
	Mode    string `json:"mode"`
	Command string `json:"command"` // with placeholders for folders and ports
}

// SocketUse is what a slot took of the machine.
type SocketUse struct {
	Server proc.CPU      `json:"server"`
	Client proc.CPU      `json:"client"`
	Wall   time.Duration `json:"wall"`
	Other  time.Duration `json:"other"` // CPU that neither server nor client used in Wall
	Steal  time.Duration `json:"steal"` // CPU that the host took away in Wall
}

// SocketEcho is one slot of echoes.
type SocketEcho struct {
	Round       int           `json:"round"` // from 1
	Arm         string        `json:"arm"`
	Connections int           `json:"connections"`
	Size        int           `json:"size"` // bytes of a message
	Messages    uint64        `json:"messages"`
	Failed      uint64        `json:"failed"` // messages, and connections that did not open
	First       string        `json:"first,omitempty"`
	Took        time.Duration `json:"took"`
	P50         time.Duration `json:"p50"`
	P99         time.Duration `json:"p99"`
	Max         time.Duration `json:"max"`
	SocketUse
}

// SocketCast is one slot of publications to many.
type SocketCast struct {
	Round       int           `json:"round"` // from 1
	Arm         string        `json:"arm"`
	Subscribers int           `json:"subscribers"`
	Every       time.Duration `json:"every"` // one publication
	Published   uint64        `json:"published"`
	Delivered   uint64        `json:"delivered"`
	Lost        uint64        `json:"lost"`    // deliveries that did not come, of connections that failed, too
	Doubled     uint64        `json:"doubled"` // deliveries
	Refused     uint64        `json:"refused"` // publications
	First       string        `json:"first,omitempty"`
	Took        time.Duration `json:"took"`
	P50         time.Duration `json:"p50"` // of the lag
	P99         time.Duration `json:"p99"`
	Max         time.Duration `json:"max"`
	SocketUse
}

// SocketIdle is what quiet connections cost a server.
type SocketIdle struct {
	Arm         string        `json:"arm"`
	Mode        string        `json:"mode"`
	Connections int           `json:"connections"` // that were asked for
	Open        int           `json:"open"`        // at the end
	First       string        `json:"first,omitempty"`
	Opened      time.Duration `json:"opened"` // how long opening took
	Fresh       proc.Memory   `json:"fresh"`  // when it had just started
	Before      proc.Memory   `json:"before"` // when it had served some connections
	After       proc.Memory   `json:"after"`
}

// Each is the resident memory of a connection in bytes; NaN or infinite for none.
func (i SocketIdle) Each() float64 {
	return (float64(i.After.RSS) - float64(i.Before.RSS)) / float64(i.Open)
}

// AtMost is Each with all that a server needs only once, for the first of them.
func (i SocketIdle) AtMost() float64 {
	return (float64(i.After.RSS) - float64(i.Fresh.RSS)) / float64(i.Open)
}

// SocketRamp is as many connections as there may be, each echoed on once.
type SocketRamp struct {
	Arm         string        `json:"arm"`
	Servers     int           `json:"servers"` // processes, and as many clients
	Connections int           `json:"connections"`
	Echoed      int           `json:"echoed"` // connections that got their message back
	Failed      int           `json:"failed"` // that did not
	Unclean     int           `json:"unclean"`
	First       string        `json:"first,omitempty"`
	Opened      time.Duration `json:"opened"` // how long opening all took
	Echoing     time.Duration `json:"echoing"`
	Before      proc.Memory   `json:"before"`
	Held        proc.Memory   `json:"held"` // with all open
	Server      proc.CPU      `json:"server"`
	Client      proc.CPU      `json:"client"`
}
