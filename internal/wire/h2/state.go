package h2

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2/hpack"
)

// Conn is one connection. Its fields are grouped by who may touch them: one
// goroutine at a time calls Run, and net/http's side writes from others.
type Conn struct {
	host Host
	o    Options

	mostStreams int // that the client may open (RFC 9113, 5.1.2), by Options.Settings

	run    runState    // of the goroutine that calls Run
	goaway goawayState // under its own lock
	w      writeState  // under its own lock

	lastOpened   atomic.Uint32 // the highest stream of the client
	lastAnswered atomic.Uint32 // the highest that the host has answered
	inner        atomic.Pointer[inner]
	frame        atomic.Uint32 // the client's largest
	// table is the size of the client's HPACK table that net/http has sent last. Where
	// the client's setting is smaller, the next block must begin with the new size (RFC
	// 7541, 4.2), and only net/http's blocks do: the host must not answer before.
	table     atomic.Uint32
	tableMost atomic.Uint32 // the client's setting
	evicted   atomic.Bool
	reason    atomic.Uint32 // a Reason

	// These have locks of their own, or are atomic.
	window   window
	received received
	flows    flows
	flood    flood
	resets   ResetCount
	buffered bufferedBytes
}

// phase is how far a connection has come. It only grows:
//
//	phaseNew ──the client's preface was read──▶ phasePreface
//	  ──our SETTINGS are to be written with the next answers──▶ phaseSettingsSent
//	  ──the client's SETTINGS have come (RFC 9113, 3.4)──▶ phaseOpen
type phase uint8

const (
	phaseNew phase = iota
	phasePreface
	phaseSettingsSent
	phaseOpen
)

// runState is of the goroutine that calls Run.
type runState struct {
	phase    phase
	greeted  bool // our SETTINGS are written
	settings clientSettings
	updates  updates
	answered recent // streams that the host has answered
	declined recent // streams that were refused

	// What is being read.
	dec      *hpack.Decoder
	list     headerList
	block    block
	partial  []byte // the beginning of a frame
	backlog  bool   // partial has whole frames, which a pause has kept back
	dataLeft int    // bytes of a DATA frame's payload that have yet to come
	discard  bool   // the payload is read and dropped

	lastPassed uint32 // the highest stream that net/http got

	// Requests that the host answers later (carry.go).
	forwarded []forwarded
	pending   []pendingReply // in the order in which they are sent
	out       []byte         // answers of the host that were not written yet
	outBuf    *[]byte        // the buffer of out, from a pool
}

// goawayState is which GOAWAY frames the client has got (RFC 9113, 6.8).
type goawayState struct {
	mu     sync.Mutex
	warned bool   // a first GOAWAY has gone, after which streams still come
	final  bool   // the last GOAWAY has gone
	limit  uint32 // with this stream
}

// writeState is under mu, which is held for whole frames.
type writeState struct {
	mu           fair
	settingsSent bool
}

// clientSettings are what the client has asked for.
type clientSettings struct {
	window, frame uint32
	// table is the smallest HPACK table that the client has asked for. Net/http gets no other,
	// so its own only shrinks: see Conn.table.
	table uint32
	raw   [8]uint32 // by number, as sent
	sent  uint8     // which of them were
}

// New returns a Conn.
func New(h Host, o Options) *Conn {
	c := &Conn{host: h, o: o, w: writeState{mu: newFair()}, mostStreams: maxWindow}
	for b := o.Settings; len(b) >= 6; b = b[6:] {
		if binary.BigEndian.Uint16(b) == settingMaxStreams {
			c.mostStreams = int(binary.BigEndian.Uint32(b[2:]))
		}
	}
	c.run.settings = clientSettings{table: firstTable, window: defaultWindow, frame: 16 << 10}
	c.window.init(defaultWindow)
	c.received.left = defaultWindow
	c.frame.Store(c.run.settings.frame)
	c.table.Store(firstTable)
	c.tableMost.Store(firstTable)
	c.flows.c = c
	c.run.dec = hpack.NewDecoder(firstTable, nil)
	c.run.dec.SetEmitFunc(c.run.list.emit)
	c.run.dec.SetMaxStringLength(maxBlock)
	return c
}

// recent remembers the last streams of a kind.
type recent struct {
	ids [64]uint32
	n   int
}

func (r *recent) add(id uint32) {
	r.ids[r.n%len(r.ids)] = id
	r.n++
}

func (r *recent) has(id uint32) bool {
	if r.n == 0 {
		return false
	}
	for _, other := range r.ids {
		if other == id {
			return true
		}
	}
	return false
}
