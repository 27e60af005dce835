package server

import (
	"cmp"
	"fmt"
	"runtime"
)

// Share says how the file descriptors of a process are divided among WebSockets,
// other connections, and the rest: files, upstreams, logs, the admin listener.
type Share struct {
	Descriptors int // that the process may have; 0: not known, or without a limit
	Usable      int // for connections and WebSockets together; 0: no limit
	WebSockets  int // at most so many
	PerAddress  int // of one address
	Asked       int // limits.websockets; 0: not given
	possible    int // WebSockets that could be asked for; 0: no limit
}

const (
	// reservedShare is the part that is kept for the rest: a quarter, or where a
	// server only answers WebSockets, or the operator asks for more of them,
	// leanShare. coreKept are the event loops' own, of each core.
	reservedShare = 4
	leanShare     = 64
	leastReserved = 32
	coreReserved  = 4
	mostReserved  = 8192
	// otherShare is the part that WebSockets leave to other connections: those that
	// ask for files while WebSockets are at their limit, and handshakes. At least
	// leastSpare, where there are enough.
	otherShare = 64
	leastOther = 16
	// unknownSockets is the limit of WebSockets where descriptors have none.
	unknownSockets = 65536
)

// Share divides the descriptors of this process as the limits say.
func (s *Setup) Share() Share {
	return s.Limits.share(Descriptors(), max(1, s.SocketDescriptors), s.OnlySockets)
}

// share divides so many descriptors, of which a WebSocket takes each. only: there
// are no jobs with files or upstreams of their own.
func (o Options) share(all, each int, only bool) Share {
	d := Share{Descriptors: all, Asked: o.WebSockets, WebSockets: cmp.Or(o.WebSockets, unknownSockets)}
	if all > 0 {
		kept := min(max(all/reservedShare, leastReserved), mostReserved)
		lean := min(max(all/leanShare, leastReserved+coreReserved*runtime.GOMAXPROCS(0)), kept)
		if only {
			kept = lean
		}
		d.Usable = max(all/2, all-kept)
		most := max(all/2, all-lean) // for those who ask
		spare := max(most/otherShare, min(leastOther, most/4))
		d.possible = max(1, (most-spare)/each)
		switch {
		case o.WebSockets > 0:
			d.WebSockets = min(o.WebSockets, d.possible)
			d.Usable = max(d.Usable, d.WebSockets*each+spare)
		case only:
			d.WebSockets = d.possible
		default:
			d.WebSockets = min(d.possible, max(d.Usable-o.withDefaults().Connections, d.Usable/2)/each)
		}
	}
	d.WebSockets = max(1, d.WebSockets)
	d.PerAddress = cmp.Or(max(0, o.WebSocketsPerAddress), max(1, d.WebSockets/2))
	return d
}

// moreFiles is what to type for more descriptors.
const moreFiles = "raise the limit of open files: ulimit -n, or LimitNOFILE of systemd"

// Limit says what the number of WebSockets comes from.
func (d Share) Limit() string {
	switch {
	case d.Asked > 0 && d.WebSockets == d.Asked:
		return "limits.websockets"
	case d.Descriptors > 0:
		return fmt.Sprintf("of %d file descriptors, ulimit -n", d.Descriptors)
	}
	return "the default of limits.websockets"
}

// Hint is what an operator can do for more WebSockets.
func (d Share) Hint() string {
	if d.possible == 0 || d.WebSockets < d.possible {
		return "limits.websockets" + d.upTo()
	}
	return moreFiles
}

// upTo says how far limits.websockets goes.
func (d Share) upTo() string {
	if d.possible == 0 {
		return ""
	}
	return fmt.Sprintf(" (up to %d; for more %s)", d.possible, moreFiles)
}

// ConnectionLimits returns how many connections there may be, of all clients and of one
// address, and how many file descriptors the process may have; 0: that is not known.
func (s *Server) ConnectionLimits() (all, each, descriptors int) {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.bound.all, s.slots.bound.each, Descriptors()
}
